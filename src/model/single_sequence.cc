#include "model/single_sequence.h"

#include <algorithm>

namespace talon {

Result<SingleSequence> SingleSequence::Create(Decoder* decoder, Backend* backend,
                                              const Limits& limits) {
  const ModelConfig& config = decoder->config();
  const KvShape shape{.num_layers = config.num_layers,
                      .kv_heads = decoder->kv_heads(),
                      .head_dim = config.head_dim};
  TALON_ASSIGN_OR_RETURN(PrivateKv kv, PrivateKv::Create(backend, shape, limits));
  return SingleSequence(decoder, backend, std::move(kv));
}

void SingleSequence::CopyOutput(const ForwardOutput& output, Rows* rows) const {
  CopyRows(backend_, output.logits, &rows->logits);
  CopyRows(backend_, output.hidden, &rows->hidden);
  CopyRows(backend_, output.features, &rows->features);
}

Result<SingleSequence::Rows> SingleSequence::Append(std::span<const int32_t> tokens) {
  TALON_RETURN_IF_ERROR(kv_.CheckRoom(tokens.size()));
  Rows rows;
  const auto chunk = static_cast<size_t>(decoder_->max_output_rows());
  for (size_t start = 0; start < tokens.size(); start += chunk) {
    const auto part = tokens.subspan(start, std::min(chunk, tokens.size() - start));
    ForwardOutput output;
    TALON_RETURN_IF_ERROR(decoder_->Forward(kv_.PromptPlan(part, 0), kv_.View(), &output));
    kv_.Advance(part.size());
    CopyOutput(output, &rows);
  }
  return rows;
}

Result<int32_t> SingleSequence::AppendGreedy(std::span<const int32_t> tokens) {
  TALON_RETURN_IF_ERROR(kv_.CheckRoom(tokens.size()));
  int32_t next = 0;
  const auto chunk = static_cast<size_t>(decoder_->max_rows());
  for (size_t start = 0; start < tokens.size(); start += chunk) {
    const auto part = tokens.subspan(start, std::min(chunk, tokens.size() - start));
    const auto last_row = static_cast<int>(part.size()) - 1;
    ForwardOutput output;
    TALON_RETURN_IF_ERROR(decoder_->Forward(kv_.PromptPlan(part, last_row), kv_.View(), &output));
    kv_.Advance(part.size());
    backend_->token_ops()->Argmax(output.logits, {&next, 1});
  }
  return next;
}

Result<SingleSequence::Rows> SingleSequence::Tree(std::span<const int32_t> tokens,
                                                  std::span<const int32_t> parents) {
  TALON_ASSIGN_OR_RETURN(const PassPlan plan, kv_.TreePlan(tokens, parents));
  ForwardOutput output;
  TALON_RETURN_IF_ERROR(decoder_->Forward(plan, kv_.View(), &output));
  Rows rows;
  CopyOutput(output, &rows);
  return rows;
}

}  // namespace talon
