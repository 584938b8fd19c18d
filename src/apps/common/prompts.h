// Prompts of a file: JSON lines with "prompt", "tokens" or "messages" (and "tools") and, if it
// likes, "id", "answer" and "json_schema".
#ifndef TALON_APPS_COMMON_PROMPTS_H_
#define TALON_APPS_COMMON_PROMPTS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "setup/config.h"
#include "setup/loader.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

struct Prompt {
  std::string id;  // the line's number if it has none
  std::vector<int32_t> tokens;
  std::string answer;       // the text that should follow, "" = not given
  std::string json_schema;  // what the answer must match in `bench decode --modes`, "" = anything
};

// What turns a file's texts and ids into prompts.
struct PromptReader {
  const Tokenizer* tokenizer = nullptr;  // null: ids only
  int vocab_size = 0;                    // ids are below this
  bool add_special_tokens = true;        // to texts; ids are taken as they are
  // The prompt for an answer to a line's "messages". None: the model has no chat template.
  std::function<Result<std::vector<int32_t>>(const OrderedJson& line)> chat;

  // At least one prompt; errors name the line. Where a line has several, its "tokens" count.
  Result<std::vector<Prompt>> Read(const std::string& path) const;
};

// For prompts of all kinds. The model must outlive it.
Result<PromptReader> MakePromptReader(const ServeConfig& serve, const LoadedModel& model);

// "1,2,3" (blanks will also do), or with "@path" what that file holds: such a list, or JSON lines,
// the first of which counts.
Result<std::vector<int32_t>> ReadPromptTokens(const std::string& argument, int vocab_size);

}  // namespace talon

#endif  // TALON_APPS_COMMON_PROMPTS_H_
