#include "data/rational.h"

#include <limits>
#include <numeric>

namespace rpeg {
namespace {

std::optional<std::int64_t> product(std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
}

}  // namespace

std::optional<Rational> make_rational(std::int64_t numerator, std::int64_t denominator) {
  constexpr std::int64_t kNoNegative = std::numeric_limits<std::int64_t>::min();
  if (denominator == 0 || numerator == kNoNegative || denominator == kNoNegative) {
    return std::nullopt;
  }
  const std::int64_t divisor = std::gcd(numerator, denominator);
  const std::int64_t sign = denominator < 0 ? -1 : 1;
  return Rational{sign * (numerator / divisor), sign * (denominator / divisor)};
}

std::optional<Rational> add(const Rational& a, const Rational& b) {
  const auto left = product(a.numerator, b.denominator);
  const auto right = product(b.numerator, a.denominator);
  const auto denominator = product(a.denominator, b.denominator);
  std::int64_t sum = 0;
  if (!left || !right || !denominator || __builtin_add_overflow(*left, *right, &sum)) {
    return std::nullopt;
  }
  return make_rational(sum, *denominator);
}

std::optional<Rational> multiply(const Rational& a, const Rational& b) {
  const auto numerator = product(a.numerator, b.numerator);
  const auto denominator = product(a.denominator, b.denominator);
  return numerator && denominator ? make_rational(*numerator, *denominator) : std::nullopt;
}

std::optional<Rational> divide(const Rational& a, const Rational& b) {
  const auto inverse = make_rational(b.denominator, b.numerator);
  return inverse ? multiply(a, *inverse) : std::nullopt;
}

Rational negate(const Rational& a) { return {-a.numerator, a.denominator}; }

std::optional<Rational> parse_decimal(std::string_view text) {
  constexpr int kMostDigits = 18;
  std::int64_t digits = 0;
  std::int64_t scale = 1;
  int count = 0;
  bool in_fraction = false;
  for (const char c : text) {
    if (c == '.' && !in_fraction) {
      in_fraction = true;
    } else if (c >= '0' && c <= '9' && ++count <= kMostDigits) {
      digits = 10 * digits + (c - '0');
      scale *= in_fraction ? 10 : 1;
    } else {
      return std::nullopt;
    }
  }
  const bool ends_in_point = !text.empty() && text.back() == '.';
  return count == 0 || ends_in_point ? std::nullopt : make_rational(digits, scale);
}

}  // namespace rpeg
