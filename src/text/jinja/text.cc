#include "text/jinja/text.h"

#include <charconv>
#include <cmath>

#include "text/jinja/characters.h"
#include "text/unicode.h"

namespace talon::jinja {
namespace {

void AppendEscape(char32_t c, std::string* out) {
  if (c < 0x100) {
    *out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    *out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    *out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
}

std::string QuotedString(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char32_t quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, static_cast<char>(quote));
  for (size_t offset = 0; offset < text.size();) {
    const char32_t c = NextCodePoint(text, &offset);
    if (c == quote || c == '\\') {
      out += '\\';
      AppendUtf8(c, &out);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (IsPrintable(c)) {
      AppendUtf8(c, &out);
    } else {
      AppendEscape(c, &out);
    }
  }
  out += static_cast<char>(quote);
  return out;
}

Status AppendRepr(const Value& value, std::string* out);

Status AppendItems(const Value& value, std::string* out) {
  *out += value.is_list() ? '[' : '(';
  bool first = true;
  for (const Value& item : value.items()) {
    if (!first) *out += ", ";
    first = false;
    TALON_RETURN_IF_ERROR(AppendRepr(item, out));
  }
  if (value.is_tuple() && value.items().size() == 1) *out += ',';
  *out += value.is_list() ? ']' : ')';
  return OkStatus();
}

Status AppendEntries(const Value& value, std::string* out) {
  *out += '{';
  bool first = true;
  for (const auto& [key, item] : value.dict().entries()) {
    if (!first) *out += ", ";
    first = false;
    *out += QuotedString(key) + ": ";
    TALON_RETURN_IF_ERROR(AppendRepr(item, out));
  }
  *out += '}';
  return OkStatus();
}

Status AppendRepr(const Value& value, std::string* out) {
  if (value.is_string()) {
    *out += QuotedString(value.str());
  } else if (value.is_none()) {
    *out += "None";
  } else if (value.is_bool()) {
    *out += Truthy(value) ? "True" : "False";
  } else if (value.is_int()) {
    *out += std::to_string(value.AsInt());
  } else if (value.is_float()) {
    *out += FloatText(value.AsDouble());
  } else if (value.is_undefined()) {
    *out += "Undefined";
  } else if (value.is_sequence()) {
    return AppendItems(value, out);
  } else if (value.is_dict()) {
    return AppendEntries(value, out);
  } else {
    return InvalidArgument("a {} cannot be printed", value.TypeName());
  }
  return OkStatus();
}

// json.dumps over one value; `level` is the depth of indentation.
class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  Status Write(const Value& value, int level) {
    if (value.is_string()) {
      WriteString(value.str());
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += Truthy(value) ? "true" : "false";
    } else if (value.is_int()) {
      out_ += std::to_string(value.AsInt());
    } else if (value.is_float()) {
      WriteFloat(value.AsDouble());
    } else if (value.is_sequence()) {
      return WriteItems(value, level);
    } else if (value.is_dict()) {
      return WriteEntries(value, level);
    } else if (value.is_undefined()) {
      return InvalidArgument("tojson: {}", UndefinedMessage(value));
    } else {
      return InvalidArgument("tojson: a {} has no JSON form", value.TypeName());
    }
    return OkStatus();
  }

  std::string Take() { return std::move(out_); }

 private:
  void WriteFloat(double number) {
    if (std::isfinite(number)) {
      out_ += FloatText(number);
    } else {
      out_ += std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity";
    }
  }

  Status WriteItems(const Value& value, int level) {
    out_ += '[';
    bool first = true;
    for (const Value& item : value.items()) {
      BeginItem(&first, level + 1);
      TALON_RETURN_IF_ERROR(Write(item, level + 1));
    }
    if (!first) BreakLine(level);
    out_ += ']';
    return OkStatus();
  }

  Status WriteEntries(const Value& value, int level) {
    std::map<std::string_view, const Value*> sorted;
    if (style_.sort_keys) {
      for (const auto& [key, item] : value.dict().entries()) sorted.emplace(key, &item);
    }
    out_ += '{';
    bool first = true;
    const auto write = [&](std::string_view key, const Value& item) {
      BeginItem(&first, level + 1);
      WriteString(key);
      out_ += style_.key_separator;
      return Write(item, level + 1);
    };
    for (const auto& [key, item] : sorted) TALON_RETURN_IF_ERROR(write(key, *item));
    if (!style_.sort_keys) {
      for (const auto& [key, item] : value.dict().entries()) {
        TALON_RETURN_IF_ERROR(write(key, item));
      }
    }
    if (!first) BreakLine(level);
    out_ += '}';
    return OkStatus();
  }

  void BeginItem(bool* first, int level) {
    if (!*first) out_ += style_.item_separator;
    *first = false;
    BreakLine(level);
  }

  void BreakLine(int level) {
    if (!style_.indent) return;
    out_ += '\n';
    out_.append(static_cast<size_t>(*style_.indent * level), ' ');
  }

  void WriteString(std::string_view text) {
    out_ += '"';
    for (size_t offset = 0; offset < text.size();) WriteCharacter(NextCodePoint(text, &offset));
    out_ += '"';
  }

  void WriteCharacter(char32_t c) {
    static constexpr std::string_view kShort = "\bb\ff\nn\rr\tt\"\"\\\\";  // pairs
    for (size_t i = 0; i < kShort.size(); i += 2) {
      if (c == static_cast<unsigned char>(kShort[i])) {
        out_ += '\\';
        out_ += kShort[i + 1];
        return;
      }
    }
    if (c >= 0x20 && (c < 0x7F || !style_.ensure_ascii)) {
      AppendUtf8(c, &out_);
    } else if (c < 0x10000) {
      WriteUnit(c);
    } else {  // a surrogate pair
      WriteUnit(0xD800 + ((c - 0x10000) >> 10));
      WriteUnit(0xDC00 + ((c - 0x10000) & 0x3FF));
    }
  }

  void WriteUnit(char32_t unit) { out_ += fmt::format("\\u{:04x}", static_cast<uint32_t>(unit)); }

  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const double magnitude = std::fabs(value);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, format).ptr;
  std::string text(buffer, end);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

Result<std::string> Repr(const Value& value) {
  std::string out;
  TALON_RETURN_IF_ERROR(AppendRepr(value, &out));
  return out;
}

Result<std::string> ToText(const Value& value) {
  if (value.is_string()) return value.str();
  if (value.is_undefined()) return std::string();
  return Repr(value);
}

Result<std::string> ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  TALON_RETURN_IF_ERROR(writer.Write(value, 0));
  return writer.Take();
}

}  // namespace talon::jinja
