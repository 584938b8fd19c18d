#include "grammar/schema/number_expr.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grammar/schema/json_text.h"

namespace talon {
namespace {

constexpr int kMostDigits = 300;

// Expressions for the text of a number without its sign.
class Magnitudes {
 public:
  explicit Magnitudes(ExprPool* pool) : pool_(*pool) {}

  ExprId Digits(int min, int max) { return pool_.Repeat(Digit('0', '9'), min, max); }
  ExprId AnyFraction() {
    return pool_.Optional(pool_.Concat(pool_.Byte('.'), Digits(1, ExprPool::kNoLimit)));
  }
  ExprId AnyWhole() {
    return pool_.Or(
        {pool_.Byte('0'), pool_.Concat(Digit('1', '9'), Digits(0, ExprPool::kNoLimit))});
  }
  ExprId Any() { return pool_.Concat(AnyWhole(), AnyFraction()); }

  ExprId AtLeast(const Decimal& bound, bool exclusive) {
    const int length = static_cast<int>(bound.whole.size());
    std::vector<ExprId> parts = {
        pool_.Sequence({Digit('1', '9'), Digits(length, ExprPool::kNoLimit), AnyFraction()}),
        SameLength(bound.whole, /*above=*/true),
        pool_.Concat(pool_.Literal(bound.whole), FractionAtLeast(bound.fraction, exclusive))};
    return pool_.Or(std::move(parts));
  }

  ExprId AtMost(const Decimal& bound, bool exclusive) {
    const int length = static_cast<int>(bound.whole.size());
    std::vector<ExprId> parts = {
        SameLength(bound.whole, /*above=*/false),
        pool_.Concat(pool_.Literal(bound.whole), FractionAtMost(bound.fraction, exclusive))};
    if (length > 1) {
      const ExprId shorter =
          pool_.Or({pool_.Byte('0'), pool_.Concat(Digit('1', '9'), Digits(0, length - 2))});
      parts.push_back(pool_.Concat(shorter, AnyFraction()));
    }
    return pool_.Or(std::move(parts));
  }

 private:
  ExprId Digit(char first, char last) {
    if (first > last) return ExprPool::kNone;
    return pool_.Bytes(ByteSet::Range(static_cast<uint8_t>(first), static_cast<uint8_t>(last)));
  }

  // Whole numbers of the same length that differ in some digit, with any fraction.
  ExprId SameLength(const std::string& whole, bool above) {
    std::vector<ExprId> parts;
    for (size_t i = 0; i < whole.size(); ++i) {
      const char least = i == 0 && whole.size() > 1 ? '1' : '0';
      const ExprId digit = above ? Digit(static_cast<char>(whole[i] + 1), '9')
                                 : Digit(least, static_cast<char>(whole[i] - 1));
      const auto rest = static_cast<int>(whole.size() - i) - 1;
      parts.push_back(pool_.Sequence(
          {pool_.Literal(whole.substr(0, i)), digit, Digits(rest, rest), AnyFraction()}));
    }
    return pool_.Or(std::move(parts));
  }

  ExprId SomeNonZero() {
    return pool_.Sequence(
        {Digits(0, ExprPool::kNoLimit), Digit('1', '9'), Digits(0, ExprPool::kNoLimit)});
  }

  // Fractions, with their point, that are at least (above) 0.`fraction`.
  ExprId FractionAtLeast(const std::string& fraction, bool exclusive) {
    if (fraction.empty()) {
      return exclusive ? pool_.Concat(pool_.Byte('.'), SomeNonZero()) : AnyFraction();
    }
    std::vector<ExprId> parts;
    for (size_t i = 0; i < fraction.size(); ++i) {
      parts.push_back(pool_.Sequence({pool_.Literal(fmt::format(".{}", fraction.substr(0, i))),
                                      Digit(static_cast<char>(fraction[i] + 1), '9'),
                                      Digits(0, ExprPool::kNoLimit)}));
    }
    parts.push_back(pool_.Concat(pool_.Literal(fmt::format(".{}", fraction)),
                                 exclusive ? SomeNonZero() : Digits(0, ExprPool::kNoLimit)));
    return pool_.Or(std::move(parts));
  }

