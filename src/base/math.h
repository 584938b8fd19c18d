// Integer arithmetic that every module uses.
#ifndef TALON_BASE_MATH_H_
#define TALON_BASE_MATH_H_

#include <concepts>

namespace talon {

// ceil(a / b). REQUIRES: a >= 0, b > 0.
template <std::integral A, std::integral B>
constexpr auto CeilDiv(A a, B b) {
  return (a + b - 1) / b;
}

// The least multiple of `b` that is at least `a`. REQUIRES: a >= 0, b > 0.
template <std::integral A, std::integral B>
constexpr auto RoundUp(A a, B b) {
  return CeilDiv(a, b) * b;
}

}  // namespace talon

#endif  // TALON_BASE_MATH_H_
