// Expressions. The expected texts are what jinja2 gives, set up as transformers does.
#include <gtest/gtest.h>

#include "text/jinja/test_render.h"

namespace talon::jinja {
namespace {

TEST(JinjaExpressionsTest, Literals) {
  ExpectAll({
      {R"({{ 'a\nb\t\'\\' }})", "a\nb\t'\\"},
      {R"({{ "\u00e9\x41\101\q" }})", R"(éAA\q)"},
      {"{{ 'one' 'two' }}", "onetwo"},
      {"{{ 12 }} {{ 1.50 }} {{ 1e3 }} {{ 2e-7 }}", "12 1.5 1000.0 2e-07"},
      {"{{ true }} {{ False }} {{ none }} {{ None }}", "True False None None"},
      {"{{ [1, 'a', none, true, 1.0,] }}", "[1, 'a', None, True, 1.0]"},
      {"{{ (1,) }} {{ (1, 2) }} {{ () }}", "(1,) (1, 2) ()"},
      {R"({{ {'a': 1, "b": [2]} }})", "{'a': 1, 'b': [2]}"},
      {R"({{ ['it\'s', 'say "x"', 'tab\t', 'é'] }})", R"(["it's", 'say "x"', 'tab\t', 'é'])"},
      {"{{ 1e16 }} {{ 123456789.125 }} {{ 0.0001 }} {{ 0.00001 }}",
       "1e+16 123456789.125 0.0001 1e-05"},
  });
}

TEST(JinjaExpressionsTest, Arithmetic) {
  ExpectAll({
      {"{{ 1 + 2 * 3 - 4 }}", "3"},
      {"{{ 7 / 2 }} {{ 6 / 2 }}", "3.5 3.0"},
      {"{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }}", "3 -4 1 2 -2"},
      {"{{ 2 ** 10 }} {{ 2 ** -1 }} {{ -2 ** 2 }}", "1024 0.5 4"},
      {"{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ n + x }}", "3.0 0.5 9.5"},
      {"{{ 'ab' * 3 }} {{ [1] * 2 }} {{ 'x' * -1 }}|", "ababab [1, 1] |"},
      {"{{ 'a' + 'b' }} {{ [1] + [2] }} {{ (1,) + (2,) }}", "ab [1, 2] (1, 2)"},
      {"{{ 1 ~ 'a' ~ none ~ true ~ missing ~ 1.0 }}", "1aNoneTrue1.0"},
      {"{{ yes + 1 }} {{ +3 }} {{ -n }} {{ - -n }}", "2 3 -7 7"},
  });
}

TEST(JinjaExpressionsTest, ComparisonsAndLogic) {
  ExpectAll({
      {"{{ 1 < 2 }} {{ 2 <= 1 }} {{ 1 != 1.0 }} {{ true == 1 }}", "True False False True"},
      {"{{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ [1, 2] < [1, 3] }}", "True True True"},
      {"{{ [1] < [1, 2] }} {{ [1, 2] < [1] }} {{ (1, 2) < (1, 3) }} {{ [1] <= [1] }}",
       "True False True True"},
      {"{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }}", "True False"},
      {"{{ 1 in list }} {{ 9 not in list }} {{ 'ell' in text }} {{ 'a' in dict }} {{ 1 in missing "
       "}}",
       "True True True True False"},
      {"{{ not 1 }} {{ not empty }} {{ not not 'x' }}", "False True True"},
      {"{{ 0 or 'a' }} {{ 1 and 'b' }} {{ '' and x }}| {{ none or empty }}", "a b | []"},
      {"{{ 'y' if yes else 'n' }} {{ 'y' if none else 'n' }} {{ 'y' if empty }}|", "y n |"},
      {"{{ 1 if none else 2 if none else 3 }}", "3"},
      {"{{ none == none }} {{ missing == other }} {{ [1] == (1,) }} {{ dict == {'b': 1, 'a': "
       "'two', 'c': none} }}",
       "True True False True"},
      {"{{ 'a' is string and 'b' or 'c' }}", "b"},
  });
}

TEST(JinjaExpressionsTest, LookUps) {
  ExpectAll({
      {"{{ dict.a }} {{ dict['b'] }} {{ dict.missing }}| {{ dict['c'] }}", "two 1 | None"},
      {"{{ list[0] }} {{ list[-1] }} {{ list[9] }}| {{ list.1 }}", "3 2 | 1"},
      {"{{ uni[2] }} {{ uni[-1] }} {{ uni[6:8] }} {{ uni|length }}", "ï 😀 日本 10"},
      {"{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ list[::2] }} {{ list[5:] }} {{ "
       "list[-99:99] }}",
       "[1, 2] [3, 1] [2, 1, 3] [3, 2] [] [3, 1, 2]"},
      {"{{ name[::-1] }} {{ name[1:] }} {{ uni[::-1] }} {{ name[2:0:-1] }}",
       "adA da 😀 本日 evïan ad"},
      {"{{ users[0].name }} {{ users[1]['age'] }} {{ users[-1].on is defined }}", "Ann 25 False"},
      {"{{ none.x is defined }} {{ none[1:] is defined }} {{ n.x }}|", "False False |"},
      {"{{ (1, 2)[1] }} {{ [1, [2, 3]][1][0] }} {{ {'k': 5}.k }} {{ 'abc'[1] }}", "2 2 5 b"},
      {"{{ dict.items is defined }} {{ dict['get'] is callable }}", "True True"},
  });
}

TEST(JinjaExpressionsTest, StringMethods) {
  ExpectAll({
      {"[{{ text.strip() }}] [{{ text.lstrip() }}] [{{ text.rstrip() }}]",
       "[Hello World] [Hello World \n] [  Hello World]"},
      {"{{ 'xxaxx'.strip('x') }} {{ 'abcba'.lstrip('ba') }} {{ 'a.,'.rstrip(',.') }}", "a cba a"},
      {"{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a-b-c'.split('-', 1) }} {{ 'a b "
       "c'.split(maxsplit=1) }}",
       "['a', 'b', '', 'c'] ['a', 'b'] ['a', 'b-c'] ['a', 'b c']"},
      {R"({{ 'a-b-c'.rsplit('-', 1) }} {{ 'a\nb\n'.splitlines() }} {{ ''.split(',') }} {{ ''.split() }})",
       "['a-b', 'c'] ['a', 'b'] [''] []"},
      {"{{ name.startswith('A') }} {{ name.endswith(('x', 'da')) }} {{ name.startswith('') }}",
       "True True True"},
      {R"({{ name.upper() }} {{ name.lower() }} {{ "it's a dog".title() }} {{ 'aBC'.capitalize() }})",
       "ADA ada It'S A Dog Abc"},
      {"{{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }} {{ 'ab'.replace('c', 'd') }}",
       "bba -a-b- ab"},
      {"{{ uni.find('日') }} {{ 'abab'.rfind('ab') }} {{ 'abc'.find('x') }} {{ 'aXbX'.count('X') "
       "}}",
       "6 2 -1 2"},
      {"{{ ', '.join(['a', 'b']) }} {{ '12'.isdigit() }} {{ ''.isdigit() }}", "a, b True False"},
      {"{{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.py'.removesuffix('.py') }}", "x x"},
      {R"({{ 'a</think>b'.split('</think>')[-1].lstrip('\n') }})", "b"},
  });
}

TEST(JinjaExpressionsTest, DictAndListMethods) {
  ExpectAll({
      {"{% for k, v in dict.items() %}{{ k }}={{ v }};{% endfor %}", "b=1;a=two;c=None;"},
      {"{{ dict.keys()|list }} {{ dict.values()|list }}", "['b', 'a', 'c'] [1, 'two', None]"},
      {"{{ dict.get('a') }} {{ dict.get('z') }} {{ dict.get('z', 5) }} {{ dict.get('c', 1) }}",
       "two None 5 None"},
      {"{{ list.index(2) }} {{ [1, 1].count(1) }}", "2 2"},
  });
}

TEST(JinjaExpressionsTest, Globals) {
  ExpectAll({
      {"{{ range(3)|list }} {{ range(1, 4)|list }} {{ range(5, 0, -2)|list }}",
       "[0, 1, 2] [1, 2, 3] [5, 3, 1]"},
      {"{% set ns = namespace(a=1, b='x') %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c "
       "}}",
       "2x"},
      {"{{ strftime_now('%%') }}", "%"},
  });
  // Without the variable of that name.
  EXPECT_EQ(RenderOrError("{{ dict({'b': 1, 'a': 2}, a=3) }} {{ dict() }}"), "{'b': 1, 'a': 3} {}");
}

}  // namespace
}  // namespace talon::jinja
