#include "grammar/schema/json_formats.h"

#include <array>
#include <utility>

namespace talon {
namespace {

#define TALON_DATE                                                                           \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|"    \
  "[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|" \
  "(?:[02468][048]|[13579][26])00)-02-29)"
#define TALON_TIME                                                          \
  "(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:[Zz]|" \
  "[+-](?:[01][0-9]|2[0-3]):[0-5][0-9]))"
#define TALON_OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
#define TALON_IPV4 "(?:" TALON_OCTET "\\." TALON_OCTET "\\." TALON_OCTET "\\." TALON_OCTET ")"
#define TALON_H16 "[0-9A-Fa-f]{1,4}"
#define TALON_LS32 "(?:" TALON_H16 ":" TALON_H16 "|" TALON_IPV4 ")"
#define TALON_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kFormats = {{
    {"date", TALON_DATE},
    {"date-time", TALON_DATE "[Tt]" TALON_TIME},
    {"duration",
     "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
     "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))?|"
     "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))"},
    {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" TALON_LABEL
              "(?:\\." TALON_LABEL ")*"},
    {"hostname", TALON_LABEL "(?:\\." TALON_LABEL ")*"},
    {"ipv4", TALON_IPV4},
    {"ipv6",
     "(?:" TALON_H16 ":){6}" TALON_LS32 "|::(?:" TALON_H16 ":){5}" TALON_LS32 "|(?:" TALON_H16
     ")?::(?:" TALON_H16 ":){4}" TALON_LS32 "|(?:" TALON_H16 "(?::" TALON_H16 ")?)?::(?:" TALON_H16
     ":){3}" TALON_LS32 "|(?:" TALON_H16 "(?::" TALON_H16 "){0,2})?::(?:" TALON_H16
     ":){2}" TALON_LS32 "|(?:" TALON_H16 "(?::" TALON_H16 "){0,3})?::" TALON_H16 ":" TALON_LS32
     "|(?:" TALON_H16 "(?::" TALON_H16 "){0,4})?::" TALON_LS32 "|(?:" TALON_H16 "(?::" TALON_H16
     "){0,5})?::" TALON_H16 "|(?:" TALON_H16 "(?::" TALON_H16 "){0,6})?::"},
    {"time", TALON_TIME},
    {"uri",
     "[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9\\-._~!$&'()*+,;=:@/?#]|\\[[0-9A-Fa-f:.]+\\]|"
     "%[0-9A-Fa-f]{2})+"},
    {"uuid", "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}"},
}};

}  // namespace

std::string_view JsonFormatRegex(std::string_view format) {
  for (const auto& [name, regex] : kFormats) {
    if (name == format) return regex;
  }
  return {};
}

}  // namespace talon
