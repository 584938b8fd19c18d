// Writes the answer to one request in its endpoint's form, as a whole or as server-sent events.
//
// Used by one thread.
#ifndef TALON_SERVE_HTTP_API_ANSWER_WRITER_H_
#define TALON_SERVE_HTTP_API_ANSWER_WRITER_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "engine/request.h"
#include "serve/http/api/api_error.h"
#include "serve/http/api/api_request.h"
#include "serve/http/api/api_response.h"
#include "serve/http/api/tool_grammar.h"
#include "text/answers/answer_parser.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // The whole answer, from the results of all choices in order.
  virtual Json Whole(std::span<const GenerateResult* const> results, const Usage& usage) = 0;

  // Events, "" = none: at once; what an update adds to a choice; the end of a choice; the end of
  // all; an error that ends the stream.
  virtual std::string Begin() { return ""; }
  virtual std::string Update(int choice, const RequestUpdate& update) = 0;
  virtual std::string EndChoice(int choice, const GenerateResult& result) = 0;
  virtual std::string End(const Usage& usage) = 0;
  virtual std::string Fail(const ApiError& error) = 0;
};

// What a writer needs; not owned.
struct AnswerParts {
  const ApiRequest& request;  // its prompts are not needed
  std::string id;             // empty: a new one
  // Tokens that the choices go on after.
  std::vector<std::vector<int32_t>> prompts = {{}};
  const Tokenizer* tokenizer = nullptr;  // null: none
  std::string model;
  AnswerShape answer_shape;         // what a chat's text is taken apart by
  std::vector<std::string> echoes;  // the text of each prompt, where it is part of the answer
};
std::unique_ptr<AnswerWriter> NewAnswerWriter(AnswerParts parts);
// How its text is taken apart.
ParserOptions OptionsOf(const AnswerParts& parts);

// One for each endpoint's form; NewAnswerWriter chooses.
std::unique_ptr<AnswerWriter> NewCompletionWriter(const AnswerParts& parts);
std::unique_ptr<AnswerWriter> NewEmbeddingsWriter(const AnswerParts& parts);
std::unique_ptr<AnswerWriter> NewResponsesWriter(const AnswerParts& parts);

// "cmpl-0123456789abcdef", new each time.
std::string NewAnswerId(Endpoint endpoint);
std::string NewAnswerId(const std::string& prefix);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_ANSWER_WRITER_H_
