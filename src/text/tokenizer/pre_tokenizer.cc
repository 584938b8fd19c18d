#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/limits.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/json_fields.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/split.h"

namespace talon {
namespace {

// GPT-2's words: contractions, letters, digits, other signs, blanks.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

class Split : public PreTokenizerStep {
 public:
  Split(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status Apply(WordList* list) const override {
    std::vector<WordList::Word> words;
    std::vector<TextSpan> parts;
    for (const WordList::Word& word : list->words) {
      TALON_RETURN_IF_ERROR(SplitText(pattern_, behavior_, invert_, list->WordText(word), &parts));
      for (const TextSpan& part : parts) {
        if (part.size() == 0) continue;
        const size_t offset = word.span.begin;
        words.push_back(
            {{offset + part.begin, offset + part.end}, word.starts_input && part.begin == 0});
      }
    }
    list->words = std::move(words);
    return OkStatus();
  }

 private:
  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Rewrites every word: write(word, text) appends the word's new text.
template <typename Write>
void RewriteWords(WordList* list, const Write& write) {
  std::string text;
  text.reserve(list->text.size());
  for (WordList::Word& word : list->words) {
    const size_t begin = text.size();
    write(word, &text);
    word.span = {begin, text.size()};
  }
  list->text = std::move(text);
}

class PrefixSpace : public PreTokenizerStep {
 public:
  Status Apply(WordList* list) const override {
    RewriteWords(list, [list](const WordList::Word& word, std::string* out) {
      const std::string_view text = list->WordText(word);
      if (!text.starts_with(' ')) out->push_back(' ');
      out->append(text);
    });
    return OkStatus();
  }
};

class SpellBytes : public PreTokenizerStep {
 public:
  Status Apply(WordList* list) const override {
    RewriteWords(list, [list](const WordList::Word& word, std::string* out) {
      AppendByteLevel(list->WordText(word), out);
    });
    return OkStatus();
  }
};

class Metaspace : public PreTokenizerStep {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  Status Apply(WordList* list) const override {
    RewriteWords(list, [&](const WordList::Word& word, std::string* out) {
      WriteWord(list->WordText(word), word.starts_input, out);
    });
    if (options_.split) SplitBeforeReplacement(list);
    return OkStatus();
  }

 private:
  void WriteWord(std::string_view text, bool starts_input, std::string* out) const {
    using Prepend = MetaspaceOptions::Prepend;
    const bool wanted = options_.prepend == Prepend::kAlways ||
                        (options_.prepend == Prepend::kFirst && starts_input);
    const bool present = text.starts_with(' ') || text.starts_with(options_.replacement);
    if (wanted && !present) out->append(options_.replacement);
    for (const char c : text) {
      if (c == ' ') {
        out->append(options_.replacement);
      } else {
        out->push_back(c);
      }
    }
  }

  void SplitBeforeReplacement(WordList* list) const {
    std::vector<WordList::Word> words;
    for (const WordList::Word& word : list->words) {
      const std::string_view text = list->WordText(word);
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find(options_.replacement, begin + 1), text.size());
        words.push_back(
            {{word.span.begin + begin, word.span.begin + end}, word.starts_input && begin == 0});
        begin = end;
      }
    }
    list->words = std::move(words);
  }

  MetaspaceOptions options_;
};

using Steps = std::vector<std::unique_ptr<PreTokenizerStep>>;

Status AddSplit(std::string_view pattern, SplitBehavior behavior, bool invert, Steps* steps) {
  TALON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
  steps->push_back(std::make_unique<Split>(std::move(regex), behavior, invert));
  return OkStatus();
}

Result<SplitBehavior> ParseBehavior(const JsonFields& fields) {
  TALON_ASSIGN_OR_RETURN(const std::string name, fields.String("behavior"));
  const std::optional<SplitBehavior> behavior = SplitBehaviorFromName(name);
  if (!behavior) {
    return InvalidArgument("{}: unknown behavior \"{}\"", fields.Where("behavior"), name);
  }
  return *behavior;
}

Status AddParsedSplit(const JsonFields& fields, Steps* steps) {
  TALON_ASSIGN_OR_RETURN(const Json* pattern, fields.Object("pattern"));
  TALON_ASSIGN_OR_RETURN(Regex regex, Regex::FromJson(*pattern, fields.Where("pattern")));
  TALON_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(fields));
  TALON_ASSIGN_OR_RETURN(const bool invert, fields.Bool("invert", false));
  steps->push_back(std::make_unique<Split>(std::move(regex), behavior, invert));
  return OkStatus();
}

Status AddByteLevel(const JsonFields& fields, Steps* steps) {
  TALON_ASSIGN_OR_RETURN(const bool add_prefix_space, fields.Bool("add_prefix_space", true));
  TALON_ASSIGN_OR_RETURN(const bool use_regex, fields.Bool("use_regex", true));
  if (add_prefix_space) steps->push_back(std::make_unique<PrefixSpace>());
  if (use_regex) {
    TALON_RETURN_IF_ERROR(AddSplit(kGpt2Pattern, SplitBehavior::kIsolated, false, steps));
  }
  steps->push_back(std::make_unique<SpellBytes>());
  return OkStatus();
}

Status AddDigits(const JsonFields& fields, Steps* steps) {
  TALON_ASSIGN_OR_RETURN(const bool individual, fields.Bool("individual_digits", false));
  return AddSplit(R"(\p{N})", individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous,
                  false, steps);
}

Status AddPunctuation(const JsonFields& fields, Steps* steps) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (fields.Find("behavior") != nullptr) {
    TALON_ASSIGN_OR_RETURN(behavior, ParseBehavior(fields));
  }
  return AddSplit(R"([\p{P}!-/:-@\[-`{-~])", behavior, false, steps);
}

Status AddStep(const std::string& type, const JsonFields& fields, Steps* steps) {
  if (type == "Split") return AddParsedSplit(fields, steps);
  if (type == "ByteLevel") return AddByteLevel(fields, steps);
  if (type == "Digits") return AddDigits(fields, steps);
  if (type == "Punctuation") return AddPunctuation(fields, steps);
  if (type == "Metaspace") {
    TALON_ASSIGN_OR_RETURN(MetaspaceOptions options, MetaspaceOptions::Parse(fields));
    steps->push_back(std::make_unique<Metaspace>(std::move(options)));
    return OkStatus();
  }
  if (type == "Whitespace") {
    // Words and runs of other signs; unlike Split's, this \w has the joiners.
    return AddSplit(R"([\w\x{200c}\x{200d}]+|[^\w\x{200c}\x{200d}\s]+)", SplitBehavior::kRemoved,
                    true, steps);
  }
  if (type == "WhitespaceSplit") return AddSplit(R"(\s)", SplitBehavior::kRemoved, false, steps);
  return Unimplemented("{}: pre-tokenizer \"{}\" is not supported", fields.where(), type);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::Parse(const Json& value, const std::string& where) {
  PreTokenizer pre_tokenizer;
  const auto add = [&](const std::string& type, const JsonFields& fields) {
    return AddStep(type, fields, &pre_tokenizer.steps_);
  };
  TALON_RETURN_IF_ERROR(VisitComponents(value, where, "pretokenizers", add));
  return pre_tokenizer;
}

Status PreTokenizer::Apply(WordList* list) const {
  const size_t limit = MaxGrownBytes(list->text.size());
  for (const auto& step : steps_) {
    TALON_RETURN_IF_ERROR(step->Apply(list));
    if (list->text.size() > limit) {
      return ResourceExhausted("pre_tokenizer: text grows beyond {} bytes", limit);
    }
  }
  return OkStatus();
}

}  // namespace talon
