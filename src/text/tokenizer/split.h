// Cutting text at the matches of a pattern.
#ifndef TALON_TEXT_TOKENIZER_SPLIT_H_
#define TALON_TEXT_TOKENIZER_SPLIT_H_

#include <optional>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/regex/regex.h"

namespace talon {

// What becomes of the matches ("delimiters"). For '-' in "the-final--countdown":
//   kRemoved             the, final, countdown
//   kIsolated            the, -, final, -, -, countdown
//   kMergedWithPrevious  the-, final-, -, countdown
//   kMergedWithNext      the, -final, -, -countdown
//   kContiguous          the, -, final, --, countdown
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// By the name used in tokenizer.json.
std::optional<SplitBehavior> SplitBehaviorFromName(std::string_view name);

// Cuts `text`; with `invert` the parts between the matches are the delimiters. Parts may be empty.
Status SplitText(const Regex& pattern, SplitBehavior behavior, bool invert, std::string_view text,
                 std::vector<TextSpan>* parts);

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_SPLIT_H_
