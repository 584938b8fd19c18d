#include "text/tokenizer/detokenizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/tokenizer/text_decoder.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace talon {

StreamDecoder::StreamDecoder(const Tokenizer* tokenizer, bool skip_special_tokens,
                             std::vector<int32_t> shown)
    : tokenizer_(tokenizer),
      skip_special_tokens_(skip_special_tokens),
      shown_(std::move(shown)),
      strip_left_(tokenizer->decoder().leading_strip().count) {}

void StreamDecoder::ContinueAfter(std::span<const int32_t> prompt) {
  for (const int32_t id : prompt) {
    if (!Push(id).empty()) break;  // what follows is inside of the text
  }
  Flush();
}

void StreamDecoder::KeepFirstSpace() {
  any_token_ = true;
  any_emitted_ = true;
  strip_left_ = 0;
}

std::string StreamDecoder::Push(int32_t id) {
  const std::optional<std::string_view> token = tokenizer_->Token(id);
  const bool skipped = skip_special_tokens_ && tokenizer_->IsSpecial(id) &&
                       std::ranges::find(shown_, id) == shown_.end();
  if (!token || skipped) return {};
  const TextDecoder& decoder = tokenizer_->decoder();
  std::string text = decoder.TokenText(*token, !any_token_);
  any_token_ = true;
  std::string out;
  if (decoder.bytes() == TextDecoder::Bytes::kByteLevel) {
    AddBytes(text, &out);
    return out;
  }
  if (decoder.bytes() == TextDecoder::Bytes::kByteFallback) {
    if (const std::optional<char> byte = TextDecoder::FallbackByte(text)) {
      pending_.push_back(*byte);
      return out;
    }
    FinishByteRun(&out);
  }
  EmitToken(std::move(text), &out);
  return out;
}

std::string StreamDecoder::Flush() {
  std::string out;
  if (tokenizer_->decoder().bytes() == TextDecoder::Bytes::kByteLevel) {
    if (!pending_.empty()) EmitText(kReplacementCharacter, &out);
    pending_.clear();
  } else {
    FinishByteRun(&out);
  }
  return out;
}

void StreamDecoder::AddBytes(std::string_view bytes, std::string* out) {
  pending_.append(bytes);
  std::string text;
  size_t used = 0;
  while (used < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(used);
    const Utf8Front front = InspectUtf8(rest);
    if (front.kind == Utf8Front::kTruncated) break;
    text.append(front.kind == Utf8Front::kComplete ? rest.substr(0, front.length)
                                                   : kReplacementCharacter);
    used += front.length;
  }
  pending_.erase(0, used);
  EmitText(text, out);
}

void StreamDecoder::FinishByteRun(std::string* out) {
  if (pending_.empty()) return;
  const std::string run = std::exchange(pending_, {});
  if (!FindInvalidUtf8(run)) {
    EmitToken(run, out);
    return;
  }
  for (size_t i = 0; i < run.size(); ++i) EmitToken(std::string(kReplacementCharacter), out);
}

void StreamDecoder::EmitToken(std::string text, std::string* out) {
  const TextDecoder& decoder = tokenizer_->decoder();
  decoder.Finish(!any_emitted_, &text);
  if (any_emitted_) out->append(decoder.separator());
  any_emitted_ = true;
  EmitText(text, out);
}

void StreamDecoder::EmitText(std::string_view text, std::string* out) {
  const std::string& content = tokenizer_->decoder().leading_strip().content;
  while (strip_left_ > 0 && !text.empty()) {
    if (text.starts_with(content)) {
      text.remove_prefix(content.size());
      --strip_left_;
    } else {
      strip_left_ = 0;
    }
  }
  out->append(text);
}

}  // namespace talon
