#pragma once

/// Module `base`: what every other module may use. Errors (this header), invariants, random numbers
/// (rng.h), printing of quantities (units.h), files (file.h) and text (text.h).

#include <stdexcept>
#include <string>
#include <string_view>

namespace rpeg {

/// What went wrong, from the point of view of the person who reads the message. Each kind has one
/// exit code (`exit_code`).
enum class ErrorKind {
  kUsage,       ///< a flag or an input file is wrong: exit 2
  kInfeasible,  ///< no plan satisfies the constraints: exit 3
  kRuntime,     ///< execution failed (I/O, a dead peer, a non-finite loss): exit 4
  kTrace,       ///< a trace contradicts its plan: exit 5
  kInternal,    ///< an invariant of RPEG itself is broken: exit 70
  kStopped,     ///< stopped on request with a checkpoint: exit 75
};

/// The only exception that RPEG throws. `message` says what is wrong, the value seen, what would be
/// right and how to get there; `where` is `file:line:column` for input files, else may be empty.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, std::string message, std::string where = "");

  ErrorKind kind() const { return kind_; }
  const std::string& message() const { return message_; }
  const std::string& where() const { return where_; }

 private:
  ErrorKind kind_;
  std::string message_;
  std::string where_;
};

/// Returns the process exit code of an error kind (0 is success and has no kind).
int exit_code(ErrorKind kind);

/// Throws `Error{kInternal}` with `message` unless `condition` holds. Always on: for invariants of
/// RPEG itself, never for user input.
void check(bool condition, std::string_view message);

}  // namespace rpeg
