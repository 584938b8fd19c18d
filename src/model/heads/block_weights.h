// The weights of a block head in device memory, and its vocabulary map.
#ifndef TALON_MODEL_HEADS_BLOCK_WEIGHTS_H_
#define TALON_MODEL_HEADS_BLOCK_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/decoder_weights.h"
#include "model/files/weight_loader.h"
#include "model/heads/block_config.h"

namespace talon {

// Norm weights and biases are float32 buffers; an absent one is empty, its data() null.
struct BlockWeights {
  WeightTable embedding;       // [V, H]; empty: the target's
  std::unique_ptr<Weight> fc;  // [H, A * Ht]
  Buffer fc_bias;              // [H]
  Buffer hidden_norm;          // [H], of the fused features
  std::vector<LayerWeights> layers;
  // k and v of all layers once more, k of layer 0 first: one product for the whole context.
  std::unique_ptr<Weight> context;  // [layers * 2 * kv, H]
  Buffer context_bias;
  Buffer norm;                      // [H]
  std::unique_ptr<Weight> head;     // [Vd, H]; null: the target's
  std::vector<int32_t> target_ids;  // [Vd]
  // The Markov bias of the tokens that follow t: markov_out * markov_in[t].
  int markov_rank = 0;                 // R, 0: none
  Buffer markov_in;                    // float32 [V, R]
  std::unique_ptr<Weight> markov_out;  // [Vd, R]

  size_t bytes = 0;  // everything here
};

// The safetensors of a checkpoint directory. Everything is checked before anything is loaded.
Result<BlockWeights> LoadBlockWeights(const std::string& dir, const BlockConfig& config,
                                      Backend* backend, WeightFormat format);
// Random ones, for measurements of speed. Embedding and output matrix are the target's.
Result<BlockWeights> RandomBlockWeights(const BlockConfig& config, Backend* backend,
                                        WeightFormat format, uint64_t seed);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_BLOCK_WEIGHTS_H_
