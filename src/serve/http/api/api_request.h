// Requests of the API, read from JSON into plain structs. Everything that can be checked without
// the model is checked here; errors name the parameter.
#ifndef TALON_SERVE_HTTP_API_API_REQUEST_H_
#define TALON_SERVE_HTTP_API_API_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "grammar/grammar_spec.h"
#include "model/sampling/sampling_params.h"
#include "serve/http/api/api_error.h"
#include "serve/http/api/tool_request.h"
#include "spec/specpv/config.h"
#include "text/answers/tool_format.h"

namespace talon {

enum class Endpoint { kCompletions, kChat, kEmbeddings, kResponses };

// A text, or the token ids themselves.
using ApiPrompt = std::variant<std::string, std::vector<int32_t>>;

// Messages for the chat template: a list of objects with "role" and "content", a string or a list
// of parts of type text.
struct ChatInput {
  Json messages = Json::array();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json variables = Json::object();  // chat_template_kwargs
  OrderedJson tools = nullptr;      // a list; null: none
};

struct ApiRequest {
  static constexpr int kMaxChoices = 128;  // n
  static constexpr int kMaxPrompts = 256;  // prompts of one request
  static constexpr int kMaxInputs = 2048;  // inputs of one request for embeddings
  static constexpr int kMaxStreams = 256;  // n times prompts, at once
  static constexpr int kMaxStops = 64;
  static constexpr int kMaxTopLogprobs = 20;
  static constexpr int kMaxMessages = 4096;

  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;               // "" = whichever is served
  std::vector<ApiPrompt> prompts;  // for completions and embeddings
  ChatInput chat;
  SamplingParams sampling;  // seed and choice are filled in per choice
  bool max_tokens_given = false;
  PromptOutputs prompt_outputs;
  bool echo = false;             // the text begins with the prompt
  bool prompt_logprobs = false;  // answers have a member of this name
  bool base64 = false;           // how vectors are written
  bool add_special_tokens = true;
  bool skip_special_tokens = true;
  std::vector<std::string> stop;
  std::vector<std::string> bad_words;  // words that the answer must not contain
  bool include_stop = false;           // the text ends with the stop string, not before it
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool speculate = true;
  std::string drafter;      // "" = all that the engine has
  int max_draft_nodes = 0;  // 0 = as the engine has it
  SpecPvOverrides specpv;
  GrammarSpec grammar;               // what the answer must match
  std::string grammar_param;         // the parameter that says so
  ToolRequest tools;                 // tools that it may call
  bool trace = false;                // chunks also carry the trees and statistics of speculation
  std::vector<std::string> ignored;  // parameters that were given and have no effect
  Json repeated = Json::object();    // members that the answer of kResponses repeats
};

// What the server has, and what holds where a request says nothing.
struct ApiDefaults {
  std::string drafter = "NONE";
  ToolFormat tool_format = ToolFormat::kNone;
  bool takes_tools = false;                      // the chat template does
  bool takes_reasoning_effort = false;           // likewise
  SamplingParams sampling = {.temperature = 1};  // OpenAI's default; `talon run` has 0
};

// The error, or none and *request is filled.
std::optional<ApiError> ParseApiRequest(std::string_view body, Endpoint endpoint,
                                        const ApiDefaults& defaults, ApiRequest* request);

// The body of /tokenize: a prompt, or messages with or without tools.
struct TokenizeRequest {
  std::string prompt;
  std::optional<ChatInput> chat;
  bool add_special_tokens = true;
  // Special tokens that are written out are tokens; by default so for a prompt, not for messages.
  bool parse_special = true;
};
std::optional<ApiError> ParseTokenizeRequest(std::string_view body, const ApiDefaults& defaults,
                                             TokenizeRequest* request);

// The body of /detokenize.
struct DetokenizeRequest {
  std::vector<int32_t> tokens;
  bool skip_special_tokens = false;
};
std::optional<ApiError> ParseDetokenizeRequest(std::string_view body, DetokenizeRequest* request);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_API_REQUEST_H_
