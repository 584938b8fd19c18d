#include "grammar/schema/json_schema.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "grammar/automaton.h"

namespace talon {
namespace {

bool Judge(const std::string& schema, const std::string& text,
           JsonSpacing spacing = JsonSpacing::kFlexible) {
  const auto grammar = CompileJsonSchema(schema, spacing);
  EXPECT_TRUE(grammar.ok()) << schema << ": " << grammar.status().message();
  if (!grammar.ok()) return false;
  Automaton automaton(grammar->get());
  const auto state = automaton.Next(automaton.start(), text);
  return state != Automaton::kDead && automaton.Accepts(state);
}

void Expect(const std::string& schema, const std::vector<std::string>& right,
            const std::vector<std::string>& wrong) {
  for (const std::string& text : right) EXPECT_TRUE(Judge(schema, text)) << schema << " " << text;
  for (const std::string& text : wrong) EXPECT_FALSE(Judge(schema, text)) << schema << " " << text;
}

TEST(JsonSchemaTest, Types) {
  Expect("{}", {"null", "true", "-1.5e3", "\"\"", "[1, {}]", R"({"a": [null]})"},
         {"", "nul", "01", "[1,]", "{a:1}", "'a'", "1 "});
  Expect(R"({"type": "integer"})", {"0", "-12"}, {"1.5", "01", "-0", "\"1\""});
  Expect(R"({"type": ["string", "null"]})", {"\"a\"", "null"}, {"1"});
  Expect(R"({"type": "string", "nullable": true})", {"\"a\"", "null"}, {"1"});
  Expect("true", {"1"}, {});
}

TEST(JsonSchemaTest, Strings) {
  Expect(R"({"type": "string", "minLength": 2, "maxLength": 3})",
         {"\"ab\"", "\"äöü\"", R"("\n\"")", "\"😀😀\""}, {"\"a\"", "\"abcd\"", R"("\u0041b")"});
  Expect(R"({"type": "string", "pattern": "^[a-z]+$"})", {"\"abc\""}, {"\"\"", "\"aB\""});
  Expect(R"({"type": "string", "pattern": "b\\\"", "maxLength": 4})", {R"("ab\"")"},
         {R"("ab")", R"("aaab\"")"});
  Expect(R"({"type": "string", "format": "date"})", {"\"2024-02-29\""},
         {"\"2023-02-29\"", "\"2023-13-01\"", "\"2023-1-1\""});
  Expect(R"({"type": "string", "format": "ipv4"})", {"\"1.2.3.255\""}, {"\"1.2.3.256\""});
  Expect(R"({"type": "string", "format": "ipv6"})", {"\"::1\"", "\"1:2:3:4:5:6:7:8\""},
         {"\"1:2:3\"", "\":1\""});
  Expect(R"({"type": "string", "format": "uuid"})", {"\"2eb8aa08-aa98-11ea-b4aa-73b441d16380\""},
         {"\"2eb8aa08\""});
}

// Numbers within bounds, against arithmetic.
TEST(JsonSchemaTest, NumbersWithinBounds) {
  const std::vector<std::string> bounds = {"-120", "-9.5", "-1", "0", "0.25", "3", "10", "99.05"};
  const std::vector<std::string> numbers = {
      "-121", "-120",   "-119.99", "-20",   "-9.5",      "-9.49", "-9.51", "-1",     "-0.5",
      "0",    "0.2",    "0.25",    "0.250", "0.2500001", "0.249", "1",     "2.999",  "3",
      "3.0",  "3.01",   "9",       "10",    "11",        "99",    "99.05", "99.049", "99.1",
      "100",  "1000.5", "0.24",    "0.26",  "0.3",       "99.04", "99.06"};
  for (const std::string& bound : bounds) {
    for (const char* key : {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const std::string schema =
          std::string(R"({"type": "number", ")") + key + "\": " + bound + "}";
      const auto grammar = CompileJsonSchema(schema);
      ASSERT_TRUE(grammar.ok()) << grammar.status().message();
      Automaton automaton(grammar->get());
      for (const std::string& number : numbers) {
        const double value = std::stod(number), limit = std::stod(bound);
        const bool low = std::string(key).find("inimum") != std::string::npos;
        const bool open = std::string(key).starts_with("exclusive");
        const bool right = value == limit ? !open : (value > limit) == low;
        const auto state = automaton.Next(automaton.start(), number);
        EXPECT_EQ(state != Automaton::kDead && automaton.Accepts(state), right)
            << schema << " " << number;
      }
    }
  }
  Expect(R"({"type": "integer", "minimum": 18, "maximum": 120, "multipleOf": 6})",
         {"18", "24", "120"}, {"12", "19", "126", "18.0"});
  Expect(R"({"type": "number", "multipleOf": 0.01})", {"1.25", "-3"}, {"1.255"});
}

TEST(JsonSchemaTest, Arrays) {
  Expect(R"({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 3})",
         {"[1]", "[1, 2,3]", "[ 1 ]", "[\n  1,\n  2\n]"}, {"[]", "[1,2,3,4]", "[\"a\"]", "[1 ,2]"});
  Expect(R"({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": false})",
         {"[]", "[1]", "[1, \"a\"]", "{}"}, {"[\"a\"]", "[1, \"a\", 2]"});
  Expect(R"({"type": "array", "items": [{"const": 1}], "additionalItems": {"const": 2}})",
         {"[1, 2, 2]"}, {"[2]", "[1, 1]"});
}

