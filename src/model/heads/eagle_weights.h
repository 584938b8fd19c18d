// The weights of an EAGLE head in device memory, and its vocabulary map.
#ifndef TALON_MODEL_HEADS_EAGLE_WEIGHTS_H_
#define TALON_MODEL_HEADS_EAGLE_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/backend.h"
#include "model/files/weight_loader.h"
#include "model/heads/eagle_config.h"

namespace talon {

// Norm weights and biases are float32 buffers; an absent one is empty, its data() null.
struct EagleWeights {
  WeightTable embedding;             // [V, H]; empty: the target's
  Buffer concat_norm;                // [A * Ht]
  std::vector<Buffer> fc_norms;      // A of [Ht], or none
  std::unique_ptr<Weight> fc;        // [H, A * Ht]
  std::unique_ptr<Weight> fc_embed;  // [H, H], EAGLE-1 alone: the embedding's part
  Buffer fc_bias;                    // [H]
  Buffer embed_norm, hidden_norm;    // [H]
  std::unique_ptr<Weight> q;         // [q, layer_inputs]
  Buffer q_bias;
  std::unique_ptr<Weight> kv;  // [2 * kv, layer_inputs]
  Buffer kv_bias;
  std::unique_ptr<Weight> output;  // [H, q]
  Buffer output_bias;
  Buffer post_norm;                 // [H]
  std::unique_ptr<Weight> gate_up;  // [2 * ffn, H]
  Buffer gate_up_bias;
  std::unique_ptr<Weight> down;  // [H, ffn]
  Buffer down_bias;
  Buffer norm;                      // [H]
  Buffer head_norm;                 // [H], norm * logit_scale: the scale costs nothing this way
  std::unique_ptr<Weight> head;     // [Vd, H]; null: the target's
  std::vector<int32_t> target_ids;  // [Vd]

  size_t bytes = 0;  // everything here
};

// The safetensors of a checkpoint directory. Everything is checked before anything is loaded.
Result<EagleWeights> LoadEagleWeights(const std::string& dir, const EagleConfig& config,
                                      Backend* backend, WeightFormat format);

// Random weights, for measurements of speed. The draft tokens are spread over the target's.
Result<EagleWeights> RandomEagleWeights(const EagleConfig& config, Backend* backend,
                                        WeightFormat format, uint64_t seed);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_EAGLE_WEIGHTS_H_
