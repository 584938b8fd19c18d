// What takes the tables of Unicode.
#include <gtest/gtest.h>

#include "text/jinja/test_render.h"

namespace talon::jinja {
namespace {

TEST(JinjaUnicodeTest, CaseAndUnprintableCharacters) {
  ExpectAll({
      {"{{ 'é'.upper() }} {{ 'ÀB'.lower() }} {{ 'straße'.title() }}", "É àb Straße"},
      {R"({{ ['é\u200b'] }})", R"(['é\u200b'])"},
  });
}

}  // namespace
}  // namespace talon::jinja
