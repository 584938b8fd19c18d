// Ops that turn logits into tokens: argmax, top-k, sampling on the device, and draft trees.
#ifndef TALON_COMPUTE_TOKEN_OPS_H_
#define TALON_COMPUTE_TOKEN_OPS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "compute/matrix.h"

namespace talon {

class BeamSearch;  // trees/beam_search.h
struct BeamLimits;
class BestFirstSearch;  // trees/best_first_search.h
struct BestFirstLimits;
class Pass;

struct TopKEntry {
  int32_t id = 0;
  float log_prob = 0;
};

// How the token after an output row of a pass is drawn: temperature, then top-k, top-p and min-p,
// then the seeded draw (base/random.h) at the position after the row's.
struct RowDraw {
  uint64_t seed = 0;
  uint32_t choice = 0;
  float temperature = 0;  // 0: the token with the largest logit
  int32_t top_k = 0;      // 0 = off
  float top_p = 1;
  float min_p = 0;
};

// Ops with results in host memory wait for the device, but not those of a draft trees.
class TokenOps {
 public:
  virtual ~TokenOps() = default;

  // Index of each row's largest value, ties to the lowest index, NaN never wins (all NaN: 0).
  // out: [x.rows].
  virtual void Argmax(MatrixView x, std::span<int32_t> out) = 0;

  // Each row's k best log-probabilities (float32 log-softmax), best first, ties to the lower id.
  // out: [x.rows * k]. A row that holds NaN or +inf gives NaN log-probs throughout.
  virtual void TopK(MatrixView x, int k, std::span<TopKEntry> out) = 0;

  // Row rows[i] of x: sets the tokens whose bit in masks[i] is 0 to -inf, NaN excepted: a broken
  // row remains one. masks: [rows, CeilDiv(x.cols, 64)]. The order of rows does not matter.
  virtual void MaskRows(MatrixView x, std::span<const int32_t> rows,
                        std::span<const uint64_t> masks) = 0;

  // Whether this backend implements DrawTokens; if not, the caller samples on the host.
  virtual bool DrawsTokens() const { return false; }
  // The tokens drawn after the pass's output rows, -1 where no logit is above -inf. draws and out:
  // [logits.rows].
  virtual void DrawTokens(const Pass& /*pass*/, MatrixView /*logits*/,
                          std::span<const RowDraw> /*draws*/, std::span<int32_t> /*out*/) {}

  // A search for at most this many trees, whose logits rank `token_ids`. Null where growing trees
  // on the host costs this device nothing more.
  virtual Result<std::unique_ptr<BeamSearch>> NewBeamSearch(const BeamLimits& limits,
                                                            std::span<const int32_t> token_ids) = 0;
  // The same for block heads.
  virtual Result<std::unique_ptr<BestFirstSearch>> NewBestFirstSearch(
      const BestFirstLimits& limits, std::span<const int32_t> token_ids) = 0;
};

}  // namespace talon

#endif  // TALON_COMPUTE_TOKEN_OPS_H_
