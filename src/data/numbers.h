#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rpeg {

/// A number found in a text.
struct FoundNumber {
  std::string digits;     ///< canonical: no sign of 0, no leading or trailing zeros; "" when none
  std::size_t begin = 0;  ///< its first digit or point (a sign stands before it)
  std::size_t end = 0;    ///< where it ends in the text
};

/// The first number at or after `at`: digits with thousands separators and a fraction. A minus
/// counts as its sign unless it follows an operand ("5-3").
FoundNumber next_number(std::string_view text, std::size_t at);

/// The number that a solution ends with: the first after the last "####" that one follows, else the
/// last of all; "" when there is none.
std::string final_number(std::string_view text);

}  // namespace rpeg
