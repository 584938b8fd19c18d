// Filters and tests. The expected texts are what jinja2 gives, set up as transformers does.
#include <gtest/gtest.h>

#include "base/json.h"
#include "text/jinja/test_render.h"

namespace talon::jinja {
namespace {

TEST(JinjaFiltersTest, Text) {
  ExpectAll({
      {"[{{ text|trim }}] [{{ 'xax'|trim('x') }}] {{ 5|trim }}", "[Hello World] [a] 5"},
      {"{{ name|upper }} {{ name|lower }} {{ 'aBC d'|capitalize }} {{ \"it's a-dog (big)\"|title "
       "}}",
       "ADA ada Abc d It's A-Dog (Big)"},
      {"{{ 'aXbX'|replace('X', '--') }} {{ 'aaa'|replace('a', 'b', 1) }}", "a--b-- baa"},
      {R"({{ 'a\nb\n\nc'|indent }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\n\nb'|indent(1, blank=true) }}|{{ 'a\nb'|indent('> ') }})",
       "a\n    b\n\n    c|  a\n  b|a\n \n b|a\n> b"},
      {"{{ n|string + '!' }} {{ none|string }} {{ '<b>'|safe }}", "7! None <b>"},
      {"{{ ' 12 '|int }} {{ '3.7'|int }} {{ 'x'|int(9) }} {{ 2.9|int }} {{ '1.5'|float }} {{ "
       "'y'|float }}",
       "12 3 9 2 1.5 0.0"},
      {"{{ -3|abs }} {{ x|abs }} {{ 2.567|round(2) }} {{ 2.5|round }} {{ 3.5|round|int }} {{ "
       "2.1|round(method='ceil') }} {{ 2.19|round(1, 'floor') }}",
       "3 2.5 2.57 2.0 4 3.0 2.1"},
  });
}

TEST(JinjaFiltersTest, Json) {
  ExpectAll({
      {"{{ dict|tojson }}", R"({"b": 1, "a": "two", "c": null})"},
      {R"({{ [1, 1.5, 'é"\n', true, none, (1,), {}]|tojson }})",
       R"([1, 1.5, "é\"\n", true, null, [1], {}])"},
      {"{{ uni|tojson(ensure_ascii=true) }}", R"("na\u00efve \u65e5\u672c \ud83d\ude00")"},
      {"{{ dict|tojson(indent=2) }}", "{\n  \"b\": 1,\n  \"a\": \"two\",\n  \"c\": null\n}"},
      {"{{ []|tojson(indent=4) }} {{ {'a': []}|tojson(indent=1) }}", "[] {\n \"a\": []\n}"},
      {"{{ dict|tojson(sort_keys=true) }} {{ dict|tojson(separators=(',', ':')) }}",
       R"({"a": "two", "b": 1, "c": null} {"b":1,"a":"two","c":null})"},
      {R"({{ '<&>\u2028' | tojson | length }})", "6"},
  });
}

TEST(JinjaFiltersTest, Sequences) {
  ExpectAll({
      {"{{ list|length }} {{ 'abc'|count }} {{ dict|length }} {{ missing|length }}", "3 3 3 0"},
      {"{{ list|first }} {{ list|last }} {{ 'abc'|first }} {{ empty|first }}|", "3 2 a |"},
      {"{{ list|join }} {{ words|join(', ') }} {{ users|join(',', attribute='name') }} {{ "
       "'abc'|join('-') }}",
       "312 pear, Apple, fig Ann,bob,Cid a-b-c"},
      {"{{ list|sort }} {{ list|sort(reverse=true) }} {{ words|sort }} {{ "
       "words|sort(case_sensitive=true) }}",
       "[1, 2, 3] [3, 2, 1] ['Apple', 'fig', 'pear'] ['Apple', 'fig', 'pear']"},
      {"{{ users|sort(attribute='age')|map(attribute='name')|list }}", "['bob', 'Ann', 'Cid']"},
      {"{{ list|reverse|list }} {{ 'abc'|reverse }} {{ [1, 2, 1, 'a', 'A']|unique|list }}",
       "[2, 1, 3] cba [1, 2, 'a']"},
      {"{{ list|sum }} {{ users|sum(attribute='age') }} {{ list|min }} {{ list|max }}", "6 87 1 3"},
      {"{{ 'abc'|list }} {{ dict|list }}", "['a', 'b', 'c'] ['b', 'a', 'c']"},
  });
}

TEST(JinjaFiltersTest, Dicts) {
  ExpectAll({
      {"{% for k, v in dict|items %}{{ k }}{{ v }} {% endfor %}", "b1 atwo cNone "},
      {"{% for k, v in dict|dictsort %}{{ k }}{{ v }} {% endfor %}", "atwo b1 cNone "},
      {"{% for k, v in {'x': 2, 'y': 1}|dictsort(by='value') %}{{ k }} {% endfor %}", "y x "},
      {"{% for k, v in {'x': 2, 'y': 1}|dictsort(reverse=true) %}{{ k }} {% endfor %}", "y x "},
      {"{{ missing|items|list }}", "[]"},
  });
}

TEST(JinjaFiltersTest, Selection) {
  ExpectAll({
      {"{{ users|selectattr('age', 'equalto', 31)|map(attribute='name')|list }}", "['Ann', 'Cid']"},
      {"{{ users|selectattr('on')|map(attribute='name')|join }} {{ "
       "users|rejectattr('on')|map(attribute='name')|join }}",
       "Ann bobCid"},
      {"{{ users|selectattr('on', 'defined')|list|length }} {{ users|rejectattr('age', 'gt', "
       "30)|list|length }}",
       "2 1"},
      {"{{ list|select('odd')|list }} {{ list|reject('equalto', 3)|list }} {{ [0, 1, "
       "'']|select|list }}",
       "[3, 1] [1, 2] [1]"},
      {"{{ words|map('upper')|list }} {{ words|map('replace', 'p', 'b')|join(' ') }}",
       "['PEAR', 'APPLE', 'FIG'] bear Abble fig"},
      {"{{ users|map(attribute='on', default='-')|list }} {{ none|map('upper')|list }}",
       "[True, False, '-'] []"},
      {"{{ list|select('in', [1, 2])|list }} {{ list|select('>', 1)|list }}", "[1, 2] [3, 2]"},
  });
}

TEST(JinjaFiltersTest, Default) {
  ExpectAll({
      {"{{ missing|default('d') }} {{ none|default('d') }} {{ none|default('d', true) }} {{ "
       "''|d('e', boolean=true) }} {{ missing|d }}|",
       "d None d e |"},
  });
}

TEST(JinjaFiltersTest, Tests) {
  ExpectAll({
      {"{{ n is defined }} {{ missing is defined }} {{ missing is undefined }} {{ n is not "
       "undefined }}",
       "True False True True"},
      {"{{ none is none }} {{ n is none }} {{ 'a' is string }} {{ 1 is string }}",
       "True False True False"},
      {"{{ 1 is number }} {{ true is number }} {{ 1 is integer }} {{ true is integer }} {{ 1.0 is "
       "float }}",
       "True True True False True"},
      {"{{ dict is mapping }} {{ list is mapping }} {{ list is iterable }} {{ 'a' is iterable }} "
       "{{ 1 is iterable }}",
       "True False True True False"},
      {"{{ list is sequence }} {{ dict is sequence }} {{ 1 is sequence }} {{ true is boolean }} {{ "
       "1 is boolean }}",
       "True True False True False"},
      {"{{ true is true }} {{ 1 is true }} {{ false is false }} {{ 3 is odd }} {{ 4 is even }} {{ "
       "9 is divisibleby 3 }}",
       "True False True True True True"},
      {"{{ 1 is eq 1 }} {{ 1 is ne 2 }} {{ 1 is lt 2 }} {{ 2 is ge(2) }} {{ 'a' is in ['a'] }} {{ "
       "'abc' is lower }} {{ 'abc' is upper }}",
       "True True True True True True False"},
      {"{{ 1 is not none and 2 is not none }} {{ not 1 is none }}", "True True"},
  });
}

}  // namespace
}  // namespace talon::jinja