  ExprId FractionAtMost(const std::string& fraction, bool exclusive) {
    const ExprId zeros = pool_.Repeat(pool_.Byte('0'), 0, ExprPool::kNoLimit);
    const ExprId zero_fraction = pool_.Optional(
        pool_.Concat(pool_.Byte('.'), pool_.Repeat(pool_.Byte('0'), 1, ExprPool::kNoLimit)));
    if (fraction.empty()) return exclusive ? ExprPool::kNone : zero_fraction;
    std::vector<ExprId> parts = {ExprPool::kEmpty};
    for (size_t i = 0; i < fraction.size(); ++i) {
      const std::string same = fmt::format(".{}", fraction.substr(0, i));
      parts.push_back(
          pool_.Sequence({pool_.Literal(same), Digit('0', static_cast<char>(fraction[i] - 1)),
                          Digits(0, ExprPool::kNoLimit)}));
      if (i > 0) parts.push_back(pool_.Literal(same));
    }
    if (!exclusive)
      parts.push_back(pool_.Concat(pool_.Literal(fmt::format(".{}", fraction)), zeros));
    return pool_.Or(std::move(parts));
  }

  ExprPool& pool_;
};

// Numbers with their sign. Negative zero is written only with a fraction or an exponent.
class Numbers {
 public:
  explicit Numbers(ExprPool* pool) : pool_(*pool), magnitudes_(pool) {}

  ExprId AtLeast(const Bound& bound) {
    const bool below_zero = bound.value.negative && !bound.value.is_zero();
    if (!below_zero) return magnitudes_.AtLeast(bound.value, bound.exclusive);
    return pool_.Or(
        {magnitudes_.Any(), Negative(magnitudes_.AtMost(bound.value, bound.exclusive))});
  }
  ExprId AtMost(const Bound& bound) {
    const bool below_zero = bound.value.negative && !bound.value.is_zero();
    if (below_zero) return Negative(magnitudes_.AtLeast(bound.value, bound.exclusive));
    const Decimal zero;
    return pool_.Or({magnitudes_.AtMost(bound.value, bound.exclusive),
                     Negative(magnitudes_.AtLeast(zero, /*exclusive=*/true))});
  }
  ExprId Integers() {
    const ExprId positive = pool_.Concat(pool_.Bytes(ByteSet::Range('1', '9')),
                                         magnitudes_.Digits(0, ExprPool::kNoLimit));
    return pool_.Or({pool_.Byte('0'), pool_.Concat(pool_.Optional(pool_.Byte('-')), positive)});
  }
  ExprId Decimals() { return pool_.Concat(pool_.Optional(pool_.Byte('-')), magnitudes_.Any()); }
  // Whole numbers and fractions of at most `digits` digits.
  ExprId WithFractionOf(int digits) {
    const ExprId fraction =
        pool_.Optional(pool_.Concat(pool_.Byte('.'), magnitudes_.Digits(1, digits)));
    return pool_.Sequence({pool_.Optional(pool_.Byte('-')), magnitudes_.AnyWhole(), fraction});
  }

 private:
  ExprId Negative(ExprId magnitude) { return pool_.Concat(pool_.Byte('-'), magnitude); }

