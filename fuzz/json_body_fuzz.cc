// Bodies from hostile text: a body is accepted only if the whole parser accepts it, and then its
// members are those of the whole tree.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "serve/http/api/json_body.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using talon::Json;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto body = talon::JsonBody::Parse(text);
  const auto whole = talon::ParseJson(text, "the body");
  if (!body.ok()) {
    TALON_CHECK(body.status().message().size() < 200);
    TALON_CHECK(!whole.ok() || !whole->is_object() || whole->size() > talon::JsonBody::kMaxMembers);
    return 0;
  }
  TALON_CHECK(whole.ok() && whole->is_object());
  TALON_CHECK(body->Keys().size() == whole->size());
  for (const auto& [key, value] : whole->items()) {
    const auto found = body->Find(key);
    if (!found.ok()) continue;  // too large a tree
    TALON_CHECK(*found != nullptr && **found == value);
  }
  return 0;
}
