// tokenizer.json as hostile input: whatever loads must encode and decode without a fault.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = talon::Tokenizer::Parse(json, "fuzz");
  if (!tokenizer.ok()) return 0;
  constexpr std::string_view kText =
      "Hello  world, it's\n\n<s>na\xC3\xAFve</s> 12345 \xE6\x97\xA5\xE6\x9C\xAC \xF0\x9F\x98\x80";
  const auto ids = (*tokenizer)->Encode(kText, /*add_special_tokens=*/true);
  if (ids.ok()) (*tokenizer)->Decode(*ids, /*skip_special_tokens=*/true);
  std::vector<int32_t> all;
  for (int32_t id = -1; id <= (*tokenizer)->vocab_size() && id < 2000; ++id) all.push_back(id);
  (*tokenizer)->Decode(all, /*skip_special_tokens=*/false);
  return 0;
}
