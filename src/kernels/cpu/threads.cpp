#include "rpeg/kernels/threads.h"

#include <algorithm>
#include <atomic>
#include <charconv>

#include "rpeg/base/error.h"

namespace rpeg::cpu {
namespace {

// A property of the process, as the cores that it stands for are.
std::atomic<int> threads_of_process{1};

}  // namespace

void set_kernel_threads(int threads) {
  check(threads >= 1, "matrix products need at least one thread");
  threads_of_process = threads;
}

int kernel_threads() { return threads_of_process; }

int choose_kernel_threads(int cores, int local_ranks, const std::string& omp_num_threads) {
  check(local_ranks >= 1, "a node has at least one rank");
  int wanted = 0;
  // "4,2" gives the threads of nested regions too; the first number is that of the outermost.
  std::from_chars(omp_num_threads.data(), omp_num_threads.data() + omp_num_threads.size(), wanted);
  return wanted > 0 ? wanted : std::max(1, cores / local_ranks);
}

}  // namespace rpeg::cpu
