// The "decoder" of tokenizer.json: how tokens become text again. A chain of at most four parts:
//   steps on each token     Replace, Strip, Metaspace
//   bytes                   ByteLevel (every character is a byte) or ByteFallback ("<0xE2>" is one)
//   steps on each token     Replace, Strip, Metaspace (after ByteFallback)
//   steps on the text       Fuse (joins), then Strip at its beginning
// Other orders are errors. The state of a decoding is in text/tokenizer/detokenizer.h.
//
// Immutable after Parse(); thread-safe.
#ifndef TALON_TEXT_TOKENIZER_TEXT_DECODER_H_
#define TALON_TEXT_TOKENIZER_TEXT_DECODER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "text/tokenizer/json_fields.h"

namespace talon {

// One step on the text of a token; see text_decoder.cc for the kinds.
class DecoderStep {
 public:
  virtual ~DecoderStep() = default;
  virtual void Apply(bool first_token, std::string* text) const = 0;
};

class TextDecoder {
 public:
  enum class Bytes { kNone, kByteLevel, kByteFallback };
  // Up to `count` leading characters `content` are removed from the whole text.
  struct LeadingStrip {
    std::string content;
    size_t count = 0;
  };

  // No decoder: tokens are joined by spaces.
  TextDecoder() : separator_(" ") {}
  static Result<TextDecoder> Parse(const Json& value, const std::string& where);

  Bytes bytes() const { return bytes_; }
  const std::string& separator() const { return separator_; }
  const LeadingStrip& leading_strip() const { return leading_strip_; }

  // The token after the first steps; with ByteLevel, its bytes, which need not be UTF-8.
  std::string TokenText(std::string_view token, bool first_token) const;
  // The byte that a text like "<0xE2>" stands for.
  static std::optional<char> FallbackByte(std::string_view text);
  // The steps after ByteFallback.
  void Finish(bool first_token, std::string* text) const;

 private:
  using Steps = std::vector<std::unique_ptr<DecoderStep>>;
  Status AddStep(const std::string& type, const JsonFields& fields);
  Status AddStrip(const JsonFields& fields);

  std::string separator_;
  Steps token_steps_;
  Steps finish_steps_;
  Bytes bytes_ = Bytes::kNone;
  bool fused_ = false;
  LeadingStrip leading_strip_;
};

}  // namespace talon

#endif  // TALON_TEXT_TOKENIZER_TEXT_DECODER_H_
