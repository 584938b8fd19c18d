// Rotary position embedding: the frequencies of each kind, in float32, as Hugging Face's
// implementations compute them (the models were trained and evaluated with those bits).
#ifndef TALON_MODEL_ROPE_H_
#define TALON_MODEL_ROPE_H_

#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace talon {

enum class RopeKind { kDefault, kDynamic, kLinear, kLlama3, kYarn };
const char* RopeKindName(RopeKind kind);  // "default", "dynamic", ...
bool ParseRopeKind(std::string_view name, RopeKind* kind);

struct RopeConfig {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000;
  double factor = 1;                 // all kinds but default
  double partial_rotary_factor = 1;  // share of each head that is rotated
  int trained_positions = 0;         // llama3, yarn: the length before it was extended

  double low_freq_factor = 1;  // llama3
  double high_freq_factor = 4;

  double beta_fast = 32;  // yarn
  double beta_slow = 1;
  bool truncate = true;                    // round the ramp's ends to whole dimensions
  std::optional<double> attention_factor;  // scale of cos and sin, else from factor and mscale
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;

  // Elements of each head that are rotated.
  int RotaryDim(int head_dim) const { return static_cast<int>(head_dim * partial_rotary_factor); }
};

struct RopeTable {
  std::vector<float> inv_freq;  // [rotary_dim / 2]
  float scale = 1;              // multiplies cos and sin
};

// The values contradict each other or would give no finite frequencies. `what` is for messages.
Status CheckRope(const RopeConfig& config, int head_dim, const char* what);

// `max_positions` is the model's max_position_embeddings and `context` the longest sequence that
// will run. Only `dynamic` depends on them: it raises theta as the context outgrows max_positions.
// Recomputing it while a sequence grows would contradict the keys already cached, so one context
// length is fixed. REQUIRES: CheckRope.
RopeTable ComputeRope(const RopeConfig& config, int head_dim, int max_positions, int context);

}  // namespace talon

#endif  // TALON_MODEL_ROPE_H_
