// A running request of the API: n choices for each prompt, each a stream of the engine's, read as a
// whole or as server-sent events.
//
// Used by one thread.
#ifndef TALON_SERVE_HTTP_COMPLETION_H_
#define TALON_SERVE_HTTP_COMPLETION_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine_thread.h"
#include "serve/http/api/answer_writer.h"
#include "serve/http/api/api_error.h"
#include "serve/http/api/api_request.h"
#include "serve/http/api/api_response.h"
#include "serve/http/serve_parts.h"

namespace talon {

class Completion {
 public:
  // Encodes the prompts and submits their choices. The error, or none and *out is set.
  static std::optional<ApiError> Start(const ServeParts& parts, ApiRequest request,
                                       std::unique_ptr<Completion>* out);
  ~Completion();  // cancels what still runs
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  // Waits for all choices. `client_gone` is polled many times a second; once it returns true the
  // result is an error. The error, or none and *answer is set.
  std::optional<ApiError> Collect(const std::function<bool()>& client_gone, Json* answer);

  // The new server-sent events, after a short wait if there are none; "" if there still are none.
  // After the last one `ended()`.
  std::string NextEvents();
  bool ended() const { return ended_; }

  // "cmpl-...", the same in answers, events and log lines.
  const std::string& id() const { return id_; }
  struct Progress {
    int64_t prompt_tokens = 0;
    int64_t tokens = 0;               // sum over all choices
    double first_token_seconds = -1;  // since Start; -1: there is none yet
  };
  const Progress& progress() const { return progress_; }

 private:
  struct Choice {
    int index = 0;
    bool first_of_prompt = false;  // its prompt counts, the others' is the same
    bool ended = false;
    std::shared_ptr<RequestStream> stream;
  };

  Completion(const ServeParts& parts, ApiRequest request, std::string id,
             std::unique_ptr<AnswerWriter> writer);

  // Submits prompts while there are few enough that have not ended.
  std::optional<ApiError> SubmitMore(size_t ended);
  std::optional<ApiError> Submit(std::vector<int32_t> prompt);
  std::optional<ApiError> Expired();  // what still runs then ends as timed out
  // Appends what the choice has; the error that ended it, if one did.
  std::optional<ApiError> Drain(Choice* choice, std::chrono::milliseconds wait,
                                std::string* events);
  std::string EndWithError(const ApiError& error);
  Choice* FirstRunning();
  void Note(const RequestUpdate& update);
  void Count(const Choice& choice);

  const ServeParts& parts_;
  ApiRequest request_;  // without its prompts
  std::string id_;
  std::unique_ptr<AnswerWriter> writer_;
  std::deque<std::vector<int32_t>> prompts_;  // not yet submitted
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::vector<Choice> choices_;
  Usage usage_;
  Progress progress_;
  bool begun_ = false;
  bool ended_ = false;
  bool expired_ = false;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_COMPLETION_H_
