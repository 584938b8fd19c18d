// Answers in every tool format, from hostile text: the first byte says which, the second where the
// text is cut in two. The parts must be the same as without the cut.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "text/answers/answer_parser.h"

namespace {

using Deltas = std::vector<talon::AnswerDelta>;

void Append(const Deltas& more, Deltas* all) {
  for (const talon::AnswerDelta& delta : more) {
    const bool joins = !all->empty() && all->back().kind == delta.kind &&
                       delta.kind != talon::AnswerDelta::Kind::kCall;
    if (!joins) all->push_back({delta.kind, ""});
    all->back().text += delta.text;
  }
}

Deltas Parse(uint8_t form, std::string_view text, size_t cut) {
  const auto parser =
      talon::NewAnswerParser(static_cast<talon::ToolFormat>(form % 6),
                             {.tools = {"add"},
                              .constrained = form >= 128,
                              .thinking = static_cast<talon::Thinking>(form / 6 % 3)});
  Deltas all;
  Append(parser->Feed(text.substr(0, cut)), &all);
  Append(parser->Feed(text.substr(cut)), &all);
  Append(parser->Finish(), &all);
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (Parse(data[0], text, data[1] % (text.size() + 1)) != Parse(data[0], text, text.size())) {
    std::abort();
  }
  return 0;
}
