#include "model/private_kv.h"

#include <algorithm>
#include <utility>

#include "base/math.h"

namespace talon {

Result<PrivateKv> PrivateKv::Create(Backend* backend, KvShape shape, const Limits& limits) {
  PrivateKv kv;
  kv.max_tokens_ = limits.max_tokens;
  shape.dtype = limits.kv_dtype;
  shape.layout = backend->BlockLayout(shape);
  shape.staging_rows = limits.max_tree;
  shape.num_blocks = CeilDiv(limits.max_tokens, shape.block_size);
  const size_t block_bytes = shape.BlockBytes() * static_cast<size_t>(shape.num_blocks);
  const size_t staged_bytes = shape.RowBytes() * static_cast<size_t>(shape.staging_rows);
  for (int i = 0; i < shape.num_layers; ++i) {
    KvLayer layer;
    for (void** array : {&layer.k_blocks, &layer.v_blocks, &layer.k_staged, &layer.v_staged}) {
      const bool staged = array == &layer.k_staged || array == &layer.v_staged;
      TALON_ASSIGN_OR_RETURN(Buffer buffer, backend->Allocate(staged ? staged_bytes : block_bytes));
      *array = buffer.data();
      kv.buffers_.push_back(std::move(buffer));
    }
    kv.layers_.push_back(layer);
  }
  kv.shape_ = shape;
  return kv;
}

Status PrivateKv::CheckRoom(size_t tokens) const {
  if (tokens + static_cast<size_t>(length_) <= static_cast<size_t>(max_tokens_)) return OkStatus();
  return ResourceExhausted("sequence of {} + {} tokens, room for {}", length_, tokens, max_tokens_);
}

void PrivateKv::AddBlocks(int tokens, PassPlan* plan) const {
  const int blocks = CeilDiv(tokens, shape_.block_size);
  for (int block = 0; block < blocks; ++block) plan->block_ids.push_back(block);
  plan->block_offsets = {0, blocks};
}

PassPlan PrivateKv::PromptPlan(std::span<const int32_t> tokens, int first_output) const {
  const auto rows = static_cast<int>(tokens.size());
  PassPlan plan;
  plan.tokens.assign(tokens.begin(), tokens.end());
  for (int row = 0; row < rows; ++row) {
    plan.positions.push_back(length_ + row);
    plan.slots.push_back(length_ + row);
    plan.prefix_len.push_back(length_ + row + 1);
    if (row >= first_output) plan.output_rows.push_back(row);
  }
  plan.feature_rows = plan.output_rows;
  plan.sequence_rows = {0, rows};
  plan.ancestors.assign(tokens.size(), 0);
  AddBlocks(length_ + rows, &plan);
  return plan;
}

Result<PassPlan> PrivateKv::TreePlan(std::span<const int32_t> tokens,
                                     std::span<const int32_t> parents) const {
  PassPlan plan;
  plan.tokens.assign(tokens.begin(), tokens.end());
  plan.mask_words = static_cast<int>(CeilDiv(tokens.size(), 64));
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
  plan.feature_rows = plan.output_rows;
  plan.sequence_rows = {0, static_cast<int32_t>(tokens.size())};
  AddBlocks(length_, &plan);
  return plan;
}

void CopyRows(Backend* backend, const MatrixView& matrix, std::vector<float>* out) {
  for (int row = 0; row < matrix.rows; ++row) {
    const size_t start = out->size();
    const auto cols = static_cast<size_t>(matrix.cols);
    out->resize(start + cols);
    backend->CopyOut(out->data() + start, matrix.Rows(row, 1).data, cols * sizeof(float));
  }
}

}  // namespace talon
