#include "compute/host/host_token_ops.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "compute/host/host_beams.h"
#include "compute/host/host_best_first.h"

namespace talon {

void MaskLogits(std::span<const uint64_t> allowed, std::span<float> logits) {
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  for (size_t first = 0; first < logits.size(); first += 64) {
    const uint64_t bits = allowed[first / 64];
    if (bits == ~uint64_t{0}) continue;
    const size_t count = std::min<size_t>(64, logits.size() - first);
    for (size_t i = 0; i < count; ++i) {
      float& logit = logits[first + i];
      if ((bits >> i & 1) == 0 && logit > kForbidden) logit = kForbidden;
    }
  }
}

void HostTokenOps::MaskRows(MatrixView x, std::span<const int32_t> rows,
                            std::span<const uint64_t> masks) {
  const size_t words = CeilDiv(static_cast<size_t>(x.cols), size_t{64});
  TALON_CHECK(masks.size() == rows.size() * words);
  for (size_t i = 0; i < rows.size(); ++i) {
    MaskLogits(masks.subspan(i * words, words),
               {x.Rows(rows[i], 1).data, static_cast<size_t>(x.cols)});
  }
}

Result<std::unique_ptr<BeamSearch>> HostTokenOps::NewBeamSearch(
    const BeamLimits& limits, std::span<const int32_t> token_ids) {
  if (!grows_ahead_) return std::unique_ptr<BeamSearch>();
  return std::unique_ptr<BeamSearch>(std::make_unique<HostBeamSearch>(backend_, limits, token_ids));
}

Result<std::unique_ptr<BestFirstSearch>> HostTokenOps::NewBestFirstSearch(
    const BestFirstLimits& limits, std::span<const int32_t> token_ids) {
  if (!grows_ahead_) return std::unique_ptr<BestFirstSearch>();
  return std::unique_ptr<BestFirstSearch>(
      std::make_unique<HostBestFirstSearch>(backend_, limits, token_ids));
}

}  // namespace talon
