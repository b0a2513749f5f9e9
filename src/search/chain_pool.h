#pragma once

#include <functional>
#include <vector>

#include "search/chain.h"

namespace rpeg::search {

/// A look at running chains, now and then.
using Look = std::function<void(const std::vector<ChainStatus>&)>;

/// Runs chains on a few threads; result i is that of chain i, whoever ran it and when. Rethrows
/// what a chain threw.
std::vector<ChainResult> run_chains(const Space& space,
                                    const HardwareProfile& profile,
                                    const std::vector<ChainTask>& tasks,
                                    int threads,
                                    const Look& look);

}  // namespace rpeg::search
