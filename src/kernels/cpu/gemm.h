#pragma once

#include <cstdint>
#include <string>

namespace rpeg::cpu {

/// c (m, n) = a . b, or += with `add`; a is (m, k), stored (k, m) when `transpose_a`; b is (k, n),
/// stored (n, k) when `transpose_b`. All row-major and dense.
struct Gemm {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  bool add = false;
};

/// Computes the product with the library for large products and returns true; returns false, and
/// does nothing, where Eigen is the faster or the build has no such library. CMake chooses
/// gemm_onednn.cpp or no_onednn.cpp.
bool library_gemm(const Gemm& gemm, const float* a, const float* b, float* c);

/// "oneDNN 2.6.3", or "" where the build has no library.
std::string library_name();

}  // namespace rpeg::cpu
