// Numbers within bounds, as text.
#ifndef TALON_GRAMMAR_SCHEMA_NUMBER_EXPR_H_
#define TALON_GRAMMAR_SCHEMA_NUMBER_EXPR_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.h"
#include "base/status.h"
#include "grammar/expr.h"

namespace talon {

// A decimal number without an exponent.
struct Decimal {
  bool negative = false;
  std::string whole = "0";  // without leading zeros
  std::string fraction;     // without trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};
// -1, 0 or 1.
int Compare(const Decimal& a, const Decimal& b);

// From a JSON number's text; InvalidArgument if it is beyond 300 digits.
Result<Decimal> ParseDecimal(std::string_view text);

struct Bound {
  Decimal value;
  bool exclusive = false;
};

struct NumberSpec {
  bool integer = false;
  std::optional<Bound> min;
  std::optional<Bound> max;
  std::vector<Decimal> multiples;  // it must be a multiple of each
};

// The numbers as JSON text. Integers have no fraction; exponents are allowed only in numbers
// without any bound. Unimplemented: a multiple that is neither an integer nor a power of ten, or
// that is too large for a search among many numbers below a bound.
Result<ExprId> NumberExpr(const NumberSpec& spec, ExprPool* pool);

}  // namespace talon

#endif  // TALON_GRAMMAR_SCHEMA_NUMBER_EXPR_H_
