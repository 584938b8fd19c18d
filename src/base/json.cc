#include "base/json.h"

#include "base/file.h"

namespace talon {
namespace {

constexpr size_t kMaxQuotedBytes = 200;  // the library's messages quote numbers whole

// The parser's recursion is on the heap, but the value's destructor and dump recurse.
bool NestsTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonNesting) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const std::string& what) {
  if (const size_t nul = text.find('\0');
      nul != std::string_view::npos) {  // ends the parser's text
    return InvalidArgument("{}: not valid JSON at byte {}", what, nul);
  }
  if (NestsTooDeep(text)) {
    return InvalidArgument("{}: JSON nested more than {} levels deep", what, kMaxJsonNesting);
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    return InvalidArgument("{}: not valid JSON at byte {}", what, error.byte);
  } catch (const Json::exception& error) {
    return InvalidArgument("{}: not valid JSON: {}", what,
                           std::string_view(error.what()).substr(0, kMaxQuotedBytes));
  }
}

Result<Json> ReadJsonFile(const std::string& path) {
  TALON_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseJson(text, path);
}

void DestroyJson(Json* value) {
  if (value->is_structured()) {
    for (Json& child : *value) DestroyJson(&child);
    value->clear();
  }
  *value = nullptr;
}

}  // namespace talon
