// Text to tokens and back, as described by a tokenizer.json of the Hugging Face library: byte-level
// BPE (GPT-2, Llama 3, Qwen) and SentencePiece-style BPE (Llama 2, Mistral, Gemma). The encoding
// is that library's, token by token; a file that asks for something not supported fails to load
// with a message that names it. "truncation" and "padding" are ignored: they belong to batches for
// training.
//
// Immutable after loading; all functions are thread-safe.
#ifndef TALON_TEXT_TOKENIZER_TOKENIZER_H_
#define TALON_TEXT_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/marked_text.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/text_decoder.h"

namespace talon {

class Tokenizer {
 public:
  // OK, or why this build can load none.
  static Status Supported();
  // `path` names the tokenizer.json itself. The end token is that of tokenizer_config.json or
  // special_tokens_map.json beside it.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // From the file's text; `what` names it in messages.
  static Result<std::unique_ptr<Tokenizer>> Parse(std::string_view json, const std::string& what);

  // Tokens of `text`; added tokens written out in it (<|eot_id|>) are recognised. With
  // `add_special_tokens` the post-processor's tokens, such as the one that begins a text, are
  // added. Fails on text that is not UTF-8 (naming the byte) or longer than kMaxInputBytes.
  Result<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // The same, but added tokens are not recognised where a mark stands in them.
  Result<std::vector<int32_t>> Encode(const MarkedText& text, bool add_special_tokens) const {
    return EncodeMarked(text.text, text.mark, add_special_tokens);
  }

  // Valid UTF-8 whatever the ids; those outside of the vocabulary are left out.
  std::string Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // The highest id + 1.
  int vocab_size() const { return static_cast<int>(tokens_.size()); }
  std::optional<int32_t> TokenId(std::string_view token) const;
  // The token as it is spelled in the file ("Ġthe", "▁the"); nothing if no token has this id.
  std::optional<std::string_view> Token(int32_t id) const;
  // The bytes that the token adds to a text, other than at its beginning (" the"); they need not be
  // UTF-8. Empty if no token has this id.
  std::string TokenBytes(int32_t id) const;
  // Whether skip_special_tokens leaves it out.
  bool IsSpecial(int32_t id) const;

  const TextDecoder& decoder() const { return decoder_; }
  const std::vector<AddedToken>& added_tokens() const { return added_tokens_.tokens(); }
  // The token that the model's files say ends a text; it need not be config.json's.
  std::optional<int32_t> eos_token_id() const { return eos_token_id_; }

 private:
  explicit Tokenizer(BpeModel model) : model_(std::move(model)) {}
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  Status ParseComponents(const Json& root, const std::string& what);
  Status IndexTokens(const std::string& what);
  Status IndexToken(const std::string& text, int32_t id, const std::string& what);
  Status CheckPostProcessor(const std::string& what) const;

  struct Encoding;  // one run of EncodeMarked()

  Result<std::vector<int32_t>> EncodeMarked(std::string_view text, std::string_view mark,
                                            bool add_special_tokens) const;

  // A part of the input without unnormalised added tokens.
  Status EncodePart(std::string_view text, bool starts_input, Encoding* encoding) const;

  Normalizer normalizer_;
  AddedTokens added_tokens_;
  PreTokenizer pre_tokenizer_;
  BpeModel model_;
  PostProcessor post_processor_;
  TextDecoder decoder_;
  std::vector<std::string_view> tokens_;  // by id, null data if none; owned by the parts above
  std::vector<bool> special_;             // by id
  StringMap<int32_t> added_ids_;          // by content
  std::optional<int32_t> eos_token_id_;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_TOKENIZER_H_
