// A client of OpenAI's chat API: one connection, one answer at a time.
#ifndef TALON_SERVE_HTTP_CHAT_CLIENT_H_
#define TALON_SERVE_HTTP_CHAT_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

class ChatClient {
 public:
  // Asks the server at http://HOST:PORT for its model.
  static Result<std::unique_ptr<ChatClient>> Connect(const std::string& url,
                                                     const std::string& api_key);
  virtual ~ChatClient() = default;

  const std::string& model() const { return model_; }
  // Its drafter's name, if the server is Talon; else empty.
  const std::string& drafter() const { return drafter_; }

  // Posts a request with "stream": true. Events are given on from another thread, one at a time,
  // before this returns. Kept waiting, it asks whether it was cancelled, and then ends with
  // Cancelled.
  virtual Status Stream(const Json& body, const std::function<void(const Json&)>& on_event,
                        const std::function<bool()>& cancelled) = 0;

 protected:
  std::string model_;
  std::string drafter_;
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_CHAT_CLIENT_H_
