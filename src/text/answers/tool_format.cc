#include "text/answers/tool_format.h"

#include <algorithm>

#include "text/tokenizer/tokenizer.h"

namespace talon {
namespace {

struct FormatName {
  std::string_view name;
  ToolFormat format;
};

// Sorted by name.
constexpr FormatName kFormats[] = {
    {"harmony", ToolFormat::kHarmony},
    {"hermes", ToolFormat::kHermes},
    {"llama3", ToolFormat::kLlama3},
    {"mistral", ToolFormat::kMistral},
    {"mistral_args", ToolFormat::kMistralArgs},
};

constexpr std::string_view kHarmonyMarkers[] = {"<|start|>",   "<|channel|>", "<|constrain|>",
                                                "<|message|>", "<|end|>",     "<|call|>",
                                                "<|return|>"};
constexpr std::string_view kHermesMarkers[] = {"<tool_call>", "</tool_call>"};
constexpr std::string_view kLlama3Markers[] = {"<|python_tag|>"};
constexpr std::string_view kMistralMarkers[] = {"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"};

bool Has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace

std::optional<ToolFormat> ParseToolFormat(std::string_view name) {
  for (const FormatName& each : kFormats) {
    if (each.name == name) return each.format;
  }
  return std::nullopt;
}

std::string ToolFormatNames() {
  std::string names;
  for (const FormatName& each : kFormats) {
    if (!names.empty()) names += ", ";
    names += each.name;
  }
  return names;
}

ToolFormat FindToolFormat(std::string_view source) {
  if (Has(source, "<|channel|>") && Has(source, "<|message|>")) return ToolFormat::kHarmony;
  if (Has(source, "[TOOL_CALLS]")) {
    return Has(source, "[ARGS]") ? ToolFormat::kMistralArgs : ToolFormat::kMistral;
  }
  // Some write the arguments as XML between the same markers.
  if (Has(source, "<tool_call>") && !Has(source, "<function=")) return ToolFormat::kHermes;
  const bool llama = Has(source, "<|start_header_id|>") && Has(source, "tools");
  if (llama || Has(source, "<|python_tag|>")) return ToolFormat::kLlama3;
  return ToolFormat::kNone;
}

std::span<const std::string_view> FormatMarkers(ToolFormat format) {
  switch (format) {
    case ToolFormat::kHarmony:
      return kHarmonyMarkers;
    case ToolFormat::kHermes:
      return kHermesMarkers;
    case ToolFormat::kLlama3:
      return kLlama3Markers;
    case ToolFormat::kMistral:
    case ToolFormat::kMistralArgs:
      return kMistralMarkers;
    case ToolFormat::kNone:
      break;
  }
  return {};
}

std::vector<int32_t> MarkerTokens(const Tokenizer& tokenizer, ToolFormat format) {
  std::vector<int32_t> tokens;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    const auto markers = FormatMarkers(format);
    if (std::ranges::find(markers, token.content) != markers.end()) tokens.push_back(token.id);
  }
  return tokens;
}

}  // namespace talon
