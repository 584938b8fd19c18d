// A chat template as hostile input: whatever parses must render, or fail, within its limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "text/chat_options.h"
#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  static const talon::OrderedJson kTokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  static const talon::OrderedJson kMessages = {
      {{"role", "system"}, {"content", " Be brief.\n"}},
      {{"role", "user"}, {"content", "na\xC3\xAFve <think>?</think> \xF0\x9F\x98\x80"}},
      {{"role", "assistant"},
       {"content", nullptr},
       {"tool_calls",
        {{{"id", "c1"}, {"function", {{"name", "f"}, {"arguments", "{\"a\": [1, 2.5]}"}}}}}}},
      {{"role", "tool"}, {"content", {{{"type", "text"}, {"text", "sun"}}}}}};
  const auto chat_template = talon::ChatTemplate::Parse(source, kTokens);
  if (!chat_template.ok()) return 0;
  talon::ChatOptions options;
  if (size % 2 == 0) options.tools = {{{"type", "function"}, {"function", {{"name", "f"}}}}};
  options.continue_final_message = size % 3 == 0;
  options.variables = {{"n", 3}, {"x", 0.5}, {"list", {3, 1, 2}}};
  const auto prompt = chat_template->Render(kMessages, options);
  (void)prompt.ok();
  return 0;
}
