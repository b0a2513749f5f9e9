#include <fmt/format.h>
#include <omp.h>

#include <oneapi/dnnl/dnnl.h>
#include <algorithm>

#include "kernels/cpu/gemm.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/threads.h"

namespace rpeg::cpu {
namespace {

// Measured (tests/bench/linear_bench.cpp): below this many multiplications the call costs more than
// the better kernel gains.
constexpr std::int64_t kLeastWork = 8192;
// Below this many (some 300 us on one core) further threads gain little, and threads that wait for
// each other lose milliseconds where something else runs on their core.
constexpr std::int64_t kLeastParallelWork = std::int64_t{1} << 24;

/// OpenMP keeps the number of threads for each calling thread.
void set_openmp_threads(int threads) {
  if (omp_get_max_threads() != threads) {
    omp_set_num_threads(threads);
  }
}

}  // namespace

// The plain product, not a matmul primitive: it needs no object for each shape. Weights laid out
// beforehand (transposed, or by the primitive) were up to 1.7 times as fast for few rows in cache,
// but generation as a whole was not faster, and they take their memory twice.
bool library_gemm(const Gemm& gemm, const float* a, const float* b, float* c) {
  const bool is_vector = std::min({gemm.m, gemm.n, gemm.k}) <= 1;
  const std::int64_t work = gemm.m * gemm.n * gemm.k;
  if (is_vector || work < kLeastWork) {
    return false;
  }
  set_openmp_threads(work < kLeastParallelWork ? 1 : kernel_threads());
  const dnnl_status_t status = dnnl_sgemm(gemm.transpose_a ? 'T' : 'N',
                                          gemm.transpose_b ? 'T' : 'N',
                                          gemm.m,
                                          gemm.n,
                                          gemm.k,
                                          1.0F,
                                          a,
                                          gemm.transpose_a ? gemm.m : gemm.k,
                                          b,
                                          gemm.transpose_b ? gemm.k : gemm.n,
                                          gemm.add ? 1.0F : 0.0F,
                                          c,
                                          gemm.n);
  check(status == dnnl_success, fmt::format("dnnl_sgemm returned {}", static_cast<int>(status)));
  return true;
}

std::string library_name() {
  return fmt::format("oneDNN {}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}

}  // namespace rpeg::cpu
