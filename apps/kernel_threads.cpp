#include "kernel_threads.h"

#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "rpeg/comm/mpi.h"
#include "rpeg/kernels/threads.h"

namespace rpeg::apps {
namespace {

int usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) {
    return CPU_COUNT(&cores);
  }
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

void share_cores(Comm& world) {
  const std::vector<RankLocation> locations = discover_locations(world, 0, "");
  const int node = locations[static_cast<std::size_t>(world.rank())].node;
  const auto local_ranks = std::count_if(
      locations.begin(), locations.end(), [&](const RankLocation& l) { return l.node == node; });
  const char* given = std::getenv("OMP_NUM_THREADS");
  const int threads = cpu::choose_kernel_threads(
      usable_cores(), static_cast<int>(local_ranks), given == nullptr ? "" : given);
  cpu::set_kernel_threads(threads);
  spdlog::debug("kernel_threads={} local_ranks={}", threads, local_ranks);
}

}  // namespace rpeg::apps
