// Filters that give text or a number.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/builtins/replace.h"
#include "text/jinja/characters.h"
#include "text/jinja/text.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

Result<Value> Abs(Runtime&, const Value& self, const CallArguments&) {
  if (!self.is_number()) return InvalidArgument("abs: {} is not a number", self.TypeName());
  if (self.is_float()) return Value::Float(std::fabs(self.AsDouble()));
  if (self.AsInt() == std::numeric_limits<int64_t>::min()) return InvalidArgument("abs: too large");
  return Value::Int(std::abs(self.AsInt()));
}

template <std::string (*map)(std::string_view)>
Result<Value> MapText(Runtime&, const Value& self, const CallArguments&) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ToText(self));
  return Value::String(map(text));
}

Result<Value> Float(Runtime&, const Value& self, const CallArguments& args) {
  if (self.is_number()) return Value::Float(self.AsDouble());
  const Value fallback = args.positional[0].is_undefined() ? Value::Float(0) : args.positional[0];
  if (!self.is_string()) return fallback;
  const std::string_view text = Strip(self.str());
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size() ? Value::Float(number) : fallback;
}

Result<Value> Int(Runtime&, const Value& self, const CallArguments& args) {
  const Value fallback = args.positional[0].is_undefined() ? Value::Int(0) : args.positional[0];
  if (self.is_bool() || self.is_int()) return Value::Int(self.AsInt());
  double number = 0;
  if (self.is_string()) {
    const std::string_view text = Strip(self.str());
    int64_t integer = 0;
    const char* end = text.data() + text.size();
    const auto whole = std::from_chars(text.data(), end, integer);
    if (whole.ec == std::errc{} && whole.ptr == end) return Value::Int(integer);
    const auto real = std::from_chars(text.data(), end, number);
    if (real.ec != std::errc{} || real.ptr != end) return fallback;
  } else if (self.is_float()) {
    number = self.AsDouble();
  } else {
    return fallback;
  }
  if (!(std::fabs(number) < 9e18)) return fallback;
  return Value::Int(static_cast<int64_t>(number));
}

// indent(width=4, first=false, blank=false): every line but the first, and no empty ones.
Result<Value> Indent(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(std::string text, ToText(self));
  std::string prefix;
  if (args.positional[0].is_string()) {
    prefix = args.positional[0].str();
  } else {
    TALON_ASSIGN_OR_RETURN(const int64_t width,
                           IntArgument(args.positional[0], 4, "indent: width"));
    if (width > 1000) return InvalidArgument("indent: width {}, limit 1000", width);
    prefix.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n')) + 1;
  TALON_RETURN_IF_ERROR(runtime.Charge(text.size() + lines * prefix.size()));
  const bool blank = Truthy(args.positional[2]);
  std::string out = Truthy(args.positional[1]) ? prefix : "";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    if (text[i] != '\n') continue;
    const bool empty_line = i + 1 == text.size() || text[i + 1] == '\n';
    if (!empty_line || blank) out += prefix;
  }
  return Value::String(std::move(out));
}

Result<Value> Replace(Runtime& runtime, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ToText(self));
  TALON_ASSIGN_OR_RETURN(const std::string old_text, ToText(args.positional[0]));
  TALON_ASSIGN_OR_RETURN(const std::string new_text, ToText(args.positional[1]));
  const Value& limit = args.positional[2];
  TALON_ASSIGN_OR_RETURN(const int64_t count,
                         IntArgument(limit.is_none() ? Value() : limit, -1, "replace: count"));
  return ReplaceText(runtime, {.text = text, .old_text = old_text, .new_text = new_text}, count);
}

Result<Value> Round(Runtime&, const Value& self, const CallArguments& args) {
  if (!self.is_number()) return InvalidArgument("round: {} is not a number", self.TypeName());
  TALON_ASSIGN_OR_RETURN(const int64_t precision,
                         IntArgument(args.positional[0], 0, "round: precision"));
  if (precision < 0 || precision > 15) return InvalidArgument("round: precision {}", precision);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const std::string method = args.positional[1].is_string() ? args.positional[1].str() : "common";
  if (method == "ceil") return Value::Float(std::ceil(self.AsDouble() * scale) / scale);
  if (method == "floor") return Value::Float(std::floor(self.AsDouble() * scale) / scale);
  if (method != "common") return InvalidArgument("round: unknown method '{}'", method);
  // As Python: the decimal nearest to the exact value, ties to even.
  double rounded = 0;
  const std::string text = fmt::format("{:.{}f}", self.AsDouble(), precision);
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return self.is_float() ? Value::Float(rounded) : Value::Int(self.AsInt());
}

