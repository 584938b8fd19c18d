// The "post_processor" of tokenizer.json: special tokens around a text's tokens.
// Immutable after Parse(); thread-safe.
#ifndef TALON_TEXT_TOKENIZER_POST_PROCESSOR_H_
#define TALON_TEXT_TOKENIZER_POST_PROCESSOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/tokenizer/json_fields.h"

namespace talon {

class PostProcessor {
 public:
  // Adds nothing.
  PostProcessor() = default;
  // Kinds: TemplateProcessing (its "single" form), ByteLevel (moves offsets only), Sequence.
  static Result<PostProcessor> Parse(const Json& value, const std::string& where);

  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

 private:
  Status AddTemplate(const JsonFields& fields);

  std::vector<int32_t> prefix_;
  std::vector<int32_t> suffix_;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_POST_PROCESSOR_H_
