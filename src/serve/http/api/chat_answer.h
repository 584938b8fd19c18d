// One choice of a chat's answer, taken apart into the members of OpenAI's message.
//
// Used by one thread.
#ifndef TALON_SERVE_HTTP_API_CHAT_ANSWER_H_
#define TALON_SERVE_HTTP_API_CHAT_ANSWER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/answers/answer_parser.h"

namespace talon {

// A new id for a call, of the form that the model's template takes.
std::string NewCallId(ToolFormat format);

class ChatAnswer {
 public:
  ChatAnswer(ToolFormat format, ParserOptions options)
      : format_(format), parser_(NewAnswerParser(format, std::move(options))) {}

  // The "delta" objects that a text adds, and those of what was held back at its end.
  std::vector<Json> Feed(std::string_view text) { return Add(parser_->Feed(text)); }
  std::vector<Json> Finish() { return Add(parser_->Finish()); }

  // The whole "message", after Finish().
  Json Message() const;
  bool has_calls() const { return !calls_.empty(); }
  const std::string& content() const { return content_; }

 private:
  std::vector<Json> Add(const std::vector<AnswerDelta>& deltas);
  Json AddOne(const AnswerDelta& delta);

  ToolFormat format_;
  std::unique_ptr<AnswerParser> parser_;
  std::string content_;
  std::string reasoning_;
  Json calls_ = Json::array();
};

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_CHAT_ANSWER_H_
