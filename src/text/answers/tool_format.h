// The ways in which models write calls of tools.
#ifndef TALON_TEXT_ANSWERS_TOOL_FORMAT_H_
#define TALON_TEXT_ANSWERS_TOOL_FORMAT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace talon {

class Tokenizer;

enum class ToolFormat {
  kNone,
  kHarmony,  // <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>
  kHermes,   // <tool_call>\n{"name": ..., "arguments": {...}}\n</tool_call>, also Qwen's
  kLlama3,   // {"name": ..., "parameters": {...}} at the beginning, or after <|python_tag|>
  kMistral,  // [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]
  kMistralArgs,  // [TOOL_CALLS]NAME[ARGS]{...}, of newer models
};

// The format of this name ("hermes"), or nullopt if it is unknown.
std::optional<ToolFormat> ParseToolFormat(std::string_view name);
// "harmony, hermes, ...", for messages.
std::string ToolFormatNames();

// The format that a chat template writes calls in; kNone if it is none of these.
ToolFormat FindToolFormat(std::string_view template_source);

// What the format is put together of. Where these are special tokens, an answer's text must have
// them.
std::span<const std::string_view> FormatMarkers(ToolFormat format);
// The special tokens among them.
std::vector<int32_t> MarkerTokens(const Tokenizer& tokenizer, ToolFormat format);

}  // namespace talon

#endif  // TALON_TEXT_ANSWERS_TOOL_FORMAT_H_
