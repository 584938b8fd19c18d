#include "text/control_tokens.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "text/chat_options.h"
#include "text/chat_template.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace talon {
namespace {

// Noncharacters, which Unicode leaves to programs for uses like this one.
constexpr char32_t kFirstMark = 0xFDD0;
constexpr char32_t kLastMark = 0xFDEF;

// Texts of messages that no template changes, and that occur nowhere else.
constexpr const char* kProbes[] = {"7301946250", "7301946251", "7301946252"};

// What the template makes of one message for each role, without a generation prompt; empty if it
// refuses.
std::string RenderProbes(const ChatTemplate& chat_template,
                         std::initializer_list<const char*> roles) {
  OrderedJson messages = OrderedJson::array();
  for (const char* role : roles) {
    messages.push_back({{"role", role}, {"content", kProbes[messages.size()]}});
  }
  const auto text = chat_template.Render(messages, {.add_generation_prompt = false});
  return text.ok() ? *text : "";
}

// What stands around a conversation's turns.
struct Surroundings {
  std::string of_turns;      // before and after whole turns
  std::string of_assistant;  // between the user's text and the assistant's
};

Surroundings FindSurroundings(const ChatTemplate& chat_template) {
  Surroundings out{.of_turns = RenderProbes(chat_template, {"system", "user"})};
  const std::string text = RenderProbes(chat_template, {"user", "assistant", "user"});
  const size_t user = text.find(kProbes[0]);
  const size_t assistant = text.find(kProbes[1]);
  if (user == std::string::npos || assistant == std::string::npos || assistant < user) return out;
  out.of_turns += text.substr(0, user) + text.substr(assistant);
  out.of_assistant = text.substr(user, assistant - user);
  return out;
}

bool Holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

bool AnyHolds(const std::vector<std::string>& texts, const std::string& part) {
  return std::ranges::any_of(texts, [&](const std::string& text) { return Holds(text, part); });
}

// Some vocabularies have added tokens for line ends, blanks and words; templates write those too.
bool IsOrdinaryText(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, &offset);
    const bool is_word = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (!is_word && !IsWhitespace(c)) return false;
  }
  return true;
}

size_t FirstCharacterSize(std::string_view text) {
  size_t size = 0;
  NextCodePoint(text, &size);
  return size;
}

// Whether some string of the value, or key, passes the test.
template <typename Test>
bool AnyText(const OrderedJson& value, const Test& test) {
  if (value.is_string()) return test(value.get_ref<const std::string&>());
  if (value.is_array()) {
    return std::ranges::any_of(value, [&](const auto& item) { return AnyText(item, test); });
  }
  if (!value.is_object()) return false;
  return std::ranges::any_of(value.get_ref<const OrderedJson::object_t&>(), [&](const auto& entry) {
    return test(entry.first) || AnyText(entry.second, test);
  });
}

// A character that occurs in none of the values.
Result<std::string> UnusedMark(std::initializer_list<OrderedJson*> values) {
  for (char32_t candidate = kFirstMark; candidate <= kLastMark; ++candidate) {
    std::string mark;
    AppendUtf8(candidate, &mark);
    const auto uses = [&](const OrderedJson* value) {
      return AnyText(*value, [&](const std::string& text) { return Holds(text, mark); });
    };
    if (std::ranges::none_of(values, uses)) return mark;
  }
  return InvalidArgument("special tokens beside every noncharacter of U+FDD0 to U+FDEF");
}

}  // namespace

void ControlTokens::Add(const std::string& spelling, bool separates_turns) {
  if (spelling.empty()) return;
  spellings_.Insert(spelling, 1);
  if (separates_turns) separators_.Insert(spelling, 1);
  longest_ = std::max(longest_, spelling.size());
}

ControlTokens ControlTokens::Special(const Tokenizer& tokenizer) {
  ControlTokens control;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (token.special) control.Add(token.content, /*separates_turns=*/false);
  }
  return control;
}

