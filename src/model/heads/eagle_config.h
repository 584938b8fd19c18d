// What an EAGLE head is: the sizes and options of its config.json, checked against the target.
//
// EAGLE-3's heads continue the features of several layers of the target; EAGLE's (1 and 2, which
// differ in the tree alone) the last hidden state, after the target's final norm unless
// `"feature_norm": false` stands in the file.
//
// Files come from several trainers. The layer's keys may stand at the top level or, in speculators
// files, in `transformer_layer_config`; those of the head at the top level or in `eagle_config`.
#ifndef TALON_MODEL_HEADS_EAGLE_CONFIG_H_
#define TALON_MODEL_HEADS_EAGLE_CONFIG_H_

#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "model/config.h"
#include "model/rope.h"

namespace talon {

struct EagleConfig {
  bool eagle3 = true;          // false: EAGLE-1 and EAGLE-2
  int hidden_size = 0;         // H, of the draft layer
  int target_hidden_size = 0;  // Ht
  int intermediate_size = 0;
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;
  int vocab_size = 0;        // V, the target's
  int draft_vocab_size = 0;  // Vd, at most V
  float rms_norm_eps = 1e-6f;
  RopeConfig rope;
  QuantConfig quantised;            // how the file keeps matrices, where not as floats
  int max_position_embeddings = 0;  // as the head was trained; not a limit

  bool fc_bias = false;
  bool attention_bias = false;  // biases of q, k and v; that of the output projection is optional
  bool mlp_bias = false;
  bool feature_norm = true;           // EAGLE: the feature has the target's final norm
  bool norm_before_residual = false;  // the residual is the normed feature
  bool norm_before_fc = false;        // one norm over the concatenated features
  bool fc_norm = false;               // a norm for each captured layer's features
  bool norm_output = false;           // the next step's feature is the output after the last norm
  float logit_scale = 1;

  // The target's layers whose *input* is captured, whatever convention the file uses; index
  // num_layers stands for the last layer's output, before the final norm.
  std::vector<int> capture_layers;

  const char* name() const { return eagle3 ? "eagle3" : "eagle"; }  // for messages
  // Inputs of the layer's projections: embedding and feature side by side, or fused.
  int layer_inputs() const { return eagle3 ? 2 * hidden_size : hidden_size; }
  int q_size() const { return num_heads * head_dim; }
  int kv_size() const { return num_kv_heads * head_dim; }
  int features_size() const {  // A * Ht
    return static_cast<int>(capture_layers.size()) * target_hidden_size;
  }
};

// The config.json of an EAGLE-3 head. `what` names the source in messages, usually the file's path.
// `capture_override` (layers whose input is captured) replaces the file's list unless it is empty.
Result<EagleConfig> ParseEagle3Config(const Json& json, const std::string& what,
                                      const ModelConfig& target,
                                      const std::vector<int>& capture_override);
// The same of an EAGLE head, which captures the last layer's output.
Result<EagleConfig> ParseEagle1Config(const Json& json, const std::string& what,
                                      const ModelConfig& target);

// A head as the method's authors make them: a layer of the target's sizes, at most 32000 draft
// tokens, and the features of three layers.
EagleConfig UsualEagleConfig(const ModelConfig& target);

// config.json of a head's directory, of either kind.
Result<EagleConfig> LoadEagleConfig(const std::string& dir, const ModelConfig& target,
                                    const std::vector<int>& capture_override);

}  // namespace talon

#endif  // TALON_MODEL_HEADS_EAGLE_CONFIG_H_
