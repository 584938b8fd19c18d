#include "text/tokenizer/text_decoder.h"

#include <utility>

#include "base/json.h"
#include "text/limits.h"
#include "text/regex/regex.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/metaspace.h"
#include "text/unicode.h"

namespace talon {
namespace {

class Replace : public DecoderStep {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Apply(bool first_token, std::string* text) const override {
    // A pattern that runs away on this token leaves it as it is: text still comes out.
    const Status ignored = pattern_.ReplaceAll(content_, MaxGrownBytes(text->size()), text);
    static_cast<void>(ignored);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Strip : public DecoderStep {
 public:
  Strip(std::string content, size_t start, size_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(bool first_token, std::string* text) const override {
    std::string_view rest = *text;
    for (size_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
      rest.remove_prefix(content_.size());
    }
    for (size_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
      rest.remove_suffix(content_.size());
    }
    *text = std::string(rest);
  }

 private:
  std::string content_;
  size_t start_;
  size_t stop_;
};

class Metaspace : public DecoderStep {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}
  void Apply(bool first_token, std::string* text) const override {
    const bool drop = first_token && options_.prepend != MetaspaceOptions::Prepend::kNever;
    std::string out;
    for (size_t offset = 0; offset < text->size();) {
      const std::string_view rest = std::string_view(*text).substr(offset);
      if (rest.starts_with(options_.replacement)) {
        if (!drop) out.push_back(' ');
        offset += options_.replacement.size();
      } else {
        out.push_back(rest[0]);
        ++offset;
      }
    }
    *text = std::move(out);
  }

 private:
  MetaspaceOptions options_;
};

struct StripFields {
  std::string content;
  size_t start = 0;
  size_t stop = 0;
};

Result<StripFields> ParseStrip(const JsonFields& fields) {
  StripFields strip;
  TALON_ASSIGN_OR_RETURN(strip.content, fields.String("content"));
  if (!SingleCodePoint(strip.content)) {
    return InvalidArgument("{}: \"{}\" is not one character", fields.Where("content"),
                           strip.content);
  }
  for (const auto& [key, target] : {std::pair{"start", &strip.start}, {"stop", &strip.stop}}) {
    TALON_ASSIGN_OR_RETURN(const int64_t count, fields.Integer(key));
    if (count < 0) return InvalidArgument("{}: {} is negative", fields.Where(key), count);
    *target = static_cast<size_t>(count);
  }
  return strip;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

Status TextDecoder::AddStrip(const JsonFields& fields) {
  TALON_ASSIGN_OR_RETURN(StripFields strip, ParseStrip(fields));
  if (!fused_) {
    Steps& steps = bytes_ == Bytes::kNone ? token_steps_ : finish_steps_;
    steps.push_back(std::make_unique<Strip>(std::move(strip.content), strip.start, strip.stop));
    return OkStatus();
  }
  if (strip.stop != 0 || leading_strip_.count != 0) {
    return Unimplemented("{}: after Fuse only one Strip is supported, with stop 0", fields.where());
  }
  leading_strip_ = {std::move(strip.content), strip.start};
  return OkStatus();
}

Status TextDecoder::AddStep(const std::string& type, const JsonFields& fields) {
  if (type == "Fuse") {
    fused_ = true;
    return OkStatus();
  }
  if (type == "Strip") return AddStrip(fields);
  const bool is_bytes = type == "ByteLevel" || type == "ByteFallback";
  const bool is_step = type == "Replace" || type == "Metaspace";
  if (!is_bytes && !is_step) {
    return Unimplemented("{}: decoder \"{}\" is not supported", fields.where(), type);
  }
  if (fused_ || (is_bytes && bytes_ != Bytes::kNone)) {
    return Unimplemented("{}: decoder \"{}\" is not supported at this place of the chain",
                         fields.where(), type);
  }
  if (is_bytes) {
    bytes_ = type == "ByteLevel" ? Bytes::kByteLevel : Bytes::kByteFallback;
    fused_ = bytes_ == Bytes::kByteLevel;
    return OkStatus();
  }
  Steps& steps = bytes_ == Bytes::kNone ? token_steps_ : finish_steps_;
  if (type == "Metaspace") {
    TALON_ASSIGN_OR_RETURN(MetaspaceOptions options, MetaspaceOptions::Parse(fields));
    steps.push_back(std::make_unique<Metaspace>(std::move(options)));
    return OkStatus();
  }
  TALON_ASSIGN_OR_RETURN(const Json* pattern, fields.Object("pattern"));
  TALON_ASSIGN_OR_RETURN(Regex regex, Regex::FromJson(*pattern, fields.Where("pattern")));
  TALON_ASSIGN_OR_RETURN(std::string content, fields.String("content"));
  steps.push_back(std::make_unique<Replace>(std::move(regex), std::move(content)));
  return OkStatus();
}

Result<TextDecoder> TextDecoder::Parse(const Json& value, const std::string& where) {
  TextDecoder decoder;
  decoder.separator_.clear();
  const auto add = [&](const std::string& type, const JsonFields& fields) {
    return decoder.AddStep(type, fields);
  };
  TALON_RETURN_IF_ERROR(VisitComponents(value, where, "decoders", add));
  return decoder;
}

std::string TextDecoder::TokenText(std::string_view token, bool first_token) const {
  std::string text(token);
  for (const auto& step : token_steps_) step->Apply(first_token, &text);
  if (bytes_ != Bytes::kByteLevel) return text;
  // A token with a character that does not encode a byte is kept as it is.
  return BytesFromByteLevel(text).value_or(text);
}

std::optional<char> TextDecoder::FallbackByte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = HexValue(text[3]);
  const int low = HexValue(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

void TextDecoder::Finish(bool first_token, std::string* text) const {
  for (const auto& step : finish_steps_) step->Apply(first_token, text);
}

}  // namespace talon
