#include "model/ranks/memory.h"

#include <algorithm>

#include "base/check.h"
#include "compute/kv_view.h"
#include "compute/mxfp4.h"
#include "model/files/tensor_layout.h"
#include "model/ranks/shard.h"

namespace talon {
namespace {

int64_t Elements(const TensorSpec& spec) {
  const int64_t rows = spec.only_rows ? spec.only_rows->count() : spec.rows();
  const int64_t cols = spec.only_cols ? spec.only_cols->count() : spec.cols();
  return rows * cols;
}

int64_t BytesOf(const TensorParts& parts, double bytes_per_element) {
  int64_t elements = 0;
  for (const TensorSpec& spec : parts) elements += Elements(spec);
  return static_cast<int64_t>(static_cast<double>(elements) * bytes_per_element);
}

int64_t WeightBytes(const ModelConfig& config, const TensorLayout& layout, WeightFormat weights) {
  const auto stored = static_cast<double>(DTypeSize(config.dtype));
  const double matrix = weights == WeightFormat::kInt8 ? 1 : stored;
  const double expert =
      config.experts.mxfp4 ? static_cast<double>(kMxfp4GroupBytes + 1) / kMxfp4Group : matrix;
  constexpr double kFloat = sizeof(float);

  int64_t bytes = BytesOf(layout.embedding, stored) + BytesOf(layout.head, matrix) +
                  BytesOf(layout.final_norm, kFloat);
  const auto add_mlp = [&](const MlpLayout& mlp, double element) {
    bytes += BytesOf(mlp.gate_up, element) + BytesOf(mlp.down, element) +
             BytesOf(mlp.gate_up_bias, kFloat) + BytesOf(mlp.down_bias, kFloat);
  };
  for (const LayerLayout& layer : layout.layers) {
    bytes +=
        BytesOf(layer.qkv, matrix) + BytesOf(layer.output, matrix) + BytesOf(layer.router, kFloat);
    for (const TensorParts* vectors :
         {&layer.input_norm, &layer.post_norm, &layer.qkv_bias, &layer.q_norm, &layer.k_norm,
          &layer.output_bias, &layer.sinks, &layer.router_bias}) {
      bytes += BytesOf(*vectors, kFloat);
    }
    add_mlp(layer.mlp, matrix);
    for (const MlpLayout& mlp : layer.experts) add_mlp(mlp, expert);
  }
  return bytes;
}

}  // namespace

Result<RankMemory> ReckonRankMemory(const ModelConfig& config, int size, WeightFormat weights,
                                    DType kv_dtype) {
  TALON_CHECK(weights == WeightFormat::kAsStored || weights == WeightFormat::kInt8);
  RankMemory memory;
  for (int rank = 0; rank < size; ++rank) {
    TALON_ASSIGN_OR_RETURN(const ModelShard shard, ShardOf(config, rank, size));
    TensorLayout layout = LayoutOf(config);
    TakeShard(config, shard, &layout);
    memory.weight_bytes = std::max(memory.weight_bytes, WeightBytes(config, layout, weights));
    const KvShape kv{.num_layers = config.num_layers,
                     .kv_heads = shard.kv_heads.count(),
                     .head_dim = config.head_dim,
                     .dtype = kv_dtype};
    memory.kv_bytes_per_token = static_cast<int64_t>(kv.BytesPerToken());
  }
  return memory;
}

}  // namespace talon
