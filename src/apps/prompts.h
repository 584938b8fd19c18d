// Prompts of a file: JSON lines with "prompt" and, if it likes, "id" and "answer".
#ifndef TALON_APPS_PROMPTS_H_
#define TALON_APPS_PROMPTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

namespace talon {

struct Prompt {
  std::string id;  // the line's number if it has none
  std::vector<int32_t> tokens;
  std::string answer;  // the text that should follow, "" = not given
};

// At least one prompt; errors name the line.
Result<std::vector<Prompt>> ReadPrompts(const std::string& path, const Tokenizer& tokenizer,
                                        bool add_special_tokens);

}  // namespace talon

#endif  // TALON_APPS_PROMPTS_H_
