#include "serve/http/api/tool_grammar.h"

#include <string>
#include <utility>
#include <vector>

namespace talon {
namespace {

using Part = GrammarPart;
using Parts = std::vector<GrammarPart>;

Part SchemaOf(const ApiTool& tool, bool enforced) {
  return {.kind = Part::Kind::kSchema,
          .text = tool.schema,
          .name = tool.place + ".parameters",
          .lenient = !enforced};
}

// One or more, with separators between them.
Part List(const Part& item, const std::string& separator) {
  if (separator.empty()) return Part::Repeat(item);
  const Part more = Part::Repeat(Part::Sequence({Part::Literal(separator), item}));
  return Part::Sequence({item, Part::Optional(more)});
}

class Builder {
 public:
  Builder(ToolFormat format, const ToolRequest& tools, const GrammarSpec& content)
      : format_(format), tools_(tools), content_(content) {}

  Part Answer(Thinking thinking) const {
    switch (format_) {
      case ToolFormat::kHarmony:
        return Harmony();
      case ToolFormat::kLlama3: {
        const Part calls =
            Part::Sequence({Part::Optional(Part::Marker("<|python_tag|>")), Calls()});
        return tools_.required ? calls : Part::Choice({calls, Content({"<|python_tag|>"}, "{")});
      }
      default:
        break;
    }
    if (tools_.required) return Part::Sequence({Thoughts(thinking), Calls()});
    if (has_content()) {
      return Part::Sequence({Thoughts(thinking), Part::Choice({Calls(), Content({}, "")})});
    }
    return Part::Sequence({Part::Text({OpenMarker()}), Part::Optional(Calls())});
  }

 private:
  bool has_content() const { return content_.kind != GrammarSpec::Kind::kNone; }
  std::string OpenMarker() const {
    return format_ == ToolFormat::kHermes ? "<tool_call>" : "[TOOL_CALLS]";
  }

  // What the request asks of the content, else free text.
  Part Content(std::vector<std::string> without, const std::string& not_first) const {
    if (!has_content()) return Part::Text(std::move(without), not_first);
    const bool schema = content_.kind == GrammarSpec::Kind::kJsonSchema;
    return {.kind = Part::Kind::kSchema,
            .text = schema ? content_.source : R"({"type": "object"})",
            .name = "response_format"};
  }

  // A block of reasoning before an answer that may not be free text.
  static Part Thoughts(Thinking thinking) {
    if (thinking == Thinking::kNever) return Part::Literal("");
    const Part end = Part::Choice({Part::Literal(""), Part::Literal("\n"), Part::Literal("\n\n")});
    const Part rest = Part::Sequence({Part::Text({"</think>"}), Part::Marker("</think>"), end});
    if (thinking == Thinking::kBegun) return rest;
    return Part::Optional(Part::Sequence({Part::Marker("<think>"), rest}));
  }

  Part Calls() const {
    const std::string separator = Separator();
    Part call = OneCall();
    if (format_ == ToolFormat::kHermes) {
      call = Part::Sequence({Part::Marker("<tool_call>"), Part::Literal("\n"), std::move(call),
                             Part::Literal("\n"), Part::Marker("</tool_call>")});
    }
    if (tools_.parallel) call = List(call, separator);
    if (format_ != ToolFormat::kMistral) return call;
    return Part::Sequence({Part::Marker("[TOOL_CALLS]"), Part::Optional(Part::Literal(" ")),
                           Part::Literal("["), std::move(call), Part::Literal("]")});
  }

  std::string Separator() const {
    if (format_ == ToolFormat::kHermes) return "\n";
    if (format_ == ToolFormat::kLlama3) return "; ";
    return format_ == ToolFormat::kMistral ? ", " : "";
  }

  // A call of any of the tools.
  Part OneCall() const {
    Parts calls;
    for (const ApiTool& tool : tools_.tools) {
      Part arguments = SchemaOf(tool, tools_.required || tool.strict);
      if (format_ == ToolFormat::kMistralArgs) {
        calls.push_back(Part::Sequence({Part::Marker("[TOOL_CALLS]"), Part::Literal(tool.name),
                                        Part::Marker("[ARGS]"), std::move(arguments)}));
        continue;
      }
      const char* key = format_ == ToolFormat::kLlama3 ? "parameters" : "arguments";
      const std::string head = R"({"name": ")" + tool.name + R"(", ")" + key + R"(": )";
      calls.push_back(
          Part::Sequence({Part::Literal(head), std::move(arguments), Part::Literal("}")}));
    }
    return Part::Choice(std::move(calls));
  }

  // Messages on other channels, then a call or the final message.
  Part Harmony() const {
    const std::vector<std::string> markers(FormatMarkers(format_).begin(),
                                           FormatMarkers(format_).end());
    const Part earlier =
        Part::Sequence({Part::Marker("<|channel|>"),
                        Part::Choice({Part::Literal("analysis"), Part::Literal("commentary")}),
                        Part::Marker("<|message|>"), Part::Text(markers), Part::Marker("<|end|>"),
                        Part::Marker("<|start|>"), Part::Literal("assistant")});
    Parts last;
    for (const ApiTool& tool : tools_.tools) {
      last.push_back(Part::Sequence(
          {Part::Marker("<|channel|>"), Part::Literal("commentary to=functions." + tool.name + " "),
           Part::Marker("<|constrain|>"), Part::Literal("json"), Part::Marker("<|message|>"),
           SchemaOf(tool, tools_.required || tool.strict)}));
    }
    if (!tools_.required) {
      const Part constrain = Part::Sequence(
          {Part::Literal(" "), Part::Marker("<|constrain|>"), Part::Literal("json")});
      last.push_back(Part::Sequence({Part::Marker("<|channel|>"), Part::Literal("final"),
                                     has_content() ? Part::Optional(constrain) : Part::Literal(""),
                                     Part::Marker("<|message|>"), Content(markers, "")}));
    }
    return Part::Sequence({Part::Optional(Part::Repeat(earlier)), Part::Choice(std::move(last))});
  }

  ToolFormat format_;
  const ToolRequest& tools_;
  const GrammarSpec& content_;
};

}  // namespace

bool NeedsAnswerGrammar(ToolFormat format, const ToolRequest& tools, const GrammarSpec& content) {
  const bool channels = format == ToolFormat::kHarmony;
  return tools.active() || (channels && content.kind != GrammarSpec::Kind::kNone);
}

GrammarSpec AnswerGrammar(ToolFormat format, const ToolRequest& tools, const GrammarSpec& content,
                          Thinking thinking) {
  return {.kind = GrammarSpec::Kind::kParts,
          .part = Builder(format, tools, content).Answer(thinking),
          .spacing = content.spacing};
}

}  // namespace talon
