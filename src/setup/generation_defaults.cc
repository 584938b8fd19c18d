#include "setup/generation_defaults.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "base/valid_values.h"
#include "model/sampling/sampling_params.h"
#include "setup/bundled.h"

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
  TALON_RETURN_IF_ERROR(ReadNumber(json, "min_p", P::kProbabilityRange, &defaults->min_p));
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
  add("min_p", min_p);
  add("repetition_penalty", repetition_penalty);
  return text;
}

Result<GenerationDefaults> ParseGenerationDefaults(const Json& json, const std::string& what) {
  GenerationDefaults defaults;
  if (!json.is_object()) return InvalidArgument("{}: is not a JSON object", what);
  TALON_RETURN_IF_ERROR(ReadMembers(json, &defaults).WithContext(what));
  return defaults;
}

Result<GenerationDefaults> UsedGenerationDefaults(const Config& config) {
  if (config.generation_config == "none") return GenerationDefaults();
  TALON_ASSIGN_OR_RETURN(const std::string dir, ModelDir(config.model));
  const std::string path = dir + "/generation_config.json";
  if (!FileExists(path)) return GenerationDefaults();
  TALON_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(path));
  auto defaults = ParseGenerationDefaults(json, path);
  return defaults.ok() ? defaults : defaults.status().WithContext("generation_config");
}

Status ApplyGenerationDefaults(const std::function<bool(std::string_view flag)>& given,
                               Config* config) {
  TALON_ASSIGN_OR_RETURN(GenerationDefaults defaults, UsedGenerationDefaults(*config));
  const auto leave = [&](const char* flag, const char* key, auto* value) {
    if (given(flag) || std::ranges::count(config->file_keys, key) > 0) value->reset();
  };
  leave("--temperature", "temperature", &defaults.temperature);
  leave("--top-k", "top_k", &defaults.top_k);
  leave("--top-p", "top_p", &defaults.top_p);
  leave("--min-p", "min_p", &defaults.min_p);
  leave("--repetition-penalty", "repetition_penalty", &defaults.repetition_penalty);
  defaults.Apply(&config->sampling);
  return OkStatus();
}

}  // namespace talon
