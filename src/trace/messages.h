#pragma once

#include <cstdint>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// The two instructions of a message: what `from` sends in iteration k, `to` receives in iteration
/// k + delta.
struct MessagePair {
  int from = 0;
  int to = 0;
  std::size_t send = 0;  ///< indices in the programs
  std::size_t receive = 0;
  std::int64_t delta = 0;
};

/// All messages of an iteration. A compiled job has both ends of each (`check_programs`).
std::vector<MessagePair> message_pairs(const Job& job);

}  // namespace rpeg