ControlTokens ControlTokens::Of(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const Surroundings written = FindSurroundings(chat_template);
  const std::vector<std::string> sought = chat_template.SoughtTexts();
  ControlTokens control;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    const std::string& text = token.content;
    if (!token.special && IsOrdinaryText(text)) continue;
    const bool separates = Holds(written.of_turns, text);
    const bool structural = token.special || Holds(written.of_assistant, text);
    if (separates || (structural && !AnyHolds(sought, text))) control.Add(text, separates);
  }
  return control;
}

bool ControlTokens::CouldSeparateTurns(const OrderedJson& value) const {
  return AnyText(value, [this](const std::string& text) {
    return std::ranges::any_of(
        text, [this](char byte) { return separators_.HasPrefix(std::string_view(&byte, 1)); });
  });
}

int ControlTokens::CountSeparators(std::string_view text) const {
  int count = 0;
  for (size_t at = 0; at < text.size();) {
    size_t length = 1;
    if (separators_.LongestAt(text.substr(at), &length) >= 0) ++count;
    at += length;
  }
  return count;
}

// A mark belongs after the first character of each spelling, and of each beginning of one that ends
// the text: the template may put the rest behind it.
template <typename Visit>
void ControlTokens::ForEachPlace(std::string_view text, const Visit& visit) const {
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view rest = text.substr(at);
    size_t length = 0;
    const bool whole = spellings_.LongestAt(rest, &length) >= 0;
    if (whole || (rest.size() < longest_ && spellings_.HasPrefix(rest))) {
      visit(at + FirstCharacterSize(rest));
    }
  }
}

bool ControlTokens::OccursIn(const OrderedJson& value) const {
  return AnyText(value, [this](const std::string& text) {
    bool found = false;
    ForEachPlace(text, [&](size_t) { found = true; });
    return found;
  });
}

void ControlTokens::MarkText(std::string_view mark, std::string* text) const {
  std::string marked;
  size_t begin = 0;
  ForEachPlace(*text, [&](size_t place) {
    marked.append(*text, begin, place - begin).append(mark);
    begin = place;
  });
  if (begin > 0) *text = marked.append(*text, begin);
}

void ControlTokens::MarkAll(std::string_view mark, OrderedJson* value) const {
  if (value->is_string()) return MarkText(mark, &value->get_ref<std::string&>());
  if (value->is_array()) {
    for (OrderedJson& item : *value) MarkAll(mark, &item);
  }
  if (!value->is_object()) return;
  OrderedJson::object_t marked;
  for (auto& [name, item] : value->get_ref<OrderedJson::object_t&>()) {
    std::string key = name;
    MarkText(mark, &key);
    MarkAll(mark, &item);
    marked.emplace_back(std::move(key), std::move(item));  // unlike emplace: no search for the key
  }
  *value = std::move(marked);
}

Result<std::string> ControlTokens::Mark(std::initializer_list<OrderedJson*> values) const {
  const auto occurs = [this](const OrderedJson* value) { return OccursIn(*value); };
  if (spellings_.empty() || std::ranges::none_of(values, occurs)) return std::string();
  TALON_ASSIGN_OR_RETURN(std::string mark, UnusedMark(values));
  for (OrderedJson* value : values) MarkAll(mark, value);
  return mark;
}

Result<MarkedText> ControlTokens::Mark(std::string text) const {
  OrderedJson value = std::move(text);
  TALON_ASSIGN_OR_RETURN(std::string mark, Mark({&value}));
  return MarkedText{.text = std::move(value.get_ref<std::string&>()), .mark = std::move(mark)};
}

std::optional<int32_t> EndOfTurn(const ChatTemplate& chat_template, const Tokenizer& tokenizer) {
  const std::string text = RenderProbes(chat_template, {"user", "assistant"});
  const size_t found = text.find(kProbes[1]);
  if (found == std::string::npos) return std::nullopt;
  const std::string_view rest =
      std::string_view(text).substr(found + std::string_view(kProbes[1]).size());
  const AddedToken* longest = nullptr;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    if (!token.special && IsOrdinaryText(token.content)) continue;
    if (token.content.empty() || !rest.starts_with(token.content)) continue;
    if (longest == nullptr || token.content.size() > longest->content.size()) longest = &token;
  }
  return longest == nullptr ? std::nullopt : std::optional<int32_t>(longest->id);
}

}  // namespace talon
