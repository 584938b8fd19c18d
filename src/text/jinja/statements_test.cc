// Statements and white space. The expected texts are what jinja2 gives, set up as transformers
// does.
#include <gtest/gtest.h>

#include "text/jinja/test_render.h"

namespace talon::jinja {
namespace {

TEST(JinjaStatementsTest, WhitespaceAroundTags) {
  ExpectAll({
      {"a\n{% if true %}\n  b\n{% endif %}\nc\n", "a\n  b\nc"},
      {"a\n   {% if true %}   \nb{% endif %}", "a\n   \nb"},
      {"  {{ n }}  \n  {{ n }}\n", "  7  \n  7"},
      {"a {%- if true -%} b {%- endif -%} c", "abc"},
      {"a\n\n{{- n -}}\n\nb", "a7b"},
      {"x {# note #} y\n{# own line #}\nz", "x  y\nz"},
      {"x\n  {#- trimmed -#}\n  y", "xy"},
      {"  {%+ if true %}a{% endif %}", "  a"},
      {"{% if true +%}\na{% endif %}", "\na"},
      {"a\r\nb\rc\n\n", "a\nb\nc\n"},
      {"{% for i in [1, 2] %}\n    {{ i }}\n    {% endfor %}\nend", "    1\n    2\nend"},
      {"{% if true %}\n   {% set a = 1 %}\n   {{ a }}\n{% endif %}", "   1\n"},
      {"{% raw %}{{ n }} {% x %}{% endraw %}!", "{{ n }} {% x %}!"},
      {"a{% raw -%}  b  {%- endraw %}c", "abc"},
  });
}

TEST(JinjaStatementsTest, If) {
  ExpectAll({
      {"{% if none %}a{% elif n == 7 %}b{% else %}c{% endif %}", "b"},
      {"{% if none %}a{% elif none %}b{% else %}c{% endif %}", "c"},
      {"{% if none %}a{% endif %}", ""},
      {"{% if missing %}a{% else %}b{% endif %}", "b"},
      {"{% if true %}{% set a = 1 %}{% endif %}{{ a }}", "1"},
  });
}

TEST(JinjaStatementsTest, For) {
  ExpectAll({
      {"{% for i in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 "
       "}}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
       "1032TrueFalse3 2121FalseFalse3 3210FalseTrue3 "},
      {"{% for i in list %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}",
       "<3>1 3<1>2 1<2> "},
      {"{% for i in empty %}x{% else %}none{% endfor %}{% for i in missing %}x{% endfor %}",
       "none"},
      {"{% for k, v in dict.items() %}{{ k }}{{ v }}{% endfor %}", "b1atwocNone"},
      {"{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }} {% endfor %}{% for c in 'aé' %}{{ c }}.{% "
       "endfor %}",
       "12 34 a.é."},
      {"{% for u in users if u.age > 30 %}{{ loop.index }}/{{ loop.length }} {{ u.name }};{% "
       "endfor %}",
       "1/2 Ann;2/2 Cid;"},
      {"{% for k in dict %}{{ k }}{% endfor %}{% for i in 1, 2 %}{{ i }}{% endfor %}", "bac12"},
      {"{% for i in list %}{% for j in list %}{{ loop.index }}{% endfor %}{{ loop.index }} {% "
       "endfor %}",
       "1231 1232 1233 "},
      {"{% for i in range(9) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break "
       "%}{% endif %}{{ i }}{% endfor %}",
       "023"},
      {"{% for i in list if i > 9 %}x{% else %}e{% endfor %}", "e"},
  });
}

TEST(JinjaStatementsTest, Scopes) {
  ExpectAll({
      {"{% set a = 1 %}{% for i in list %}{% set a = a + i %}{{ a }} {% endfor %}{{ a }}",
       "4 2 3 1"},
      {"{% set ns = namespace(a=1) %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ "
       "ns.a }}",
       "7"},
      {"{% for i in [1] %}{% set z = 1 %}{% endfor %}{{ z is defined }}", "False"},
      {"{% set n = 1 %}{{ n }}{% for n in [5] %}{{ n }}{% endfor %}{{ n }}", "151"},
      {"{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}", "1False"},
  });
}

TEST(JinjaStatementsTest, Set) {
  ExpectAll({
      {"{% set a, b = 1, 'x' %}{{ a }}{{ b }}", "1x"},
      {"{% set a = 1, 2 %}{{ a }}", "(1, 2)"},
      {"{% set a = 'x' if none else 'y' %}{{ a }}", "y"},
      {"{% set a %}\n hi {{ name }}\n{% endset %}[{{ a }}]", "[ hi Ada\n]"},
      {"{% set a | trim | upper %}  hi {% endset %}[{{ a }}]", "[HI]"},
      {"{% set (a, b) = [1, 2] %}{{ b }}", "2"},
      {"{% filter upper %}abc {{ name }}{% endfilter %}!", "ABC ADA!"},
  });
}

TEST(JinjaStatementsTest, Macros) {
  ExpectAll({
      {"{% macro hi(who, mark='!') %}Hi {{ who }}{{ mark }}{% endmacro %}{{ hi('a') }}{{ "
       "hi(who='b', mark='?') }}{{ hi() }}",
       "Hi a!Hi b?Hi !"},
      {"{% macro fact(k) %}{% if k < 2 %}1{% else %}{{ k * (fact(k - 1)|int) }}{% endif %}{% "
       "endmacro %}{{ fact(6) }}",
       "720"},
      {"{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}", "1112"},
      {"{% set g = 1 %}{% macro m() %}{{ g }}{{ l is defined }}{% endmacro %}{% set g = 2 %}{% for "
       "l in [1] %}{{ m() }}{% endfor %}",
       "2False"},
      {"{% macro m(x) %}[{{ x }}]{% endmacro %}{% set t = m('v') %}{{ t|length }}{{ (m('q') ~ "
       "'z')|upper }}",
       "3[Q]Z"},
      {"{%- macro pad(s) -%}\n  <{{ s }}>\n{%- endmacro -%}\n{{ pad('a') }}\n{{ pad('b') }}",
       "<a>\n<b>"},
  });
}

TEST(JinjaStatementsTest, Generation) {
  ExpectAll({
      {"{% for m in users %}{% generation %}{{ m.name }}{% endgeneration %},{% endfor %}",
       "Ann,bob,Cid,"},
  });
}

}  // namespace
}  // namespace talon::jinja
