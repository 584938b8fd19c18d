// Shadow verification: a partial step is also run in full, without effect on the text, to measure
// how far the two are apart. For studies; a shadow costs a full pass.
#ifndef TALON_ENGINE_STEP_SHADOW_VERIFIER_H_
#define TALON_ENGINE_STEP_SHADOW_VERIFIER_H_

#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "engine/active_request.h"
#include "kv/kv_cache.h"
#include "model/decoder.h"
#include "observe/metrics.h"
#include "spec/plan.h"
#include "spec/token_tree.h"

namespace talon {

// The results of a full pass for a tree's rows.
struct ShadowRows {
  std::vector<float> logits;  // [nodes, vocab]
  std::vector<float> hidden;  // [nodes, hidden]
  bool empty() const { return logits.empty(); }
};

class ShadowVerifier {
 public:
  ShadowVerifier(Backend* backend, Decoder* target, KvCache* kv, Metrics* metrics)
      : backend_(backend), target_(target), kv_(kv), metrics_(metrics) {}

  // Runs the tree under the whole prefix and the provisional tokens. Call before the step's own
  // pass: both use the shared staging rows.
  Result<ShadowRows> Run(const ActiveRequest& run, const TokenTree& tree);
  // Compares them with the same rows of the partial pass: logits and hidden from `first_output` on.
  void Compare(const ShadowRows& full, const TokenTree& tree, const ForwardOutput& partial,
               int first_output, ActiveRequest* run);

 private:
  std::vector<float> Fetch(const MatrixView& matrix, int first, int count) const;

  Backend* backend_;
  Decoder* target_;
  KvCache* kv_;
  Metrics* metrics_;
  PassBuilder builder_;
};

}  // namespace talon

#endif  // TALON_ENGINE_STEP_SHADOW_VERIFIER_H_