TEST(JsonSchemaTest, Objects) {
  const std::string person = R"({"type": "object", "properties": {"name": {"type": "string"},
      "age": {"type": "integer"}, "tags": {"type": "array"}}, "required": ["name", "tags"],
      "additionalProperties": false})";
  Expect(person,
         {R"({"name": "a", "age": 3, "tags": []})", R"({"name":"a","tags":[]})",
          "{\n  \"name\": \"a\",\n  \"tags\": [ ]\n}"},
         {"{}", R"({"name": "a"})", R"({"tags": [], "name": "a"})",
          R"({"name": "a", "tags": [], "x": 1})", R"({"name": "a", "name": "b", "tags": []})"});
  Expect(R"({"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 1,
             "maxProperties": 2})",
         {R"({"a": 1})", R"({"a": 1, "b": 2})"}, {"{}", R"({"a": "x"})", R"({"a":1,"b":2,"c":3})"});
  Expect(R"({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {"type":
             "integer"}, "y$": {"minimum": 3}}, "additionalProperties": false})",
         {R"({"a": "z", "x1": 2})", R"({"xy": 5})", R"({"ay": "s"})"},
         {R"({"xy": 2})", R"({"x": "s"})", R"({"b": 1})"});
  Expect(R"({"type": "object", "propertyNames": {"pattern": "^[a-z]+$"}})", {R"({"ab": 1})"},
         {R"({"A": 1})"});
  Expect(R"({"type": "object", "required": ["b"], "properties": {"a": true}})",
         {R"({"b": 1})", R"({"a": 1, "b": 2, "c": 3})"}, {R"({"a": 1})"});
}

TEST(JsonSchemaTest, Combinations) {
  Expect(R"({"enum": ["a", 1, null, [1, {"b": 2}]]})", {"\"a\"", "1", "null", R"([1, {"b": 2}])"},
         {"\"b\"", "2", "[1]"});
  Expect(R"({"type": "string", "enum": ["a", 1], "const": "a"})", {"\"a\""}, {"1"});
  Expect(R"({"enum": [1.0, -2e0, 0.5, "ä"]})", {"1", "-2", "0.5", "\"ä\""},
         {"1.0", "-2.0", R"("\u00e4")"});
  Expect(R"({"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 1}]})", {"12", "\"a\""},
         {"\"ab\"", "null"});
  Expect(R"({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}},
             {"properties": {"a": {"minimum": 3}, "b": {}}, "required": ["a"]}]})",
         {R"({"a": 3, "b": 1})"}, {R"({"a": 2})", R"({"b": 1})"});
  Expect(R"({"oneOf": [{"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type":
             "integer"}}, "required": ["kind"]}, {"type": "object", "properties": {"kind":
             {"const": "b"}}, "required": ["kind"]}]})",
         {R"({"kind": "a", "x": 1})", R"({"kind": "b", "x": "s"})"},
         {R"({"kind": "a", "x": "s"})", R"({"kind": "c"})"});
  Expect(R"({"$defs": {"node": {"type": "object", "properties": {"v": {"type": "integer"}, "next":
             {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["v", "next"],
             "additionalProperties": false}}, "$ref": "#/$defs/node"})",
         {R"({"v": 1, "next": null})", R"({"v": 1, "next": {"v": 2, "next": null}})"},
         {R"({"v": 1})", R"({"v": 1, "next": {"v": 2}})"});
}

TEST(JsonSchemaTest, MultiplesOfLargeNumbers) {
  const auto expect = [](const std::string& schema, const std::vector<std::string>& right,
                         const std::vector<std::string>& wrong) {
    for (const std::string& text : right) EXPECT_TRUE(Judge(schema, text)) << schema << text;
    for (const std::string& text : wrong) EXPECT_FALSE(Judge(schema, text)) << schema << text;
  };
  expect(R"({"type": "integer", "multipleOf": 999999937})", {"999999937", "-1999999874", "0"},
         {"999999938", "5"});
  expect(R"({"type": "integer", "multipleOf": 9973, "minimum": 123456})", {"129649"},
         {"119676", "129650"});
  expect(R"({"type": "integer", "multipleOf": 65537, "minimum": -200000,
             "exclusiveMaximum": 131074})",
         {"-196611", "-131074", "0", "65537"}, {"131074", "-262148", "-1"});
  expect(R"({"type": "integer", "multipleOf": 65537, "minimum": 0.5, "maximum": 131074.5})",
         {"65537", "131074"}, {"0", "196611"});
  expect(R"({"type": "integer", "multipleOf": 65537, "exclusiveMinimum": -131074,
             "maximum": -0.5})",
         {"-65537"}, {"-131074", "0"});
  expect(R"({"type": "integer", "multipleOf": 997, "minimum": 1, "maximum": 1000000000})",
         {"997", "999999973"}, {"0", "1000000970"});
}

