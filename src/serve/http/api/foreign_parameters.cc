#include "serve/http/api/foreign_parameters.h"

#include <algorithm>
#include <string_view>

#include "base/json.h"

namespace talon {
namespace {

enum class Handling {
  kSilent,   // says nothing about the answer
  kIgnored,  // would change the answer a little: the client is told
  kRefused,  // without it the answer is not what was asked for
};

struct ForeignParameter {
  const char* name;
  Handling handling;
  const char* neutral = "[]";  // values that ask for nothing, as JSON
};

constexpr auto kSilent = Handling::kSilent;
constexpr auto kIgnored = Handling::kIgnored;
constexpr auto kRefused = Handling::kRefused;

// Sorted by name. Null, like a missing member, asks for nothing.
constexpr ForeignParameter kForeign[] = {
    {"add_special_tokens", kIgnored},
    {"allowed_token_ids", kRefused, "[[]]"},
    {"audio", kRefused},
    {"background", kRefused, "[false]"},
    {"cache_prompt", kIgnored, "[true]"},
    {"cache_salt", kIgnored},
    {"chat_template", kRefused},
    {"conversation", kRefused},
    {"dimensions", kRefused},
    {"documents", kRefused, "[[]]"},
    {"dry_base", kIgnored},
    {"dry_multiplier", kIgnored, "[0]"},
    {"dynatemp_exponent", kIgnored},
    {"dynatemp_range", kIgnored, "[0]"},
    {"early_stopping", kIgnored, "[false]"},
    {"ebnf", kRefused},
    {"echo", kRefused, "[false]"},
    {"function_call", kRefused, R"(["none", "auto"])"},
    {"functions", kRefused, "[[]]"},
    {"grammar", kRefused, R"([""])"},
    {"guided_choice", kRefused},
    {"guided_decoding_backend", kIgnored},
    {"guided_grammar", kRefused},
    {"guided_json", kRefused},
    {"guided_regex", kRefused},
    {"guided_whitespace_pattern", kIgnored},
    {"id_slot", kIgnored, "[-1]"},
    {"include", kRefused, "[[]]"},
    {"include_reasoning", kIgnored, "[true]"},
    {"json_schema", kRefused},
    {"length_penalty", kIgnored, "[1]"},
    {"logits_processors", kRefused, "[[]]"},
    {"lora", kRefused, "[[]]"},
    {"lora_path", kRefused},
    {"max_tool_calls", kSilent},
    {"metadata", kSilent},
    {"min_keep", kIgnored, "[0]"},
    {"mirostat", kIgnored, "[0]"},
    {"mirostat_eta", kIgnored},
    {"mirostat_tau", kIgnored},
    {"mm_processor_kwargs", kIgnored},
    {"modalities", kRefused, R"([["text"]])"},
    {"n_keep", kIgnored, "[0]"},
    {"parallel_tool_calls", kSilent},
    {"prediction", kSilent},
    {"previous_response_id", kRefused},
    {"priority", kIgnored, "[0]"},
    {"prompt_cache_key", kSilent},
    {"prompt_cache_retention", kSilent},
    {"prompt_logprobs", kRefused, "[false]"},
    {"reasoning", kIgnored, "[{}]"},
    {"reasoning_effort", kIgnored, R"(["none"])"},
    {"regex", kRefused},
    {"repeat_last_n", kIgnored},
    {"request_id", kIgnored},
    {"response_format", kRefused, R"([{"type": "text"}])"},
    {"return_hidden_states", kRefused, "[false]"},
    {"return_token_ids", kIgnored, "[false]"},
    {"return_tokens_as_token_ids", kIgnored, "[false]"},
    {"rid", kIgnored},
    {"safety_identifier", kSilent},
    {"samplers", kIgnored},
    {"separate_reasoning", kIgnored},
    {"service_tier", kSilent},
    {"session_params", kRefused},
    {"spaces_between_special_tokens", kIgnored, "[true]"},
    {"store", kIgnored, "[false]"},
    {"stream_reasoning", kIgnored},
    {"structured_outputs", kRefused},
    {"suffix", kRefused, R"([""])"},
    {"tfs_z", kIgnored, "[1]"},
    {"thinking_budget", kIgnored},
    {"timings_per_token", kIgnored, "[false]"},
    {"tool_choice", kRefused, R"(["none", "auto"])"},
    {"tools", kRefused, "[[]]"},
    {"truncate_prompt_tokens", kRefused},
    {"truncation", kIgnored, R"(["disabled"])"},
    {"typical_p", kIgnored, "[1]"},
    {"use_beam_search", kRefused, "[false]"},
    {"user", kSilent},
    {"verbosity", kIgnored, R"(["medium"])"},
    {"vllm_xargs", kIgnored, "[{}]"},
    {"web_search_options", kRefused},
    {"xtc_probability", kIgnored, "[0]"},
    {"xtc_threshold", kIgnored},
};

static_assert(std::ranges::is_sorted(kForeign, {}, [](const ForeignParameter& each) {
  return std::string_view(each.name);
}));

}  // namespace

void ReadForeign(JsonReader* body, std::vector<std::string>* ignored) {
  for (const ForeignParameter& each : kForeign) {
    if (body->Knows(each.name)) continue;  // it is one of this request's own
    if (each.handling == kSilent) {
      body->Ignore({each.name});  // not parsed: it may be large
      continue;
    }
    const Json* value = body->Find(each.name);
    if (value == nullptr) continue;
    const Json neutral = Json::parse(each.neutral);
    if (std::find(neutral.begin(), neutral.end(), *value) != neutral.end()) continue;
    if (each.handling == kIgnored) {
      ignored->emplace_back(each.name);
    } else {
      body->Fail(each.name, "not supported", "unsupported_parameter");
    }
  }
}

}  // namespace talon
