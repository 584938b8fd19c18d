// The tensors of an EAGLE checkpoint, under the names that its file uses.
//
// Trainers spell them differently: with or without a leading "model.", the layer as "midlayer." or
// "layers.0.", the feature norms as "fc_norm.N" or "aux_norm_low". One file must keep to one
// spelling. Tensors that no option of the configuration accounts for are refused where leaving them
// out would change the head's output.
#ifndef TALON_MODEL_HEADS_EAGLE_LAYOUT_H_
#define TALON_MODEL_HEADS_EAGLE_LAYOUT_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "model/files/safetensors.h"
#include "model/files/tensor_layout.h"
#include "model/heads/eagle_config.h"

namespace talon {

struct EagleLayout {
  TensorParts embedding;              // empty: the target's
  TensorParts concat_norm;            // over all captured features
  std::vector<TensorParts> fc_norms;  // one for each captured layer, or none
  // [H, A * Ht] of the features, in EAGLE-1 after the [H, H] of the embedding: [H, 2 * H].
  TensorParts fc;
  TensorParts fc_bias;
  TensorParts embed_norm, hidden_norm;  // EAGLE-3 alone, like `norm`
  TensorParts q, q_bias;
  TensorParts kv, kv_bias;
  TensorParts output, output_bias;
  TensorParts post_norm;
  TensorParts gate_up, gate_up_bias;
  TensorParts down, down_bias;
  TensorParts norm;
  TensorParts head;  // empty: the target's
  std::string d2t;   // empty: the identity
  std::string t2d;   // empty: none

  std::vector<TensorSpec> All() const;
};

// Resolves the names and checks what the configuration demands; shapes but those of `fc` are
// checked when the tensors are loaded.
Result<EagleLayout> FindEagleTensors(const EagleConfig& config, const SafetensorsReader& file);

// The canonical names of what the configuration demands, and of an lm_head of its own.
Result<EagleLayout> CanonicalEagleTensors(const EagleConfig& config);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_EAGLE_LAYOUT_H_
