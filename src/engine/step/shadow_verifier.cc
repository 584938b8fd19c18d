#include "engine/step/shadow_verifier.h"

#include <algorithm>
#include <span>

#include "engine/step/proposal.h"
#include "spec/specpv/shadow.h"

namespace talon {

std::vector<float> ShadowVerifier::Fetch(const MatrixView& matrix, int first, int count) const {
  std::vector<float> host(static_cast<size_t>(count) * matrix.cols);
  for (int row = 0; row < count; ++row) {
    backend_->CopyOut(host.data() + static_cast<size_t>(row) * matrix.cols,
                      matrix.Rows(first + row, 1).data, sizeof(float) * matrix.cols);
  }
  return host;
}

Result<ShadowRows> ShadowVerifier::Run(const ActiveRequest& run, const TokenTree& tree) {
  const Sequence& sequence = run.sequence;
  Proposal proposal(sequence.tokens.back());
  proposal.SetDrafts(tree);
  if (sequence.tail_len > 0) {
    proposal.AddTrunk(std::span(sequence.tokens).subspan(sequence.committed_len, sequence.tail_len),
                      /*judged=*/false);
  }
  builder_.Reset();
  builder_.AddTree(sequence, proposal.tree(), {}, proposal.first_judged());
  ForwardOutput output;
  TALON_RETURN_IF_ERROR(target_->Forward(builder_.plan(), kv_->view(), &output));
  metrics_->Add(Counter::kKvBytesStaged,
                static_cast<int64_t>(kv_->shape().BytesPerToken()) * builder_.num_rows(), "shadow");
  return ShadowRows{.logits = Fetch(output.logits, 0, tree.size()),
                    .hidden = Fetch(output.hidden, 0, tree.size())};
}

void ShadowVerifier::Compare(const ShadowRows& full, const TokenTree& tree,
                             const ForwardOutput& partial, int first_output, ActiveRequest* run) {
  const auto vocabulary = static_cast<size_t>(partial.logits.cols);
  const auto hidden = static_cast<size_t>(partial.hidden.cols);
  const BoundSampler sampler = run->sampler.At(run->sequence.tokens);
  AgreementByDistance agreement;
  for (int node = 0; node < tree.size(); ++node) {
    std::vector<int32_t> path;  // from below the root down to the node
    for (int at = node; at > 0; at = tree.parents[at]) path.push_back(tree.tokens[at]);
    std::reverse(path.begin(), path.end());
    const auto row = static_cast<size_t>(node);
    std::vector<float> full_logits(full.logits.begin() + row * vocabulary,
                                   full.logits.begin() + (row + 1) * vocabulary);
    std::vector<float> partial_logits = Fetch(partial.logits, first_output + node, 1);
    // Choosing leaves the processed logits behind.
    if (sampler.Choose(full_logits, path).dead_end ||
        sampler.Choose(partial_logits, path).dead_end) {
      continue;
    }
    const RowDifference difference = CompareRows(
        full_logits, partial_logits, std::span(full.hidden).subspan(row * hidden, hidden),
        Fetch(partial.hidden, first_output + node, 1));
    const int distance = run->sequence.tail_len + static_cast<int>(path.size()) + 1;
    RecordShadow(difference, distance, &agreement, metrics_);
    if (run->partial.governor) run->partial.governor->Record(!difference.argmax_differs);
  }
  agreement.Publish(metrics_);
}

}  // namespace talon
