// JSON without exceptions: parsing and typed look-ups that answer with a Status.
#ifndef TALON_BASE_JSON_H_
#define TALON_BASE_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// Levels of nesting that are read, so that a hostile text cannot exhaust the stack.
inline constexpr int kMaxJsonNesting = 256;

// `what` names the source in messages, usually a file's path.
Result<Json> ParseJson(std::string_view text, const std::string& what);
Result<Json> ReadJsonFile(const std::string& path);

// Makes it null without allocating. The library's destructor allocates, and ends the process where
// there is no memory.
void DestroyJson(Json* value);

}  // namespace talon

#endif  // TALON_BASE_JSON_H_
