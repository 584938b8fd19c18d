#include "model/single_sequence.h"

#include <algorithm>

namespace talon {

Result<SingleSequence> SingleSequence::Create(Decoder* decoder, Backend* backend,
                                              const Limits& limits) {
  SingleSequence sequence(decoder, backend);
  TALON_RETURN_IF_ERROR(sequence.AllocateCache(limits));
  return sequence;
}

Status SingleSequence::AllocateCache(const Limits& limits) {
  const ModelConfig& config = decoder_->config();
  max_tokens_ = limits.max_tokens;
  shape_ = {.num_layers = config.num_layers,
            .kv_heads = config.num_kv_heads,
            .head_dim = config.head_dim,
            .dtype = limits.kv_dtype,
            .staging_rows = limits.max_tree};
  shape_.num_blocks = (limits.max_tokens + shape_.block_size - 1) / shape_.block_size;
  const size_t block_bytes = shape_.BlockBytes() * static_cast<size_t>(shape_.num_blocks);
  const size_t staged_bytes = shape_.RowBytes() * static_cast<size_t>(shape_.staging_rows);
  for (int i = 0; i < config.num_layers; ++i) {
    KvLayer layer;
    for (void** array : {&layer.k_blocks, &layer.v_blocks, &layer.k_staged, &layer.v_staged}) {
      const bool staged = array == &layer.k_staged || array == &layer.v_staged;
      TALON_ASSIGN_OR_RETURN(Buffer buffer,
                             backend_->Allocate(staged ? staged_bytes : block_bytes));
      *array = buffer.data();
      buffers_.push_back(std::move(buffer));
    }
    layers_.push_back(layer);
  }
  return OkStatus();
}

Status SingleSequence::CheckRoom(size_t tokens) const {
  if (tokens + static_cast<size_t>(length_) <= static_cast<size_t>(max_tokens_)) return OkStatus();
  return ResourceExhausted("sequence of {} + {} tokens, room for {}", length_, tokens, max_tokens_);
}

void SingleSequence::AddBlocks(int tokens, PassPlan* plan) const {
  const int blocks = (tokens + shape_.block_size - 1) / shape_.block_size;
  for (int block = 0; block < blocks; ++block) plan->block_ids.push_back(block);
  plan->block_offsets = {0, blocks};
}

PassPlan SingleSequence::PromptPlan(std::span<const int32_t> tokens, int first_output) const {
  const auto rows = static_cast<int>(tokens.size());
  PassPlan plan;
  plan.tokens.assign(tokens.begin(), tokens.end());
  for (int row = 0; row < rows; ++row) {
    plan.positions.push_back(length_ + row);
    plan.slots.push_back(length_ + row);
    plan.prefix_len.push_back(length_ + row + 1);
    if (row >= first_output) plan.output_rows.push_back(row);
  }
  plan.sequence_rows = {0, rows};
  plan.ancestors.assign(tokens.size(), 0);
  AddBlocks(length_ + rows, &plan);
  return plan;
}

void SingleSequence::CopyMatrix(const MatrixView& matrix, std::vector<float>* out) const {
  for (int row = 0; row < matrix.rows; ++row) {
    const size_t start = out->size();
    const auto cols = static_cast<size_t>(matrix.cols);
    out->resize(start + cols);
    backend_->CopyOut(out->data() + start, matrix.Rows(row, 1).data, cols * sizeof(float));
  }
}

void SingleSequence::CopyRows(const ForwardOutput& output, Rows* rows) const {
  CopyMatrix(output.logits, &rows->logits);
  CopyMatrix(output.hidden, &rows->hidden);
  CopyMatrix(output.features, &rows->features);
}

Result<SingleSequence::Rows> SingleSequence::Append(std::span<const int32_t> tokens) {
  TALON_RETURN_IF_ERROR(CheckRoom(tokens.size()));
  Rows rows;
  const auto chunk = static_cast<size_t>(decoder_->max_output_rows());
  for (size_t start = 0; start < tokens.size(); start += chunk) {
    const auto part = tokens.subspan(start, std::min(chunk, tokens.size() - start));
    ForwardOutput output;
    TALON_RETURN_IF_ERROR(decoder_->Forward(PromptPlan(part, 0), View(), &output));
    length_ += static_cast<int>(part.size());
    CopyRows(output, &rows);
  }
  return rows;
}

Result<int32_t> SingleSequence::AppendGreedy(std::span<const int32_t> tokens) {
  TALON_RETURN_IF_ERROR(CheckRoom(tokens.size()));
  int32_t next = 0;
  const auto chunk = static_cast<size_t>(decoder_->max_rows());
  for (size_t start = 0; start < tokens.size(); start += chunk) {
    const auto part = tokens.subspan(start, std::min(chunk, tokens.size() - start));
    const auto last_row = static_cast<int>(part.size()) - 1;
    ForwardOutput output;
    TALON_RETURN_IF_ERROR(decoder_->Forward(PromptPlan(part, last_row), View(), &output));
    length_ += static_cast<int>(part.size());
    backend_->Argmax(output.logits, {&next, 1});
  }
  return next;
}

Result<SingleSequence::Rows> SingleSequence::Tree(std::span<const int32_t> tokens,
                                                  std::span<const int32_t> parents) {
  PassPlan plan;
  plan.tokens.assign(tokens.begin(), tokens.end());
  plan.mask_words = static_cast<int>((tokens.size() + 63) / 64);
  const auto words = static_cast<size_t>(plan.mask_words);
  plan.ancestors.assign(tokens.size() * words, 0);
  for (size_t node = 0; node < tokens.size(); ++node) {
    const int parent = parents[node];
    if (parent < -1 || parent >= static_cast<int>(node)) {
      return InvalidArgument("tree: node {} has parent {}", node, parent);
    }
    uint64_t* mask = plan.ancestors.data() + node * words;
    if (parent >= 0) {
      std::copy_n(plan.ancestors.data() + static_cast<size_t>(parent) * words, words, mask);
    }
    mask[node / 64] |= uint64_t{1} << (node % 64);
    plan.positions.push_back(parent < 0 ? length_
                                        : plan.positions[static_cast<size_t>(parent)] + 1);
    plan.slots.push_back(-1);
    plan.prefix_len.push_back(length_);
    plan.output_rows.push_back(static_cast<int32_t>(node));
  }
  plan.sequence_rows = {0, static_cast<int32_t>(tokens.size())};
  AddBlocks(length_, &plan);
  ForwardOutput output;
  TALON_RETURN_IF_ERROR(decoder_->Forward(plan, View(), &output));
  Rows rows;
  CopyRows(output, &rows);
  return rows;
}

}  // namespace talon
