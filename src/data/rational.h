#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace rpeg {

/// An exact fraction in lowest terms.
struct Rational {
  std::int64_t numerator = 0;
  std::int64_t denominator = 1;  ///< positive
  bool operator==(const Rational&) const = default;
};

// All operations return nothing for a division by zero and for results beyond 63 bits.
std::optional<Rational> make_rational(std::int64_t numerator, std::int64_t denominator);
std::optional<Rational> add(const Rational& a, const Rational& b);
std::optional<Rational> multiply(const Rational& a, const Rational& b);
std::optional<Rational> divide(const Rational& a, const Rational& b);
Rational negate(const Rational& a);

/// The value of an unsigned decimal such as "12", "0.50", ".5"; nothing for any other text and for
/// more than 18 digits.
std::optional<Rational> parse_decimal(std::string_view text);

}  // namespace rpeg
