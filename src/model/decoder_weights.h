// A decoder's weights in device memory, packed for the ops that use them.
#ifndef TALON_MODEL_DECODER_WEIGHTS_H_
#define TALON_MODEL_DECODER_WEIGHTS_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/config.h"
#include "model/files/weight_loader.h"
#include "model/files/weight_source.h"
#include "model/ranks/shard.h"

namespace talon {

// Norm weights and biases are float32 buffers; an absent one is empty, its data() null.
struct MlpWeights {
  std::unique_ptr<Weight> gate_up;  // [2 * ffn, hidden]
  Buffer gate_up_bias;              // [2 * ffn]
  std::unique_ptr<Weight> down;     // [hidden, ffn]
  Buffer down_bias;                 // [hidden]

  FeedForwardWeights view() const;
};

struct LayerWeights {
  Buffer input_norm, post_norm;    // [hidden]
  std::unique_ptr<Weight> qkv;     // [q + 2 * kv, hidden]
  Buffer qkv_bias;                 // [q + 2 * kv]
  Buffer q_norm, k_norm;           // [head_dim]
  std::unique_ptr<Weight> output;  // [hidden, q]
  Buffer output_bias;              // [hidden]
  Buffer sinks;                    // [heads]
  MlpWeights mlp;                  // dense layers only
  // A sparse layer has these instead.
  std::unique_ptr<Weight> router;  // [experts, hidden]
  Buffer router_bias;              // [experts]
  std::vector<MlpWeights> experts;
  std::vector<FeedForwardWeights> expert_views;  // views of `experts`
  Buffer expert_table;                           // ExpertOps::Prepare
};

struct DecoderWeights {
  // [vocab, hidden]. Tied models read the table here and multiply by `head`, which the backend lays
  // out for that; both are made from the one tensor of the file.
  WeightTable embedding;
  std::vector<LayerWeights> layers;
  Buffer final_norm;             // [hidden]
  std::unique_ptr<Weight> head;  // [vocab, hidden]

  size_t matrix_bytes = 0;  // all packed matrices: what one pass reads at most
  size_t expert_bytes = 0;  // the experts' part; a pass reads those that its rows choose
  size_t bytes = 0;         // everything here
};

// One layer's, as a decoder or a head of such layers has them.
Result<LayerWeights> LoadLayerWeights(const LayerLayout& layout, WeightLoader* loader);

struct DecoderWeightOptions {
  WeightFormat format = WeightFormat::kAsStored;
  ActivationFormat activations = ActivationFormat::kAuto;  // for the layers' products
  // Called with the share that is done, 0 to 1; may be empty.
  const std::function<void(double)>& progress;
};

// Those of a shard. Packs group after group and releases the source's memory in between, so that at
// most one group of tensors exists twice. InvalidArgument where FP8 activations are asked for, and
// no layer has FP8 weights.
Result<DecoderWeights> LoadDecoderWeights(const ModelConfig& config, const ModelShard& shard,
                                          WeightSource* source, Backend* backend,
                                          const DecoderWeightOptions& options);

}  // namespace talon

#endif  // TALON_MODEL_DECODER_WEIGHTS_H_
