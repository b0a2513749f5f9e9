#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/rational.h"

namespace rpeg {

/// A countdown puzzle: combine numbers, each at most once, to reach the target.
struct Countdown {
  std::vector<std::int64_t> numbers;
  Rational target;
};

/// Reads a ground truth: a solution such as "74 - ((96 + 37) / 7)", whose numbers and value are the
/// puzzle, or a JSON object {"numbers": [..], "target": n} (`nums` for short). Nothing when it is
/// neither.
std::optional<Countdown> parse_countdown(std::string_view answer);

/// Whether a response solves the puzzle: the text within its last <answer> … </answer>, else its
/// last line that is not blank, is an expression, optionally followed by `= target`.
bool solves_countdown(const Countdown& puzzle, std::string_view response);

}  // namespace rpeg
