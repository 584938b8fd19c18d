// Small tokenizer.json contents for tests, one for each family of tokenizers.
#ifndef TALON_TEXT_TOKENIZER_TEST_TOKENIZERS_H_
#define TALON_TEXT_TOKENIZER_TEST_TOKENIZERS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json_fwd.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

using MergeList = std::vector<std::pair<std::string, std::string>>;

// GPT-2's kind: ids 0..255 are the bytes in order, then one token for each merge, in order.
Json ByteLevelJson(const MergeList& merges);

// Llama 2's kind: <unk> 0, <s> 1, </s> 2, the bytes 3..258, then `characters` and one token for
// each merge. "▁" stands for a space and is put before the text.
Json SentencePieceJson(const std::vector<std::string>& characters, const MergeList& merges);

Json AddedTokenJson(int id, const std::string& content, bool special);

// Fails the test if it does not load.
std::unique_ptr<Tokenizer> ParseTokenizer(const Json& json);

// The tokens of a text as they are spelled in the file.
std::vector<std::string> EncodeToStrings(const Tokenizer& tokenizer, std::string_view text);

// The tokenizer of the bundled model.
std::string TinyTokenizerPath();

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_TEST_TOKENIZERS_H_
