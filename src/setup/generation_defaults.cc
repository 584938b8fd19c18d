#include "setup/generation_defaults.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/valid_values.h"
#include "model/sampling/sampling_params.h"

namespace talon {
namespace {

// A missing or null member leaves the value empty.
Status ReadNumber(const Json& json, const char* key, const Range& range,
                  std::optional<float>* value) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return OkStatus();
  if (!at->is_number()) return InvalidArgument("{}: must be a number", key);
  TALON_RETURN_IF_ERROR(CheckRange(key, at->get<double>(), range));
  *value = at->get<float>();
  return OkStatus();
}

Status ReadMembers(const Json& json, GenerationDefaults* defaults) {
  using P = SamplingParams;
  std::optional<float> top_k;
  TALON_RETURN_IF_ERROR(
      ReadNumber(json, "temperature", P::kTemperatureRange, &defaults->temperature));
  TALON_RETURN_IF_ERROR(ReadNumber(json, "top_p", P::kProbabilityRange, &defaults->top_p));
  TALON_RETURN_IF_ERROR(ReadNumber(json, "repetition_penalty", P::kRepetitionPenaltyRange,
                                   &defaults->repetition_penalty));
  TALON_RETURN_IF_ERROR(ReadNumber(json, "top_k", {-1, 1 << 24}, &top_k));
  if (top_k) defaults->top_k = std::max(static_cast<int>(*top_k), 0);  // -1 is off, too
  return OkStatus();
}

}  // namespace

std::string GenerationDefaults::ToString() const {
  std::string text;
  const auto add = [&text](const char* key, const auto& value) {
    if (value) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, *value);
  };
  add("temperature", temperature);
  add("top_k", top_k);
  add("top_p", top_p);
  add("repetition_penalty", repetition_penalty);
  return text;
}

Result<GenerationDefaults> ParseGenerationDefaults(const Json& json, const std::string& what) {
  GenerationDefaults defaults;
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  TALON_RETURN_IF_ERROR(ReadMembers(json, &defaults).WithContext(what));
  return defaults;
}

Result<GenerationDefaults> UsedGenerationDefaults(const Config& config, LogLevel level) {
  const std::string path = config.model + "/generation_config.json";
  if (config.model.empty() || !FileExists(path)) return GenerationDefaults();
  const bool use = config.generation_config == "use";
  const auto json = ReadJsonFile(path);
  auto defaults = json.ok() ? ParseGenerationDefaults(*json, path) : json.status();
  if (use || !defaults.ok()) return use ? defaults : GenerationDefaults();
  if (!defaults->empty()) {
    LogMessage(level, fmt::format("{} suggests {}: ignored (--generation-config use)", path,
                                  defaults->ToString()));
  }
  return GenerationDefaults();
}

Status ApplyGenerationDefaults(const std::function<bool(std::string_view flag)>& given,
                               Config* config) {
  TALON_ASSIGN_OR_RETURN(GenerationDefaults defaults,
                         UsedGenerationDefaults(*config, LogLevel::kInfo));
  const SamplingConfig& set = config->sampling;
  const SamplingConfig untouched;
  if (given("--temperature") || set.temperature != untouched.temperature) {
    defaults.temperature.reset();
  }
  if (given("--top-k") || set.top_k != untouched.top_k) defaults.top_k.reset();
  if (given("--top-p") || set.top_p != untouched.top_p) defaults.top_p.reset();
  if (given("--repetition-penalty") || set.repetition_penalty != untouched.repetition_penalty) {
    defaults.repetition_penalty.reset();
  }
  defaults.Apply(&config->sampling);
  return OkStatus();
}

}  // namespace talon
