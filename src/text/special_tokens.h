// The special tokens that a model's directory names: bos_token, eos_token and the like.
#ifndef TALON_TEXT_SPECIAL_TOKENS_H_
#define TALON_TEXT_SPECIAL_TOKENS_H_

#include <string>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// The object in a file of a model's directory, its keys in order; empty if there is no such file.
Result<OrderedJson> ReadConfigFile(const std::string& path);

// An object such as {"bos_token": "<s>"}, from tokenizer_config.json and, where that says nothing,
// special_tokens_map.json.
Result<OrderedJson> ReadSpecialTokens(const std::string& model_dir);

// A member as these files write texts, "<s>" or {"content": "<s>"}; null if there is none.
OrderedJson TextMember(const OrderedJson& object, const char* name);

}  // namespace talon

#endif  // TALON_TEXT_SPECIAL_TOKENS_H_