Result<Value> Safe(Runtime&, const Value& self, const CallArguments&) {
  TALON_ASSIGN_OR_RETURN(std::string text, ToText(self));
  return Value::String(std::move(text));
}

// Unlike the method of that name it begins words only after white space and opening marks.
std::string TitleWords(std::string_view text) {
  std::string out;
  bool first = true;
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, &offset);
    AppendUtf8(first ? ToUpper(c) : ToLower(c), &out);
    first = IsPythonSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  }
  return out;
}

Result<Value> ToJsonFilter(Runtime& runtime, const Value& self, const CallArguments& args) {
  JsonStyle style;
  style.ensure_ascii = Truthy(args.positional[0]);
  if (args.positional[1].is_int()) {
    const int64_t indent = args.positional[1].AsInt();
    if (indent < 0 || indent > 64) return InvalidArgument("tojson: indent {}, limit 64", indent);
    style.indent = indent;
    style.item_separator.assign(1, ',');
  }
  const Value& separators = args.positional[2];
  if (!separators.is_undefined() && !separators.is_none()) {
    const bool fits = separators.is_sequence() && separators.items().size() == 2 &&
                      separators.items()[0].is_string() && separators.items()[1].is_string();
    if (!fits) return InvalidArgument("tojson: separators must be two strings");
    style.item_separator = separators.items()[0].str();
    style.key_separator = separators.items()[1].str();
  }
  style.sort_keys = Truthy(args.positional[3]);
  const size_t growth = 1 + style.item_separator.size() + style.key_separator.size() +
                        static_cast<size_t>(style.indent.value_or(0) * ExtentOf(self).depth) / 8;
  TALON_RETURN_IF_ERROR(runtime.Charge(ExtentOf(self).bytes / 8 * growth));
  TALON_ASSIGN_OR_RETURN(std::string json, ToJson(self, style));
  return Value::String(std::move(json));
}

Result<Value> Trim(Runtime&, const Value& self, const CallArguments& args) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ToText(self));
  const Value& chars = args.positional[0];
  if (chars.is_undefined() || chars.is_none()) return Value::String(std::string(Strip(text)));
  TALON_RETURN_IF_ERROR(StringArgument(chars, "trim: chars").status());
  return Value::String(std::string(Strip(text, &chars.str())));
}

}  // namespace

std::span<const Builtin> TextFilters() {
  static const std::vector<Builtin> kTable = {
      {.name = "abs", .call = Abs},
      {.name = "capitalize", .call = MapText<Capitalize>, .cost = Cost::kDeep},
      {.name = "float", .call = Float, .parameters = {"default"}},
      {.name = "indent",
       .call = Indent,
       .parameters = {"width", "first", "blank"},
       .cost = Cost::kDeep},
      {.name = "int", .call = Int, .parameters = {"default"}},
      {.name = "lower", .call = MapText<Lower>, .cost = Cost::kDeep},
      {.name = "replace",
       .call = Replace,
       .parameters = {"old", "new", "count"},
       .required = 2,
       .cost = Cost::kDeep},
      {.name = "round", .call = Round, .parameters = {"precision", "method"}},
      {.name = "safe", .call = Safe, .cost = Cost::kDeep},
      {.name = "string", .call = Safe, .cost = Cost::kDeep},
      {.name = "title", .call = MapText<TitleWords>, .cost = Cost::kDeep},
      {.name = "tojson",
       .call = ToJsonFilter,
       .parameters = {"ensure_ascii", "indent", "separators", "sort_keys"},
       .cost = Cost::kDeep},
      {.name = "trim", .call = Trim, .parameters = {"chars"}, .cost = Cost::kDeep},
      {.name = "upper", .call = MapText<Upper>, .cost = Cost::kDeep},
  };
  return kTable;
}

}  // namespace talon::jinja
