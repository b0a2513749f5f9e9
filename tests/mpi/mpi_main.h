#pragma once

#include "rpeg/comm/comm.h"

namespace rpeg::test {

/// All ranks that mpirun started; valid while the tests run.
Comm& world();

}  // namespace rpeg::test
