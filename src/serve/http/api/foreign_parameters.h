// Parameters of other servers that this one does not have: OpenAI's newest, vLLM's, SGLang's,
// llama.cpp's.
#ifndef TALON_SERVE_HTTP_API_FOREIGN_PARAMETERS_H_
#define TALON_SERVE_HTTP_API_FOREIGN_PARAMETERS_H_

#include <string>
#include <vector>

#include "serve/http/api/json_reader.h"

namespace talon {

// Handles the members of the body that were not read and that are in the table. What could change
// the answer and cannot be left out is an error; what is left out goes to *ignored.
void ReadForeign(JsonReader* body, std::vector<std::string>* ignored);

}  // namespace talon

#endif  // TALON_SERVE_HTTP_API_FOREIGN_PARAMETERS_H_
