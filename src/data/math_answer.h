#pragma once

#include <string>
#include <string_view>

namespace rpeg {

/// The final answer of a solution in LaTeX: what its last \boxed{…} (or \fbox{…}) holds, else its
/// last number ("a/b" with a slash or as \frac); "" when there is neither.
std::string math_final_answer(std::string_view solution);

/// The answer that a ground truth states: what its last \boxed{…} holds, else all of it.
std::string math_stated_answer(std::string_view ground_truth);

/// Whether two answers mean the same: their normal forms are equal, or have equal exact values
/// ("0.5" and "\frac{1}{2}"), or are tuples or intervals with such elements. Never for empty ones.
bool math_equal(std::string_view a, std::string_view b);

/// The normal form of an answer: without spaces, $, %, degrees, \left and \right, thousands
/// separators, a leading `x =`, a trailing point or unit (\text{ cm}^2); all fractions are
/// \frac{}{}.
std::string normal_math(std::string_view answer);

}  // namespace rpeg