  ExprPool& pool_;
  Magnitudes magnitudes_;
};

// Searches for a multiple of a larger number, where digits are limited, would take too long.
constexpr int64_t kMostSearchedDivisor = 2000;
constexpr int64_t kMostMultiples = 20'000;
constexpr size_t kMostExactDigits = 17;

// The nearest whole number on the inner side of a bound; none if it has too many digits.
std::optional<int64_t> WholeAt(const Bound& bound, bool is_least) {
  if (bound.value.whole.size() > kMostExactDigits) return std::nullopt;
  const int64_t magnitude = std::stoll(bound.value.whole);
  const int64_t value = bound.value.negative ? -magnitude : magnitude;
  const bool between = !bound.value.fraction.empty();
  if (!between) return bound.exclusive ? (is_least ? value + 1 : value - 1) : value;
  if (is_least) return bound.value.negative ? value : value + 1;
  return bound.value.negative ? value - 1 : value;
}

// All multiples between the bounds, if they are few; none if they are not, or are not limited.
std::optional<ExprId> FewMultiples(const NumberSpec& spec, int64_t divisor, ExprPool* pool) {
  if (!spec.integer || !spec.min || !spec.max) return std::nullopt;
  const auto least = WholeAt(*spec.min, /*is_least=*/true);
  const auto most = WholeAt(*spec.max, /*is_least=*/false);
  if (!least || !most) return std::nullopt;
  const int64_t first = *least / divisor + (*least > 0 && *least % divisor != 0 ? 1 : 0);
  const int64_t last = *most / divisor - (*most < 0 && *most % divisor != 0 ? 1 : 0);
  if (last - first >= kMostMultiples) return std::nullopt;
  std::vector<std::string> texts;
  for (int64_t i = first; i <= last; ++i) texts.push_back(std::to_string(i * divisor));
  return pool->AnyOf(std::move(texts));
}

Result<ExprId> MultipleExpr(const Decimal& multiple, ExprPool* pool) {
  Numbers numbers(pool);
  if (multiple.negative || multiple.is_zero()) {
    return InvalidArgument("multipleOf: must be above 0");
  }
  if (multiple.fraction.empty()) {
    if (multiple.whole.size() > 9)
      return Unimplemented("multipleOf: {} is too large", multiple.whole);
    const ExprId digits = pool->Multiple(std::stoll(multiple.whole), 0, /*started=*/false);
    const ExprId zero_fraction = pool->Optional(
        pool->Concat(pool->Byte('.'), pool->Repeat(pool->Byte('0'), 1, ExprPool::kNoLimit)));
    return pool->Sequence({pool->Optional(pool->Byte('-')), digits, zero_fraction});
  }
  const bool power = multiple.whole == "0" &&
                     multiple.fraction.find_first_not_of('0') == multiple.fraction.size() - 1 &&
                     multiple.fraction.back() == '1';
  if (!power)
    return Unimplemented("multipleOf: 0.{} is neither whole nor a power of ten", multiple.fraction);
  return numbers.WithFractionOf(static_cast<int>(multiple.fraction.size()));
}

}  // namespace

int Compare(const Decimal& a, const Decimal& b) {
  const bool a_below = a.negative && !a.is_zero();
  const bool b_below = b.negative && !b.is_zero();
  if (a_below != b_below) return a_below ? -1 : 1;
  int order = 0;
  if (a.whole.size() != b.whole.size()) {
    order = a.whole.size() < b.whole.size() ? -1 : 1;
  } else if (const int whole = a.whole.compare(b.whole); whole != 0) {
    order = whole < 0 ? -1 : 1;
  } else if (const int fraction = a.fraction.compare(b.fraction); fraction != 0) {
    order = fraction < 0 ? -1 : 1;
  }
  return a_below ? -order : order;
}

Result<Decimal> ParseDecimal(std::string_view text) {
  Decimal result;
  size_t at = 0;
  if (at < text.size() && text[at] == '-') {
    result.negative = true;
    ++at;
  }
  std::string digits;
  int point = -1;
  for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at) {
    if (text[at] == '.') {
      point = static_cast<int>(digits.size());
    } else {
      digits.push_back(text[at]);
    }
  }
  if (point < 0) point = static_cast<int>(digits.size());
  if (at < text.size()) {
    const std::string exponent(text.substr(at + 1));
    if (exponent.size() > 5) return InvalidArgument("number {}: out of range", text);
    point += std::atoi(exponent.c_str());
  }
  if (std::abs(point) > kMostDigits || digits.size() > kMostDigits) {
    return InvalidArgument("number {}: out of range", text.substr(0, 40));
  }
  if (point <= 0) digits.insert(0, static_cast<size_t>(1 - point), '0');
  point = std::max(point, 1);
  if (point > static_cast<int>(digits.size())) digits.append(point - digits.size(), '0');
  result.whole = digits.substr(0, point);
  result.fraction = digits.substr(point);
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size() - 1));
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  return result;
}

Result<ExprId> NumberExpr(const NumberSpec& spec, ExprPool* pool) {
  Numbers numbers(pool);
  const bool bounded = spec.min || spec.max || !spec.multiples.empty();
  if (!bounded && !spec.integer) return JsonNumber(pool);
  std::vector<ExprId> parts = {spec.integer ? numbers.Integers() : numbers.Decimals()};
  if (spec.min) parts.push_back(numbers.AtLeast(*spec.min));
  if (spec.max) parts.push_back(numbers.AtMost(*spec.max));
  const bool limited = spec.max || (spec.min && spec.min->value.negative);
  for (const Decimal& multiple : spec.multiples) {
    TALON_ASSIGN_OR_RETURN(const ExprId expr, MultipleExpr(multiple, pool));
    const int64_t divisor = multiple.fraction.empty() ? std::stoll(multiple.whole) : 1;
    if (limited && divisor > kMostSearchedDivisor) {
      const auto few = FewMultiples(spec, divisor, pool);
      if (!few) {
        return Unimplemented("multipleOf: {} is too large for so many numbers below a bound",
                             multiple.whole);
      }
      parts.push_back(*few);
    } else {
      parts.push_back(expr);
    }
  }
  return pool->And(std::move(parts));
}

}  // namespace talon
