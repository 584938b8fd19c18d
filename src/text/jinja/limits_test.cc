// What a template may not do: errors at parsing, errors at rendering, and limits.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "text/jinja/test_render.h"

namespace talon::jinja {
namespace {

void ExpectErrors(const std::vector<RenderCase>& cases) {
  for (const RenderCase& c : cases) {
    EXPECT_EQ(RenderOrError(c.source), "error: " + std::string(c.expected)) << c.source;
  }
}

std::string Repeat(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(JinjaErrorsTest, UnknownNamesFailAtParsingEvenWhereNothingRuns) {
  ExpectErrors({
      {"a\n\n{{ x|foo }}", "line 3: unknown filter 'foo'"},
      {"{% if false %}{{ x is foo }}{% endif %}", "line 1: unknown test 'foo'"},
      {"{% if false %}{{ foo(1) }}{% endif %}", "line 1: unknown function 'foo'"},
      {"{{ x.append(1) }}", "line 1: unknown method 'append'"},
      {"\n{% include 'x' %}", "line 2: unknown tag 'include'"},
      {"{{ x|map('foo')|list }}", "line 1: unknown filter 'foo'"},
      {"{{ x|select('foo')|list }}", "line 1: unknown test 'foo'"},
      {"{{ x|selectattr('a', 'foo')|list }}", "line 1: unknown test 'foo'"},
      {"{% for i in x recursive %}{% endfor %}", "line 1: recursive loops are not supported"},
      {"{{ 'a'|safe + 'b' }}", "line 1: the filter 'safe' beside '+' is not supported"},
      {"{{ {1: 2} }}", "line 1: a dict's key must be a str"},
  });
}

TEST(JinjaErrorsTest, BadSyntaxSaysWhatWasExpected) {
  ExpectErrors({
      {"{% if x %}", "line 1: expected 'endif', found the end of the template"},
      {"{{ x", "line 1: a tag has no end"},
      {"{# x", "line 1: a comment has no end"},
      {"{{ 'x }}", "line 1: a string has no end"},
      {"{{ }}", "line 1: expected an expression, found '}}'"},
      {"{{ a b }}", "line 1: expected '}}', found 'b'"},
      {"{{ (a }}", "line 1: unexpected '}', expected ')'"},
      {"{{ a ! b }}", "line 1: unexpected character '!'"},
      {"{% for in x %}{% endfor %}", "line 1: expected 'in', found 'x'"},
      {"{% endfor %}", "line 1: unknown tag 'endfor'"},
      {"{% break %}", "line 1: break or continue outside of a loop"},
      {"{{ x|replace('a') }}", "line 1: filter 'replace' needs the argument 'new'"},
      {"{{ x|trim('a', 'b') }}", "line 1: filter 'trim' takes at most 1 arguments, 2 given"},
      {"{{ x|join(sep='a') }}", "line 1: filter 'join' does not take the argument 'sep'"},
      {"{{ 99999999999999999999 }}", "line 1: the number 99999999999999999999 is out of range"},
      {"{{ '\\ud800' }}", "line 1: a string has an escape for U+D800, which is no character"},
      {"\xFF", "not valid UTF-8 at byte 0"},
  });
}

TEST(JinjaErrorsTest, RenderErrorsNameTheLine) {
  ExpectErrors({
      {"a\n{{ missing.x }}", "chat template, line 2: variable 'missing' is undefined"},
      {"{% set d = {} %}{{ d.a.b }}", "chat template, line 1: attribute 'a' is undefined"},
      {"{{ 'a' + 1 }}", "chat template, line 1: str + int is not supported"},
      {"{{ 'a' + missing }}", "chat template, line 1: variable 'missing' is undefined"},
      {"{{ 1 // 0 }}", "chat template, line 1: division by zero"},
      {"{{ 9223372036854775807 + 1 }}",
       "chat template, line 1: 9223372036854775807 + 1 is too large"},
      {"{{ 1 < 'a' }}", "chat template, line 1: int and str have no order"},
      {"{{ (1, 2) < [1, 3] }}", "chat template, line 1: tuple and list have no order"},
      {"{{ dict([1]) }}", "chat template, line 1: dict copies only a dict"},
      {"{{ (-9223372036854775807 - 1) // -1 }}",
       "chat template, line 1: -9223372036854775808 // -1 is too large"},
      {"{% for i in 5 %}{% endfor %}", "chat template, line 1: int cannot be iterated over"},
      {"{% set x = 1 %}{% set x.y = 2 %}", "chat template, line 1: 'x' is not a namespace"},
      {"{% set a, b = [1] %}", "chat template, line 1: 1 values for 2 names"},
      {"{{ missing|tojson }}", "chat template, line 1: tojson: variable 'missing' is undefined"},
      {"{{ namespace() }}", "chat template, line 1: a namespace cannot be printed"},
      {"{{ range(1000000) }}", "chat template, line 1: range: more than 100000 numbers"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
       "chat template, line 1: macro 'm' takes at most 1 arguments, 2 given"},
  });
}

TEST(JinjaErrorsTest, RaiseExceptionKeepsItsMessage) {
  EXPECT_EQ(RenderOrError("\n{{ raise_exception('Roles must alternate') }}"),
            "error: Roles must alternate");
}

TEST(JinjaLimitsTest, NestingOfSourceIsBounded) {
  EXPECT_NE(RenderOrError("{{ " + Repeat("(", 5000) + "1" + Repeat(")", 5000) + " }}")
                .find("nested more than"),
            std::string::npos);
  EXPECT_NE(RenderOrError("{{ " + Repeat("not ", 5000) + "1 }}").find("nested more than"),
            std::string::npos);
  EXPECT_NE(RenderOrError("{{ 1" + Repeat(" + 1", 5000) + " }}").find("in a chain"),
            std::string::npos);
  EXPECT_NE(RenderOrError("{{ x" + Repeat(".x", 5000) + " }}").find("in a chain"),
            std::string::npos);
  EXPECT_NE(RenderOrError(Repeat("{% if 1 %}", 5000)).find("tags are nested more than"),
            std::string::npos);
  EXPECT_NE(RenderOrError(Repeat("x", 2 << 20)).find("limit"), std::string::npos);
  EXPECT_EQ(RenderOrError("{{ 1" + Repeat(" + 1", 99) + " }}"), "100");
}

TEST(JinjaLimitsTest, NestingOfVariablesIsBounded) {
  OrderedJson json = OrderedJson::array();
  for (int level = 1; level < 256; ++level) json = OrderedJson::array({json});
  EXPECT_TRUE(ValueFromJson(json).ok());
  EXPECT_EQ(ValueFromJson(OrderedJson::array({json})).status().message(),
            "JSON nested more than 256 levels deep");
}

TEST(JinjaLimitsTest, EndlessRecursionEnds) {
  EXPECT_NE(RenderOrError("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").find("recurses"),
            std::string::npos);
}

TEST(JinjaLimitsTest, WorkIsBounded) {
  const std::string loops =
      Repeat("{% for i in range(100000) %}", 3) + "{% set a = 1 %}" + Repeat("{% endfor %}", 3);
  EXPECT_NE(RenderOrError(loops).find("too much work"), std::string::npos);
}

TEST(JinjaLimitsTest, ValuesThatDoubleAreBounded) {
  for (const char* grow : {"ns.x ~ ns.x", "[ns.x, ns.x]", "ns.x * 100", "{'a': ns.x, 'b': ns.x}",
                           "ns.x|string|replace('', 'xxxxxxxx')", "ns.x|join('----------')"}) {
    const std::string source = std::string("{% set ns = namespace(x='ab') %}") +
                               "{% for i in range(200) %}{% set ns.x = " + grow +
                               " %}{% endfor %}{{ ns.x == ns.x ~ 'a' }}{{ ns.x|tojson }}";
    EXPECT_NE(RenderOrError(source).find("error: "), std::string::npos) << grow;
  }
}

TEST(JinjaLimitsTest, OutputIsBounded) {
  const std::string source =
      "{% set x = 'a' * 10000000 %}{% for i in range(10) %}{{ x }}{% endfor %}";
  EXPECT_NE(RenderOrError(source).find("the output is larger than"), std::string::npos);
}

TEST(JinjaLimitsTest, NamespacesThatContainThemselvesAreFreed) {
  EXPECT_EQ(RenderOrError("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}"
                          "{% macro m() %}x{% endmacro %}{% set ns.m = m %}{{ ns.me.me == ns }}"),
            "True");
}

TEST(JinjaLimitsTest, MacrosOutliveTheScopeTheyWereDefinedIn) {
  EXPECT_EQ(RenderOrError("{% set ns = namespace() %}{% for i in [1] %}{% macro m() %}[{{ ns.a }}]"
                          "{% endmacro %}{% set ns.f = m %}{% endfor %}{% set ns.a = 2 %}"
                          "{% set f = ns.f %}{{ f() }}"),
            "[2]");
}

TEST(JinjaLimitsTest, OneParsedTemplateServesManyThreads) {
  const auto block = ParseTemplate(
      "{% set ns = namespace(a=0) %}{% for i in range(1000) %}"
      "{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}");
  ASSERT_TRUE(block.ok());
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (std::string& text : texts) {
    threads.emplace_back([&] {
      Evaluator evaluator;
      text = evaluator.Run(*block, {}).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(texts, std::vector<std::string>(4, "499500"));
}

}  // namespace
}  // namespace talon::jinja
