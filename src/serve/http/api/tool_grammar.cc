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
    return Part::Sequence({Thoughts(thinking), AfterThoughts()});
  }

 private:
  Part AfterThoughts() const {
    if (format_ == ToolFormat::kHarmony) return Harmony();
    if (!tools_.active()) return Content({}, "");
    if (format_ == ToolFormat::kLlama3) {
      const Part calls = Part::Sequence({Part::Optional(Part::Marker("<|python_tag|>")), Calls()});
      return tools_.required ? calls : Part::Choice({calls, Content({"<|python_tag|>"}, "{")});
    }
    if (tools_.required) return Calls();
    if (has_content()) return Part::Choice({Calls(), Content({}, "")});
    return Part::Sequence({Part::Text({OpenMarker()}), Part::Optional(Calls())});
  }

  bool has_content() const { return content_.kind != GrammarSpec::Kind::kNone; }
  std::string OpenMarker() const {
    return format_ == ToolFormat::kHermes ? "<tool_call>" : "[TOOL_CALLS]";
  }

  // What the request asks of the content, else free text.
  Part Content(std::vector<std::string> without, const std::string& not_first) const {
    switch (content_.kind) {
      case GrammarSpec::Kind::kJsonSchema:
        return {.kind = Part::Kind::kSchema, .text = content_.source, .name = "response_format"};
      case GrammarSpec::Kind::kJsonObject:
        return {.kind = Part::Kind::kSchema, .text = R"({"type": "object"})"};
      case GrammarSpec::Kind::kRegex:
        return {.kind = Part::Kind::kRegex, .text = content_.source};
      case GrammarSpec::Kind::kGbnf:
        return {.kind = Part::Kind::kGbnf, .text = content_.source};
      case GrammarSpec::Kind::kChoice: {
        Parts choices;
        for (const std::string& each : content_.choices) choices.push_back(Part::Literal(each));
        return Part::Choice(std::move(choices));
      }
      default:
        return Part::Text(std::move(without), not_first);
    }
  }

  // A block of reasoning before the answer.
  static Part Thoughts(Thinking thinking) {
    if (thinking == Thinking::kNever) return Part::Literal("");
    const Part end = Part::Choice({Part::Literal(""), Part::Literal("\n"), Part::Literal("\n\n")});
    const std::string close(kThinkEnd);
    const Part rest = Part::Sequence({Part::Text({close}), Part::Marker(close), end});
    if (thinking == Thinking::kBegun) return rest;
    return Part::Optional(Part::Sequence({Part::Marker(std::string(kThinkBegin)), rest}));
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

bool NeedsAnswerGrammar(const AnswerShape& shape, const ToolRequest& tools,
                        const GrammarSpec& content) {
  const bool parts = shape.format == ToolFormat::kHarmony || shape.thinking != Thinking::kNever;
  return tools.active() || (parts && content.kind != GrammarSpec::Kind::kNone);
}

GrammarSpec AnswerGrammar(const AnswerShape& shape, const ToolRequest& tools,
                          const GrammarSpec& content) {
  return {.kind = GrammarSpec::Kind::kParts,
          .part = Builder(shape.format, tools, content).Answer(shape.thinking),
          .spacing = content.spacing};
}

}  // namespace talon
