#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common.h"

namespace rpeg::apps {

/// The command line of rpeg-optimize; "" where a flag is absent.
struct OptimizeFlags {
  std::string hw, config, evaluate, start, sweep, sweep_out, lengths, objective, observed;
  std::string base_plan, opt_plan, log_file;
  std::vector<std::string> pins;
  std::optional<std::int64_t> evals;
  std::optional<double> time_s;
  std::optional<std::uint64_t> seed;
  std::int64_t top = 1;
  int threads = 0;
  bool explains = false;
  std::string explain_against;  ///< plan or name to compare with
  bool exhaustive = false, check_scores = false, plots = false, debug = false, quiet = false;
};

/// Parses the command line; false when --help or --version was answered. Throws kUsage.
bool parse_optimize_flags(int argc, const char* const* argv, OptimizeFlags* flags);

}  // namespace rpeg::apps
