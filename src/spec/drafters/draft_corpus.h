// Reads the corpus of a lookup drafter (NGRAM, SUFFIX): a file with one document a line.
#ifndef TALON_SPEC_DRAFTERS_DRAFT_CORPUS_H_
#define TALON_SPEC_DRAFTERS_DRAFT_CORPUS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace talon {

// The tokens of a text, by the target's tokenizer.
using TextEncoder = std::function<Result<std::vector<int32_t>>(std::string_view)>;

// A line of JSON may be a text ("..." or {"prompt": "..."}) or token ids ([...] or
// {"tokens": [...]}); any other line is text as it stands. Empty lines are skipped. Errors name the
// file, the line and the value.
Result<std::vector<std::vector<int32_t>>> ReadDraftCorpus(const std::string& path, int vocab_size,
                                                          const TextEncoder& encode);

}  // namespace talon

#endif  // TALON_SPEC_DRAFTERS_DRAFT_CORPUS_H_
