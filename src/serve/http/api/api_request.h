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
#include "model/sampling/sampling_params.h"
#include "serve/http/api/api_error.h"

namespace talon {

enum class Endpoint { kCompletions, kChat };

// A text, or the token ids themselves.
using ApiPrompt = std::variant<std::string, std::vector<int32_t>>;

// Messages for the chat template: a list of objects with "role" and "content", a string or a list
// of parts of type text.
struct ChatInput {
  Json messages = Json::array();
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json variables = Json::object();  // chat_template_kwargs
};

struct ApiRequest {
  static constexpr int kMaxChoices = 16;   // n
  static constexpr int kMaxPrompts = 256;  // of one request
  static constexpr int kMaxStreams = 256;  // n times prompts
  static constexpr int kMaxStops = 16;
  static constexpr int kMaxTopLogprobs = 20;
  static constexpr int kMaxMessages = 4096;

  Endpoint endpoint = Endpoint::kCompletions;
  std::string model;               // "" = whichever is served
  std::vector<ApiPrompt> prompts;  // of completions
  ChatInput chat;
  SamplingParams sampling;  // seed and choice are filled in per choice
  bool max_tokens_given = false;
  std::vector<std::string> stop;
  int n = 1;
  bool stream = false;
  bool include_usage = false;
  bool speculate = true;
  int max_draft_nodes = 0;  // 0 = as the engine has it
  bool trace = false;       // chunks also carry the trees and statistics of speculation
};

// Names that a request may use.
struct ApiNames {
  std::string drafter = "NONE";
};

// The error, or none and *request is filled.
std::optional<ApiError> ParseApiRequest(std::string_view body, Endpoint endpoint,
                                        const ApiNames& names, ApiRequest* request);

// The body of /tokenize: a prompt or messages.
struct TokenizeRequest {
  std::string prompt;
  std::optional<ChatInput> chat;
  bool add_special_tokens = true;
  // Special tokens that are written out are tokens; by default so for a prompt, not for messages.
  bool parse_special = true;
};
std::optional<ApiError> ParseTokenizeRequest(std::string_view body, TokenizeRequest* request);

// The body of /detokenize.
struct DetokenizeRequest {
  std::vector<int32_t> tokens;
  bool skip_special_tokens = false;
};
std::optional<ApiError> ParseDetokenizeRequest(std::string_view body, DetokenizeRequest* request);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_API_REQUEST_H_
