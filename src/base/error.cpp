#include "rpeg/base/error.h"

namespace rpeg {
namespace {

std::string join(const std::string& where, const std::string& message) {
  return where.empty() ? message : where + ": " + message;
}

}  // namespace

Error::Error(ErrorKind kind, std::string message, std::string where)
    : std::runtime_error(join(where, message)),
      kind_(kind),
      message_(std::move(message)),
      where_(std::move(where)) {}

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage:
      return 2;
    case ErrorKind::kInfeasible:
      return 3;
    case ErrorKind::kRuntime:
      return 4;
    case ErrorKind::kTrace:
      return 5;
    case ErrorKind::kInternal:
      return 70;
    case ErrorKind::kStopped:
      return 75;
  }
  return 70;
}

void check(bool condition, std::string_view message) {
  if (!condition) {
    throw Error(ErrorKind::kInternal, "internal error: " + std::string(message));
  }
}

}  // namespace rpeg
