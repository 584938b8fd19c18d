// Methods of str, dict, list and tuple. Those that would change a value do not exist, as in Jinja's
// immutable sandbox.
#include <algorithm>
#include <limits>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/builtins/replace.h"
#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

template <std::string (*map)(std::string_view)>
Result<Value> MapText(Runtime&, const Value& self, const CallArguments&) {
  return Value::String(map(self.str()));
}

template <bool left, bool right>
Result<Value> StripMethod(Runtime& runtime, const Value& self, const CallArguments& args) {
  const Value& chars = args.positional[0];
  const StripEnds ends{.left = left, .right = right};
  if (chars.is_undefined() || chars.is_none()) {
    return Value::String(std::string(Strip(self.str(), nullptr, ends)));
  }
  TALON_RETURN_IF_ERROR(StringArgument(chars, "strip: chars").status());
  TALON_RETURN_IF_ERROR(runtime.Charge(self.str().size() * (chars.str().size() / 32)));
  return Value::String(std::string(Strip(self.str(), &chars.str(), ends)));
}

// startswith and endswith: one string or a tuple of them.
template <bool at_start>
Result<Value> HasAffix(Runtime&, const Value& self, const CallArguments& args) {
  const Value& wanted = args.positional[0];
  const std::vector<Value> choices = wanted.is_tuple() ? wanted.items() : std::vector{wanted};
  for (const Value& choice : choices) {
    TALON_ASSIGN_OR_RETURN(const std::string_view affix, StringArgument(choice, "an affix"));
    const std::string& text = self.str();
    if (at_start ? text.starts_with(affix) : text.ends_with(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool at_start>
Result<Value> RemoveAffix(Runtime&, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string_view affix,
                         StringArgument(args.positional[0], "an affix"));
  std::string_view text = self.str();
  if (at_start && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!at_start && text.ends_with(affix)) text.remove_suffix(affix.size());
  return Value::String(std::string(text));
}

Status ChargeSearch(Runtime& runtime, const Value& self, std::string_view wanted) {
  return runtime.Charge(self.str().size() * (1 + wanted.size() / 32));
}

// In characters; -1 if there is none.
template <bool from_end>
Result<Value> Find(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string_view wanted, StringArgument(args.positional[0], "find"));
  TALON_RETURN_IF_ERROR(ChargeSearch(runtime, self, wanted));
  const std::string& text = self.str();
  const size_t found = from_end ? text.rfind(wanted) : text.find(wanted);
  if (found == std::string::npos) return Value::Int(-1);
  return Value::Int(CountCharacters(std::string_view(text).substr(0, found)));
}

Result<Value> CountText(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string_view wanted,
                         StringArgument(args.positional[0], "count"));
  TALON_RETURN_IF_ERROR(ChargeSearch(runtime, self, wanted));
  const std::string& text = self.str();
  if (wanted.empty()) return Value::Int(CountCharacters(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(wanted); at != std::string::npos;
       at = text.find(wanted, at + wanted.size())) {
    ++count;
  }
  return Value::Int(count);
}

Result<Value> JoinText(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::vector<Value> items, runtime.Iterate(args.positional[0]));
  TALON_RETURN_IF_ERROR(
      runtime.Charge(ExtentOf(args.positional[0]).bytes + items.size() * self.str().size()));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    TALON_ASSIGN_OR_RETURN(const std::string_view text, StringArgument(items[i], "join: an item"));
    if (i > 0) out += self.str();
    out += text;
  }
  return Value::String(std::move(out));
}

Result<Value> Replace(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string_view old_text,
                         StringArgument(args.positional[0], "replace: old"));
  TALON_ASSIGN_OR_RETURN(const std::string_view new_text,
                         StringArgument(args.positional[1], "replace: new"));
  TALON_ASSIGN_OR_RETURN(const int64_t count,
                         IntArgument(args.positional[2], -1, "replace: count"));
  return ReplaceText(runtime, {.text = self.str(), .old_text = old_text, .new_text = new_text},
                     count);
}

