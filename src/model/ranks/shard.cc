#include "model/ranks/shard.h"

#include <algorithm>
#include <cstdint>

namespace talon {
namespace {

IndexRange EvenShare(int count, int rank, int size) {
  return {static_cast<int>(int64_t{count} * rank / size),
          static_cast<int>(int64_t{count} * (rank + 1) / size)};
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

void TakeMlp(const ModelShard& shard, MlpLayout* mlp) {
  for (TensorSpec& spec : mlp->gate_up) TakeRows(shard.ffn, &spec);
  for (TensorSpec& spec : mlp->gate_up_bias) TakeColumns(shard.ffn, &spec);
  for (TensorSpec& spec : mlp->down) TakeColumns(shard.ffn, &spec);
  mlp->down_bounds = OwnBounds(mlp->down_bounds, shard.rank, shard.size);
}

void TakeLayer(const ModelConfig& config, const ModelShard& shard, LayerLayout* layer) {
  TakeHeads(config, shard, /*matrices=*/true, &layer->qkv);
  TakeHeads(config, shard, /*matrices=*/false, &layer->qkv_bias);
  for (TensorSpec& spec : layer->sinks) TakeColumns(shard.heads, &spec);
  for (TensorSpec& spec : layer->output) TakeColumns(Times(shard.heads, config.head_dim), &spec);
  layer->output_bounds = OwnBounds(layer->output_bounds, shard.rank, shard.size);
  if (layer->experts.empty()) return TakeMlp(shard, &layer->mlp);
  const std::vector<MlpLayout> all = std::move(layer->experts);
  layer->experts.assign(all.begin() + shard.experts.first, all.begin() + shard.experts.last);
}

}  // namespace

Result<ModelShard> ShardOf(const ModelConfig& config, int rank, int size) {
  if (size < 1 || kSegments % size != 0) {
    return InvalidArgument("tensor_parallel: {} ranks, must be 1, 2, 4 or 8", size);
  }
  if (config.num_kv_heads % size != 0) {
    return InvalidArgument("tensor_parallel: {} ranks cannot share {} kv heads evenly", size,
                           config.num_kv_heads);
  }
  ModelShard shard{.rank = rank, .size = size};
  shard.heads = EvenShare(config.num_heads, rank, size);
  shard.kv_heads = EvenShare(config.num_kv_heads, rank, size);
  shard.vocab = EvenShare(config.vocab_size, rank, size);
  for (int r = 0; r <= size; ++r) {
    shard.vocab_bounds.push_back(EvenShare(config.vocab_size, r, size).first);
  }
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
