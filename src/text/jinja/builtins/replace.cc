#include "text/jinja/builtins/replace.h"

#include <string>

#include "text/unicode.h"

namespace talon::jinja {
namespace {

// Before each character and at the end.
std::string Interleave(std::string_view text, std::string_view inserted, int64_t count) {
  std::string out;
  size_t offset = 0;
  while (true) {
    if (count != 0) {
      out += inserted;
      --count;
    }
    if (offset == text.size()) return out;
    const size_t start = offset;
    NextCodePoint(text, &offset);
    out += text.substr(start, offset - start);
  }
}

}  // namespace

Result<Value> ReplaceText(Runtime& runtime, const Replacement& replacement, int64_t count) {
  const auto& [text, old_text, new_text] = replacement;
  // Searching is slow at worst where both texts are long.
  TALON_RETURN_IF_ERROR(runtime.Charge(text.size() * (1 + old_text.size() / 32)));
  if (old_text.empty()) {
    TALON_RETURN_IF_ERROR(runtime.Charge((text.size() + 1) * new_text.size()));
    return Value::String(Interleave(text, new_text, count));
  }
  std::string out;
  size_t offset = 0;
  for (; count != 0; --count) {
    const size_t found = text.find(old_text, offset);
    if (found == std::string_view::npos) break;
    TALON_RETURN_IF_ERROR(runtime.Charge(new_text.size()));
    out += text.substr(offset, found - offset);
    out += new_text;
    offset = found + old_text.size();
  }
  out += text.substr(offset);
  return Value::String(std::move(out));
}

}  // namespace talon::jinja
