// For tests: one template, its variables as JSON, and what comes out.
#ifndef TALON_TEXT_JINJA_TEST_RENDER_H_
#define TALON_TEXT_JINJA_TEST_RENDER_H_

#include <map>
#include <string>
#include <string_view>

#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/ordered_json.h"

namespace talon::jinja {

struct RenderCase {
  std::string_view source;
  std::string_view expected;
};

// The text, or "error: " and the message.
inline std::string RenderOrError(std::string_view source, std::string_view variables_json = "{}") {
  const auto block = ParseTemplate(source);
  if (!block.ok()) return "error: " + block.status().message();
  const auto json = ParseOrderedJson(variables_json, "variables");
  if (!json.ok()) return "error: " + json.status().message();
  std::map<std::string, Value> variables;
  for (const auto& [name, value] : json->items()) variables[name] = *Value::FromJson(value);
  Evaluator evaluator;
  const auto text = evaluator.Run(*block, std::move(variables));
  return text.ok() ? *text : "error: " + text.status().message();
}

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_TEST_RENDER_H_
