// The options of "Metaspace" in tokenizer.json, shared by its pre-tokenizer and its decoder.
#ifndef TALON_TEXT_TOKENIZER_METASPACE_H_
#define TALON_TEXT_TOKENIZER_METASPACE_H_

#include <string>

#include "base/status.h"
#include "text/tokenizer/json_fields.h"

namespace talon {

struct MetaspaceOptions {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string replacement;  // one character, usually U+2581
  Prepend prepend = Prepend::kAlways;
  bool split = true;

  static Result<MetaspaceOptions> Parse(const JsonFields& fields);
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_METASPACE_H_
