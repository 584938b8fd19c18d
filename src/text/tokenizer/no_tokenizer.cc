// The stub for builds without PCRE2 or utf8proc: no tokenizer can be loaded, so the other functions
// are never called.
#include "text/tokenizer/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace talon {

Status Tokenizer::Supported() {
  return Unimplemented(
      "this build has no tokenizer ({} not found when it was built); give token ids "
      "(--prompt-tokens, or \"tokens\" in a file of prompts)",
      TALON_MISSING_TEXT_PARTS);
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string&) { return Supported(); }
Result<std::unique_ptr<Tokenizer>> Tokenizer::Parse(std::string_view, const std::string&) {
  return Supported();
}
Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view, bool) const { return Supported(); }
Result<std::vector<int32_t>> Tokenizer::EncodeMarked(std::string_view, std::string_view,
                                                     bool) const {
  return Supported();
}
std::string Tokenizer::Decode(std::span<const int32_t>, bool) const { return ""; }
std::optional<std::string_view> Tokenizer::Token(int32_t) const { return std::nullopt; }
std::string Tokenizer::TokenBytes(int32_t) const { return ""; }
bool Tokenizer::IsSpecial(int32_t) const { return false; }

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens,
                             std::vector<int32_t>)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens), strip_left_(0) {}
void StreamDecoder::ContinueAfter(std::span<const int32_t>) {}
std::string StreamDecoder::Push(int32_t) { return ""; }
std::string StreamDecoder::Flush() { return ""; }

}  // namespace talon
