// What a chat talks to: a model here, or one behind a server.
#ifndef TALON_APPS_CHAT_CHAT_MODEL_H_
#define TALON_APPS_CHAT_CHAT_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "apps/common/text_pieces.h"
#include "base/json_fwd.h"
#include "base/status.h"
#include "engine/request.h"
#include "setup/config.h"

namespace talon {

struct ChatAnswerEnd {
  std::string content;    // the message's text, for the turns to come
  bool stopped = false;   // by the user
  bool at_limit = false;  // the limit of tokens ended it
  RequestStats stats;
};

class ChatModel {
 public:
  virtual ~ChatModel() = default;
  // One line: the model, where it runs, how it drafts.
  virtual std::string Description() const = 0;
  // The answer to the messages, shown as it arrives. Asks now and then whether it was cancelled,
  // and then ends with what there is.
  virtual Result<ChatAnswerEnd> Answer(const OrderedJson& messages,
                                       const std::function<void(const TextPiece&)>& show,
                                       const std::function<bool()>& cancelled) = 0;
};

// The model of the settings, loaded here. `config` must outlive it.
Result<std::unique_ptr<ChatModel>> OpenLocalChat(const Config& config);

// Which of the sampling settings the user has given: a server decides the others.
using SettingGiven = std::function<bool(const std::string& key)>;

struct ServerChatOptions {
  std::string url;  // http://HOST:PORT
  std::string api_key;
  Config config;  // sampling
  SettingGiven given;
};
// A model behind OpenAI's HTTP API, in builds that have HTTP.
Result<std::unique_ptr<ChatModel>> OpenServerChat(const ServerChatOptions& options);

}  // namespace talon

#endif  // TALON_APPS_CHAT_CHAT_MODEL_H_
