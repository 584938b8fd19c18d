// JSON that keeps the order of keys, parsed in linear time (the library's own parser searches all
// earlier keys of an object for each new one) and without exceptions.
#ifndef TALON_BASE_ORDERED_JSON_H_
#define TALON_BASE_ORDERED_JSON_H_

#include <string>
#include <string_view>

#include "base/json_fwd.h"
#include "base/status.h"

namespace talon {

// `what` names the source in messages. At most kMaxJsonNesting levels deep. Of equal keys the last
// one counts, at the place of the first.
Result<OrderedJson> ParseOrderedJson(std::string_view text, const std::string& what);

}  // namespace talon

#endif  // TALON_BASE_ORDERED_JSON_H_
