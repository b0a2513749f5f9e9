#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

/// What a program did with its input.
struct ChildResult {
  std::string output;       ///< its standard output
  int exit_code = 0;        ///< when it ended by itself
  int signal = 0;           ///< that killed it, or 0
  bool timed_out = false;   ///< killed by us: it took longer than allowed
  bool overflowed = false;  ///< killed by us: it wrote more than allowed
};

/// Runs `command` (program and arguments, no shell; a program without a slash is looked up in PATH)
/// with `input` as its standard input, until it has ended and closed its output. A program that
/// does not read all of its input is no fault. Standard error is shared with the caller. After
/// `timeout_s` or more than `max_output` bytes the program and its children are killed. Throws
/// kRuntime when it cannot be started.
ChildResult run_child(const std::vector<std::string>& command,
                      std::string_view input,
                      double timeout_s,
                      std::size_t max_output);

}  // namespace rpeg
