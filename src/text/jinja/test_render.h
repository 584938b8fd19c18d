// For tests: one template, its variables as JSON, and what comes out.
#ifndef TALON_TEXT_JINJA_TEST_RENDER_H_
#define TALON_TEXT_JINJA_TEST_RENDER_H_

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/ordered_json.h"
#include "text/jinja/evaluator.h"
#include "text/jinja/parser.h"
#include "text/jinja/value_from_json.h"

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
  for (const auto& [name, value] : json->items()) variables[name] = *ValueFromJson(value);
  Evaluator evaluator;
  const auto text = evaluator.Run(*block, std::move(variables));
  return text.ok() ? *text : "error: " + text.status().message();
}

// What the templates of the tests know.
inline constexpr std::string_view kVariables = R"({
  "n": 7,
  "x": 2.5,
  "name": "Ada",
  "text": "  Hello World \n",
  "none": null,
  "yes": true,
  "empty": [],
  "list": [3, 1, 2],
  "words": ["pear", "Apple", "fig"],
  "dict": {"b": 1, "a": "two", "c": null},
  "users": [{"name": "Ann", "age": 31, "on": true}, {"name": "bob", "age": 25, "on": false}, {"name": "Cid", "age": 31}],
  "uni": "naïve 日本 😀"
})";

// Each source gives its text with these variables.
inline void ExpectAll(const std::vector<RenderCase>& cases) {
  for (const RenderCase& c : cases)
    EXPECT_EQ(RenderOrError(c.source, kVariables), c.expected) << c.source;
}

}  // namespace talon::jinja

#endif  // TALON_TEXT_JINJA_TEST_RENDER_H_
