#pragma once

#include <filesystem>
#include <vector>

#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// Measured response lengths, in tokens: a file with one response a line, as a number or as a JSON
/// object that has `tokens` (a list; the rollouts that rpeg-run records), `response_length` or
/// `length`. Empty lines are skipped. Throws kUsage with file:line for anything else, for lengths
/// below 1, and for a file without lengths.
std::vector<std::int64_t> load_response_lengths(const std::filesystem::path& path);

/// The distribution of the lengths as `gen_quantiles`: deciles and the 95th percentile, a second
/// point before each length at which many responses end together, and the end. Throws kUsage when
/// a length exceeds `generation_length`.
std::vector<LengthQuantile> length_quantiles(std::vector<std::int64_t> lengths,
                                             std::int64_t generation_length);

}  // namespace rpeg
