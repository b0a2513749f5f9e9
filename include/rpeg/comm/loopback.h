#pragma once

#include <memory>
#include <vector>

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Returns the ranks of a group inside this process; each is used by one thread.
std::vector<std::unique_ptr<Comm>> make_loopback(int ranks);

}  // namespace rpeg
