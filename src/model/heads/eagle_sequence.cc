#include "model/heads/eagle_sequence.h"

#include <algorithm>

namespace talon {
namespace {

void Upload(Backend* backend, std::span<const float> values, const MatrixView& matrix) {
  const auto cols = static_cast<size_t>(matrix.cols);
  for (int row = 0; row < matrix.rows; ++row) {
    backend->CopyIn(matrix.Rows(row, 1).data, values.data() + static_cast<size_t>(row) * cols,
                    cols * sizeof(float));
  }
}

}  // namespace

Result<EagleSequence> EagleSequence::Create(EagleHead* head, Backend* backend,
                                            const Limits& limits) {
  TALON_ASSIGN_OR_RETURN(PrivateKv kv, PrivateKv::Create(backend, head->kv_shape(), limits));
  EagleSequence sequence(head, backend, std::move(kv));
  const EagleConfig& config = head->config();
  const int rows = head->max_output_rows();
  TALON_ASSIGN_OR_RETURN(sequence.features_, NewScratch(backend, rows, config.features_size()));
  TALON_ASSIGN_OR_RETURN(sequence.inputs_, NewScratch(backend, rows, config.hidden_size));
  return sequence;
}

Status EagleSequence::Run(const PassPlan& plan, MatrixView inputs, Rows* rows) {
  EagleOutput output;
  TALON_RETURN_IF_ERROR(head_->Forward(plan, plan, kv_.View(), inputs, &output));
  CopyRows(backend_, output.logits, &rows->logits);
  CopyRows(backend_, output.hidden, &rows->hidden);
  CopyRows(backend_, output.next, &rows->next);
  return OkStatus();
}

Result<EagleSequence::Rows> EagleSequence::Append(std::span<const float> features,
                                                  std::span<const int32_t> tokens) {
  TALON_RETURN_IF_ERROR(kv_.CheckRoom(tokens.size()));
  const auto width = static_cast<size_t>(head_->config().features_size());
  const auto chunk = static_cast<size_t>(head_->max_output_rows());
  Rows rows;
  for (size_t start = 0; start < tokens.size(); start += chunk) {
    const auto part = tokens.subspan(start, std::min(chunk, tokens.size() - start));
    const auto count = static_cast<int>(part.size());
    Upload(backend_, features.subspan(start * width), features_.Rows(count));
    head_->Fuse(features_.Rows(count), inputs_.Rows(count));
    TALON_RETURN_IF_ERROR(Run(kv_.PromptPlan(part, 0), inputs_.Rows(count), &rows));
    kv_.Advance(part.size());
  }
  return rows;
}

Result<EagleSequence::Rows> EagleSequence::Tree(std::span<const float> inputs,
                                                std::span<const int32_t> tokens,
                                                std::span<const int32_t> parents) {
  const auto count = static_cast<int>(tokens.size());
  if (count > head_->max_output_rows()) {
    return InvalidArgument("tree: {} nodes, limit {}", count, head_->max_output_rows());
  }
  TALON_ASSIGN_OR_RETURN(const PassPlan plan, kv_.TreePlan(tokens, parents));
  Upload(backend_, inputs, inputs_.Rows(count));
  Rows rows;
  TALON_RETURN_IF_ERROR(Run(plan, inputs_.Rows(count), &rows));
  return rows;
}

}  // namespace talon
