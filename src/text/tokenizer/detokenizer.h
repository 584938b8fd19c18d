// Text from tokens, one token at a time.
#ifndef TALON_TEXT_TOKENIZER_DETOKENIZER_H_
#define TALON_TEXT_TOKENIZER_DETOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace talon {

class Tokenizer;

// The pieces from Push() and Flush() are valid UTF-8 each, and together they are exactly
// Tokenizer::Decode() of all the ids: bytes wait until their character is whole, and bytes that
// form none come out as U+FFFD.
//
// With a byte-fallback decoder a run of byte tokens is kept back until it ends: one wrong byte
// turns the whole run into U+FFFD, so none of it is certain before.
//
// A copy is a snapshot, to go back to after tokens that were not accepted; it holds a few bytes.
// Not thread-safe. The tokenizer must outlive it.
class StreamDecoder {
 public:
  // Special tokens in `shown` are not skipped.
  StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens,
                std::vector<int32_t> shown = {});

  // The ids to come go on after `prompt`: what a decoder does to the beginning of a text, such as
  // removing a space, happens to the first text of prompt and ids together.
  // REQUIRES: nothing was pushed.
  void ContinueAfter(std::span<const int32_t> prompt);

  // A space at the beginning of the text is kept, as if text came before it.
  void KeepFirstSpace();

  // The text that became certain with this token, often empty. Ids outside of the vocabulary give
  // no text.
  std::string Push(int32_t id);
  // What was kept back. Call it once, after the last token.
  std::string Flush();

 private:
  void AddBytes(std::string_view bytes, std::string* out);
  void FinishByteRun(std::string* out);
  void EmitToken(std::string text, std::string* out);
  void EmitText(std::string_view text, std::string* out);

  const Tokenizer* tokenizer_;
  bool skip_special_tokens_;
  std::vector<int32_t> shown_;
  bool any_token_ = false;    // a token was seen
  bool any_emitted_ = false;  // a token's text was finished
  size_t strip_left_;         // leading characters that may still be removed
  std::string pending_;       // ByteLevel: a part of a character; ByteFallback: the run of bytes
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_DETOKENIZER_H_
