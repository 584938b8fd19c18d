// What a model's generation_config.json suggests for sampling.
#ifndef TALON_SETUP_GENERATION_DEFAULTS_H_
#define TALON_SETUP_GENERATION_DEFAULTS_H_

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"
#include "setup/config.h"

namespace talon {

struct GenerationDefaults {
  std::optional<float> temperature;
  std::optional<int> top_k;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;

  bool empty() const { return !temperature && !top_k && !top_p && !min_p && !repetition_penalty; }
  // "temperature 0.6, top_k 20"
  std::string ToString() const;

  // Replaces the values of SamplingParams or a SamplingConfig.
  template <typename Sampling>
  void Apply(Sampling* sampling) const {
    sampling->temperature = temperature.value_or(sampling->temperature);
    sampling->top_k = top_k.value_or(sampling->top_k);
    sampling->top_p = top_p.value_or(sampling->top_p);
    sampling->min_p = min_p.value_or(sampling->min_p);
    sampling->repetition_penalty = repetition_penalty.value_or(sampling->repetition_penalty);
  }
};

// The suggestions of a file; `what` names it in messages. A value that is not valid is an error.
Result<GenerationDefaults> ParseGenerationDefaults(const Json& json, const std::string& what);

// Those to use by the setting `generation_config`: of the file in the model's directory, or none.
Result<GenerationDefaults> UsedGenerationDefaults(const Config& config);

// Applies them to the sampling settings that the user has not given, as flags or in the file.
Status ApplyGenerationDefaults(const std::function<bool(std::string_view flag)>& given,
                               Config* config);

}  // namespace talon

#endif  // TALON_SETUP_GENERATION_DEFAULTS_H_
