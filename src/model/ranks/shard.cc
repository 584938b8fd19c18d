#include "model/ranks/shard.h"

#include <algorithm>
#include <cstdint>

namespace talon {
namespace {

IndexRange EvenShare(int count, int rank, int size) {
  const std::vector<int> bounds = EvenBounds(count, size);
  return {bounds[rank], bounds[rank + 1]};
}

IndexRange Times(IndexRange range, int factor) {
  return {range.first * factor, range.last * factor};
}

void TakeRows(IndexRange range, TensorSpec* spec) { spec->only_rows = range; }
void TakeColumns(IndexRange range, TensorSpec* spec) { spec->only_cols = range; }

// q, k and v, or their biases: outputs of matrices, elements of vectors.
void TakeHeads(const ModelConfig& config, const ModelShard& shard, bool matrices,
               TensorParts* qkv) {
  for (size_t i = 0; i < qkv->size(); ++i) {
    const IndexRange range = Times(i == 0 ? shard.heads : shard.kv_heads, config.head_dim);
    matrices ? TakeRows(range, &(*qkv)[i]) : TakeColumns(range, &(*qkv)[i]);
  }
}

// Attention output or down, of whose inputs the rank has `inputs`.
void TakeProduct(const ModelConfig& config, const ModelShard& shard, IndexRange inputs,
                 TensorParts* parts, std::vector<int>* bounds) {
  if (shard.split == RankSplit::kInputs) {
    for (TensorSpec& spec : *parts) TakeColumns(inputs, &spec);
    *bounds = OwnBounds(*bounds, shard.rank, shard.size);
    return;
  }
  const IndexRange outputs = EvenShare(config.hidden_size, shard.rank, shard.size);
  for (TensorSpec& spec : *parts) TakeRows(outputs, &spec);
  *bounds = RankBounds(*bounds, shard.size);
}

void TakeMlp(const ModelConfig& config, const ModelShard& shard, MlpLayout* mlp) {
  for (TensorSpec& spec : mlp->gate_up) TakeRows(shard.ffn, &spec);
  for (TensorSpec& spec : mlp->gate_up_bias) TakeColumns(shard.ffn, &spec);
  TakeProduct(config, shard, shard.ffn, &mlp->down, &mlp->down_bounds);
}

void TakeLayer(const ModelConfig& config, const ModelShard& shard, LayerLayout* layer) {
  TakeHeads(config, shard, /*matrices=*/true, &layer->qkv);
  TakeHeads(config, shard, /*matrices=*/false, &layer->qkv_bias);
  for (TensorSpec& spec : layer->sinks) TakeColumns(shard.heads, &spec);
  TakeProduct(config, shard, Times(shard.heads, config.head_dim), &layer->output,
              &layer->output_bounds);
  if (layer->experts.empty()) return TakeMlp(config, shard, &layer->mlp);
  const std::vector<MlpLayout> all = std::move(layer->experts);
  layer->experts.assign(all.begin() + shard.experts.first, all.begin() + shard.experts.last);
}

}  // namespace

Result<ModelShard> ShardOf(const ModelConfig& config, int rank, int size, RankSplit split) {
  if (size < 1 || kSegments % size != 0) {
    return InvalidArgument("tensor_parallel: {} ranks, must be 1, 2, 4 or 8", size);
  }
  if (config.num_kv_heads % size != 0) {
    return InvalidArgument("tensor_parallel: {} ranks cannot share {} kv heads evenly", size,
                           config.num_kv_heads);
  }
  ModelShard shard{.rank = rank, .size = size, .split = split};
  shard.heads = EvenShare(config.num_heads, rank, size);
  shard.kv_heads = EvenShare(config.num_kv_heads, rank, size);
  shard.vocab = EvenShare(config.vocab_size, rank, size);
  shard.vocab_bounds = EvenBounds(config.vocab_size, size);
  const std::vector<int> ffn = MlpBounds(config);
  const std::vector<int> experts = SegmentBounds(config.experts.count, 1);
  shard.ffn = InputsOf(ffn, rank, size);
  shard.experts = InputsOf(experts, rank, size);
  for (int r = 0; r < size; ++r) {
    const bool sparse = config.experts.count > 0;
    const bool dense = !sparse || std::ranges::count(config.dense_layers, true) > 0;
    if ((dense && InputsOf(ffn, r, size).count() == 0) ||
        (sparse && InputsOf(experts, r, size).count() == 0)) {
      return InvalidArgument(
          "tensor_parallel: an MLP of {} and {} experts is too small for {} ranks",
          config.intermediate_size, config.experts.count, size);
    }
  }
  return shard;
}

void TakeShard(const ModelConfig& config, const ModelShard& shard, TensorLayout* layout) {
  if (shard.whole()) return;
  for (LayerLayout& layer : layout->layers) TakeLayer(config, shard, &layer);
  for (TensorSpec& spec : layout->head) TakeRows(shard.vocab, &spec);
}

void TakeLists(const ModelConfig& config, const ModelShard& shard, const PassPlan& whole,
               PassPlan* own) {
  *own = whole;
  own->block_offsets = {0};
  own->block_ids.clear();
  own->sequence_lists = {0};
  const auto add_list = [&](int sequence, int layer, int head) {
    const auto blocks = whole.BlocksOf(sequence, layer, head, config.num_kv_heads);
    own->block_ids.insert(own->block_ids.end(), blocks.begin(), blocks.end());
    own->block_offsets.push_back(static_cast<int32_t>(own->block_ids.size()));
  };
  for (int sequence = 0; sequence < whole.num_sequences(); ++sequence) {
    const bool partial = whole.NumLists(sequence) > 1;
    for (int layer = 0; layer < config.num_layers && partial; ++layer) {
      for (int h = shard.kv_heads.first; h < shard.kv_heads.last; ++h) add_list(sequence, layer, h);
    }
    if (!partial) add_list(sequence, 0, 0);
    own->sequence_lists.push_back(static_cast<int32_t>(own->block_offsets.size()) - 1);
  }
}

}  // namespace talon
