// What values are valid, and the one wording for those that are not: "top_p: 1.5, must be 0 to 1".
#ifndef TALON_BASE_VALID_VALUES_H_
#define TALON_BASE_VALID_VALUES_H_

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/status.h"

namespace talon {

// A range of numbers with both ends, unless said otherwise. NaN is in no range.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above_low = false;        // `low` itself is not valid
  std::optional<double> also{};  // a valid value outside of the range

  // A float is compared with the ends as floats, so that 0.01f is in a range that starts at 0.01.
  template <typename T>
  constexpr bool Contains(T value) const {
    using Number = std::conditional_t<std::is_same_v<T, float>, float, double>;
    const auto number = static_cast<Number>(value);
    if (also && number == static_cast<Number>(*also)) return true;
    const auto least = static_cast<Number>(low);
    return (above_low ? number > least : number >= least) && number <= static_cast<Number>(high);
  }

  // "0 to 1", "1 or more", "above 0, at most 64", "-1 or 0 to 100".
  std::string ToString() const;
};

// The error names the value and the range.
template <typename T>
Status CheckRange(std::string_view name, T value, const Range& range) {
  if (range.Contains(value)) return OkStatus();
  return InvalidArgument("{}: {}, must be {}", name, value, range.ToString());
}

// "8, 16, 32 or 64"
std::string JoinWithOr(const std::vector<std::string>& names);

}  // namespace talon

#endif  // TALON_BASE_VALID_VALUES_H_
