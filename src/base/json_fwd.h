// The names of the JSON types, for headers. The library takes seconds to compile, so only sources
// that read or write JSON include base/json.h.
#ifndef TALON_BASE_JSON_FWD_H_
#define TALON_BASE_JSON_FWD_H_

#include <nlohmann/json_fwd.hpp>

namespace talon {

using Json = nlohmann::json;
// Keeps the order of keys. A Json converts to it, its keys sorted.
using OrderedJson = nlohmann::ordered_json;

}  // namespace talon

#endif  // TALON_BASE_JSON_FWD_H_
