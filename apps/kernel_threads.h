#pragma once

#include "rpeg/comm/comm.h"

namespace rpeg::apps {

/// Gives each rank its share of the cores that it may use, for matrix products: divides them among
/// the ranks of the node, unless OMP_NUM_THREADS says otherwise. Call it on all ranks.
void share_cores(Comm& world);

}  // namespace rpeg::apps