std::vector<Value> SplitAt(std::string_view text, std::string_view separator, int64_t limit) {
  std::vector<Value> parts;
  while (limit-- != 0) {
    const size_t found = text.find(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(Value::String(std::string(text.substr(0, found))));
    text.remove_prefix(found + separator.size());
  }
  parts.push_back(Value::String(std::string(text)));
  return parts;
}

std::vector<Value> SplitAtFromEnd(std::string_view text, std::string_view separator,
                                  int64_t limit) {
  std::vector<Value> parts;
  while (limit-- != 0) {
    const size_t found = text.rfind(separator);
    if (found == std::string_view::npos) break;
    parts.push_back(Value::String(std::string(text.substr(found + separator.size()))));
    text.remove_suffix(text.size() - found);
  }
  parts.push_back(Value::String(std::string(text)));
  std::reverse(parts.begin(), parts.end());
  return parts;
}

// At runs of white space, which also go from both ends.
std::vector<Value> SplitAtSpace(std::string_view text, int64_t limit) {
  std::vector<Value> parts;
  text = Strip(text, nullptr, {.right = false});
  while (!text.empty()) {
    size_t end = 0;
    if (limit-- == 0) {
      parts.push_back(Value::String(std::string(Strip(text, nullptr, {.left = false}))));
      return parts;
    }
    for (size_t next = 0; next < text.size(); end = next) {
      if (IsPythonSpace(NextCodePoint(text, &next))) break;
    }
    parts.push_back(Value::String(std::string(text.substr(0, end))));
    text = Strip(text.substr(end), nullptr, {.right = false});
  }
  return parts;
}

template <bool from_end>
Result<Value> Split(Runtime& runtime, const Value& self, const CallArguments& args) {
  constexpr size_t kBytesPerPart = 64;
  TALON_ASSIGN_OR_RETURN(int64_t limit, IntArgument(args.positional[1], -1, "split: maxsplit"));
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  const Value& separator = args.positional[0];
  const std::string& text = self.str();
  if (separator.is_undefined() || separator.is_none()) {
    if (from_end && limit != std::numeric_limits<int64_t>::max()) {
      return InvalidArgument("rsplit with a limit needs a separator");
    }
    TALON_RETURN_IF_ERROR(runtime.Charge(text.size() * kBytesPerPart / 2));
    return Value::MakeList(SplitAtSpace(text, limit));
  }
  TALON_ASSIGN_OR_RETURN(const std::string_view at, StringArgument(separator, "split: sep"));
  if (at.empty()) return InvalidArgument("split: the separator is empty");
  TALON_RETURN_IF_ERROR(ChargeSearch(runtime, self, at));
  TALON_RETURN_IF_ERROR(runtime.Charge(text.size() / at.size() * kBytesPerPart / 16));
  return Value::MakeList(from_end ? SplitAtFromEnd(text, at, limit) : SplitAt(text, at, limit));
}

Result<Value> SplitLines(Runtime& runtime, const Value& self, const CallArguments&) {
  TALON_RETURN_IF_ERROR(runtime.Charge(self.str().size() * 4));
  std::vector<Value> lines = SplitAt(self.str(), "\n", -1);
  if (lines.back().str().empty()) lines.pop_back();
  return Value::MakeList(std::move(lines));
}

bool IsDigits(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Result<Value> IsDigit(Runtime&, const Value& self, const CallArguments&) {
  return Value::Bool(IsDigits(self.str()));
}

Result<Value> Get(Runtime&, const Value& self, const CallArguments& args) {
  const Value& key = args.positional[0];
  const Value* found = key.is_string() ? self.dict().Find(key.str()) : nullptr;
  if (found != nullptr) return *found;
  return args.positional[1].is_undefined() ? Value::MakeNone() : args.positional[1];
}

Result<Value> Items(Runtime&, const Value& self, const CallArguments&) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) {
    items.push_back(Value::MakeTuple({Value::String(key), value}));
  }
  return Value::MakeList(std::move(items));
}

