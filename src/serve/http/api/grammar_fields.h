// What an answer must match: response_format, and the names that other servers have for it.
#ifndef TALON_SERVE_HTTP_API_GRAMMAR_FIELDS_H_
#define TALON_SERVE_HTTP_API_GRAMMAR_FIELDS_H_

#include <string>

#include "grammar/grammar_spec.h"
#include "serve/http/api/json_reader.h"

namespace talon {

// Reads those of chats and completions. At most one may be given, and *param becomes its name.
void ReadGrammar(JsonReader* body, GrammarSpec* grammar, std::string* param);
// text.format of /v1/responses.
void ReadTextFormat(JsonReader* body, GrammarSpec* grammar, std::string* param);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_GRAMMAR_FIELDS_H_