TEST(JsonSchemaTest, CompactSpacing) {
  const std::string schema = R"({"type": "array", "items": {"type": "integer"}})";
  EXPECT_TRUE(Judge(schema, "[1,2]", JsonSpacing::kCompact));
  EXPECT_FALSE(Judge(schema, "[1, 2]", JsonSpacing::kCompact));
}

TEST(JsonSchemaTest, WhatIsNotSupportedIsRefusedWithItsPlace) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"properties": {"a": {"uniqueItems": true}}})", "#/properties/a/uniqueItems"},
      {R"({"properties": {"a/b~": {"uniqueItems": true}}})", "#/properties/a~1b~0/uniqueItems"},
      {R"({"not": {"type": "string"}})", "#/not: not supported"},
      {R"({"if": {}, "then": {}})", "#/if"},
      {R"({"items": {"contains": {}}})", "#/items/contains"},
      {R"({"format": "color"})", "#/format"},
      {R"({"oneOf": [{"type": "integer"}, {"minimum": 3}]})", "#/oneOf: branches 0 and 1"},
      {R"({"$ref": "other.json"})", "#/$ref"},
      {R"({"$ref": "#/nowhere"})", "does not exist"},
      {R"({"$ref": "#"})", "refers to itself"},
      {R"({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})",
       "no finite text"},
      {R"({"type": "strin"})", "unknown type"},
      {R"x({"pattern": "(?=a)"})x", "#/pattern: regex: look-around"},
      {R"x({"properties": {"a": {"type": "string", "pattern": "(?=a)"}}})x",
       "#/properties/a/pattern: regex: look-around"},
      {R"x({"items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"pattern": "(a"}}})x",
       "#/$defs/x/pattern: regex: "},
      {R"x({"allOf": [{"type": "string"}, {"pattern": "["}]})x", "#/allOf/1/pattern: regex: "},
      {R"x({"patternProperties": {"^b(?!c)": {}}})x", "#/patternProperties/^b(?!c): regex: "},
      {R"({"type": "number", "multipleOf": 0.3})", "multipleOf"},
      {R"({"type": "integer", "multipleOf": 50021, "maximum": 1000000000000})",
       "multipleOf: 50021"},
      // 988027 is a multiple of both, which a search meets late.
      {R"({"oneOf": [{"type": "integer", "multipleOf": 997, "minimum": 1, "maximum": 1000000000},
                     {"type": "integer", "multipleOf": 991, "minimum": 1, "maximum": 1000000000}]})",
       "#/oneOf: branches 0 and 1"},
      {R"({"oneOf": [{"type": "string", "pattern": "a.{12}b"},
                     {"type": "string", "pattern": "c.{12}d"}]})",
       "#/oneOf: branches 0 and 1"},
      {R"({"type": "string", "pattern": "a.{5}b", "minLength": 50, "maxLength": 100})",
       "too complex"},
      {R"({"minLength": -1})", "whole number"},
      {"[", "not valid JSON"},
      {"3", "must be an object"},
      {"false", "no finite text"}};
  for (const auto& [schema, place] : cases) {
    const auto grammar = CompileJsonSchema(schema);
    ASSERT_FALSE(grammar.ok()) << schema;
    const std::string& message = grammar.status().message();
    EXPECT_NE(message.find(place), std::string::npos) << schema << ": " << message;
    if (place.find("regex: ") != std::string::npos) {
      EXPECT_TRUE(message.starts_with(place)) << message;  // named once
    }
  }
}

TEST(JsonSchemaTest, HostileSchemasAreBounded) {
  std::string branches = R"({"enum": [)";
  for (int i = 0; i < 10'000; ++i) branches += (i > 0 ? ",\"v" : "\"v") + std::to_string(i) + "\"";
  branches += "]}";
  EXPECT_TRUE(Judge(branches, "\"v9999\""));
  EXPECT_FALSE(Judge(branches, "\"v10000\""));
  std::string product = R"({"allOf": [)";  // 2^30 combinations
  for (int i = 0; i < 30; ++i) {
    product += std::string(i > 0 ? "," : "") + R"({"anyOf": [{"minimum": )" + std::to_string(i) +
               R"(}, {"maximum": )" + std::to_string(100 + i) + "}]}";
  }
  EXPECT_FALSE(CompileJsonSchema(product + "]}").ok());
  EXPECT_FALSE(CompileJsonSchema(std::string(300 * 1024, ' ')).ok());
  EXPECT_FALSE(CompileJsonSchema(R"({"minimum": 1e999999})").ok());
  EXPECT_FALSE(CompileJsonSchema(R"({"type": "array", "minItems": 99999999})").ok());
  const std::string name(80'000, 'a');
  EXPECT_TRUE(Judge(R"({"type": "object", "properties": {")" + name + R"(": {"enum": [")" + name +
                        R"(b", ")" + name + R"(c"]}}})",
                    "{}"));
  std::string deep(250, '[');
  EXPECT_FALSE(CompileJsonSchema(deep).ok());
}

}  // namespace
}  // namespace talon