Result<Value> Keys(Runtime& runtime, const Value& self, const CallArguments&) {
  TALON_ASSIGN_OR_RETURN(std::vector<Value> keys, runtime.Iterate(self));
  return Value::MakeList(std::move(keys));
}

Result<Value> Values(Runtime&, const Value& self, const CallArguments&) {
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict().entries()) values.push_back(value);
  return Value::MakeList(std::move(values));
}

Result<Value> CountItems(Runtime&, const Value& self, const CallArguments& args) {
  const auto& items = self.items();
  return Value::Int(std::count_if(items.begin(), items.end(), [&](const Value& item) {
    return Equal(item, args.positional[0]);
  }));
}

Result<Value> IndexOfItem(Runtime&, const Value& self, const CallArguments& args) {
  const auto& items = self.items();
  for (size_t i = 0; i < items.size(); ++i) {
    if (Equal(items[i], args.positional[0])) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("index: the list has no such item");
}

}  // namespace

std::span<const Builtin> StringMethods() {
  static const std::vector<Builtin> kTable = {
      {.name = "capitalize", .call = MapText<Capitalize>},
      {.name = "count", .call = CountText, .parameters = {"sub"}, .required = 1},
      {.name = "endswith",
       .call = HasAffix<false>,
       .parameters = {"suffix"},
       .required = 1,
       .cost = Cost::kConstant},
      {.name = "find", .call = Find<false>, .parameters = {"sub"}, .required = 1},
      {.name = "isdigit", .call = IsDigit},
      {.name = "join", .call = JoinText, .parameters = {"iterable"}, .required = 1},
      {.name = "lower", .call = MapText<Lower>},
      {.name = "lstrip", .call = StripMethod<true, false>, .parameters = {"chars"}},
      {.name = "removeprefix", .call = RemoveAffix<true>, .parameters = {"prefix"}, .required = 1},
      {.name = "removesuffix", .call = RemoveAffix<false>, .parameters = {"suffix"}, .required = 1},
      {.name = "replace", .call = Replace, .parameters = {"old", "new", "count"}, .required = 2},
      {.name = "rfind", .call = Find<true>, .parameters = {"sub"}, .required = 1},
      {.name = "rsplit", .call = Split<true>, .parameters = {"sep", "maxsplit"}},
      {.name = "rstrip", .call = StripMethod<false, true>, .parameters = {"chars"}},
      {.name = "split", .call = Split<false>, .parameters = {"sep", "maxsplit"}},
      {.name = "splitlines", .call = SplitLines},
      {.name = "startswith",
       .call = HasAffix<true>,
       .parameters = {"prefix"},
       .required = 1,
       .cost = Cost::kConstant},
      {.name = "strip", .call = StripMethod<true, true>, .parameters = {"chars"}},
      {.name = "title", .call = MapText<Title>},
      {.name = "upper", .call = MapText<Upper>},
  };
  return kTable;
}

std::span<const Builtin> DictMethods() {
  static const std::vector<Builtin> kTable = {
      {.name = "get",
       .call = Get,
       .parameters = {"key", "default"},
       .required = 1,
       .cost = Cost::kConstant},
      {.name = "items", .call = Items},
      {.name = "keys", .call = Keys},
      {.name = "values", .call = Values},
  };
  return kTable;
}

std::span<const Builtin> SequenceMethods() {
  static const std::vector<Builtin> kTable = {
      {.name = "count",
       .call = CountItems,
       .parameters = {"value"},
       .required = 1,
       .cost = Cost::kDeep},
      {.name = "index",
       .call = IndexOfItem,
       .parameters = {"value"},
       .required = 1,
       .cost = Cost::kDeep},
  };
  return kTable;
}

}  // namespace talon::jinja
