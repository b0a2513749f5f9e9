#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/rational.h"

namespace rpeg {

/// What an arithmetic expression amounts to.
struct Expression {
  Rational value;
  std::vector<std::int64_t> numbers;  ///< in the order written
};

/// Evaluates whole numbers, + − * / (with the usual precedence), signs and parentheses, exactly.
/// Nothing for any other text, a division by zero, numbers that leave 63 bits, or parentheses
/// nested deeper than 100.
std::optional<Expression> evaluate_expression(std::string_view text);

}  // namespace rpeg
