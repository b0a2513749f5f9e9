#pragma once

#include <string>

namespace rpeg::cpu {

/// Sets how many threads a large float product of this process may use; 1 until set. All other
/// kernels run on the calling thread. The bits of a product may depend on the number of threads
/// (which part of it is computed in which way), never on their timing.
void set_kernel_threads(int threads);
int kernel_threads();

/// Threads for each of the `local_ranks` ranks of a node with `cores` cores, so that they do not
/// get into each other's way: max(1, cores / local_ranks). A positive number in `omp_num_threads`,
/// the text of that environment variable (empty: unset), rules instead.
int choose_kernel_threads(int cores, int local_ranks, const std::string& omp_num_threads);

}  // namespace rpeg::cpu
