#include "text/tokenizer/normalizer.h"

#include <utility>

#include "base/json.h"
#include "text/limits.h"
#include "text/regex/regex.h"
#include "text/tokenizer/json_fields.h"
#include "text/unicode.h"

namespace talon {
namespace {

class UnicodeForm : public NormalizerStep {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  Status Apply(std::string* text) const override {
    *text = NormalizeUnicode(*text, form_);
    return OkStatus();
  }

 private:
  NormalForm form_;
};

class Lowercase : public NormalizerStep {
 public:
  Status Apply(std::string* text) const override {
    *text = LowercaseUnicode(*text);
    return OkStatus();
  }
};

class Replace : public NormalizerStep {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Apply(std::string* text) const override {
    return pattern_.ReplaceAll(content_, MaxGrownBytes(text->size()), text);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Status Apply(std::string* text) const override {
    if (!text->empty()) text->insert(0, prefix_);
    return OkStatus();
  }

 private:
  std::string prefix_;
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(std::string* text) const override {
    size_t begin = 0;
    for (size_t next = 0; left_ && begin < text->size(); begin = next) {
      if (!IsWhitespace(NextCodePoint(*text, &next))) break;
    }
    size_t end = text->size();
    while (right_ && end > begin) {
      const size_t last = PreviousCharacter(*text, end);
      size_t next = last;
      if (!IsWhitespace(NextCodePoint(*text, &next))) break;
      end = last;
    }
    *text = text->substr(begin, end - begin);
    return OkStatus();
  }

 private:
  bool left_;
  bool right_;
};

using StepResult = Result<std::unique_ptr<NormalizerStep>>;

StepResult ParseReplace(const JsonFields& fields) {
  TALON_ASSIGN_OR_RETURN(const Json* pattern, fields.Object("pattern"));
  TALON_ASSIGN_OR_RETURN(Regex regex, Regex::FromJson(*pattern, fields.Where("pattern")));
  TALON_ASSIGN_OR_RETURN(std::string content, fields.String("content"));
  return StepResult(std::make_unique<Replace>(std::move(regex), std::move(content)));
}

StepResult ParseStrip(const JsonFields& fields) {
  TALON_ASSIGN_OR_RETURN(const bool left, fields.Bool("strip_left", false));
  TALON_ASSIGN_OR_RETURN(const bool right, fields.Bool("strip_right", false));
  return StepResult(std::make_unique<Strip>(left, right));
}

StepResult ParseStep(const std::string& type, const JsonFields& fields) {
  if (type == "NFC") return StepResult(std::make_unique<UnicodeForm>(NormalForm::kNfc));
  if (type == "NFD") return StepResult(std::make_unique<UnicodeForm>(NormalForm::kNfd));
  if (type == "NFKC") return StepResult(std::make_unique<UnicodeForm>(NormalForm::kNfkc));
  if (type == "NFKD") return StepResult(std::make_unique<UnicodeForm>(NormalForm::kNfkd));
  if (type == "Lowercase") return StepResult(std::make_unique<Lowercase>());
  if (type == "Replace") return ParseReplace(fields);
  if (type == "Strip") return ParseStrip(fields);
  if (type == "Prepend") {
    TALON_ASSIGN_OR_RETURN(std::string prefix, fields.String("prepend"));
    return StepResult(std::make_unique<Prepend>(std::move(prefix)));
  }
  return Unimplemented("{}: normalizer \"{}\" is not supported", fields.where(), type);
}

}  // namespace

Result<Normalizer> Normalizer::Parse(const Json& value, const std::string& where) {
  Normalizer normalizer;
  const auto add = [&](const std::string& type, const JsonFields& fields) -> Status {
    TALON_ASSIGN_OR_RETURN(auto step, ParseStep(type, fields));
    normalizer.steps_.push_back(std::move(step));
    return OkStatus();
  };
  TALON_RETURN_IF_ERROR(VisitComponents(value, where, "normalizers", add));
  return normalizer;
}

Status Normalizer::Apply(std::string* text) const {
  const size_t limit = MaxGrownBytes(text->size());
  for (const auto& step : steps_) {
    TALON_RETURN_IF_ERROR(step->Apply(text));
    if (text->size() > limit) {
      return ResourceExhausted("normalizer: text grows beyond {} bytes", limit);
    }
  }
  return OkStatus();
}

}  // namespace talon
