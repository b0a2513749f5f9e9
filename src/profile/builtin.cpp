#include <fmt/format.h>

#include "profile/parameters.h"

namespace rpeg {
namespace {

/// What a datasheet says about a machine of 8 GPUs with one network port per GPU.
struct Datasheet {
  const char* name;
  double flop_per_s;  // dense bf16, without sparsity
  double memory_bytes;
  double memory_bytes_per_s;
  double nvlink_bytes_per_s;   // one direction
  double network_bytes_per_s;  // per GPU, one direction
};

/// What kernels and collectives reach of it.
struct Reached {
  double gemm;         // of the peak, large matrices
  double gemm_m_half;  // rows
  double decode;       // of the memory bandwidth, small batches
};

constexpr double kMemoryUsable = 0.95;  // context, library workspaces
constexpr double kWireShare = 0.8;      // of a link's rate in a ring collective
constexpr double kRefTokens = 4096;
// Memory traffic of the elementwise kernels of one layer of a 7B-class model (h 4096, f 11008), two
// bytes a value: norms and residuals pass 10 h per token and are replicated over tp; rotary
// embedding and the gated activation pass 4 h + 3 f and divide by tp.
constexpr double kReplicatedBytes = 2.0 * 10 * 4096;
constexpr double kDividedBytes = 2.0 * (4 * 4096 + 3 * 11008);
constexpr double kLaunch_s = 3e-6;  // of one kernel; about ten per layer

HardwareProfile make_profile(const Datasheet& sheet, const Reached& reached) {
  HardwareProfile profile;
  profile.flops_per_gpu = reached.gemm * sheet.flop_per_s;
  profile.memory_per_gpu = kMemoryUsable * sheet.memory_bytes;
  profile.memory_bandwidth = sheet.memory_bytes_per_s;
  const double node_beta = 1.0 / (kWireShare * sheet.nvlink_bytes_per_s);
  const double rack_beta = 1.0 / (kWireShare * sheet.network_bytes_per_s);
  profile.collective = {{{3e-5, node_beta}, {6e-5, rack_beta}, {12e-5, 2 * rack_beta}}};
  profile.point_to_point = {{{1e-5, node_beta}, {2e-5, rack_beta}, {4e-5, 2 * rack_beta}}};
  profile.gemm_m_half = reached.gemm_m_half;
  profile.decode_bw_eff = reached.decode;
  profile.vector_eff = 0.8;
  profile.non_gemm_batch_cal = kRefTokens;
  profile.non_gemm_constant = 10 * kLaunch_s;
  const double elementwise = profile.vector_eff * sheet.memory_bytes_per_s;
  profile.non_gemm_scaling = kRefTokens * kDividedBytes / elementwise;
  profile.non_gemm_replicated = kRefTokens * kReplicatedBytes / elementwise;
  for (const Parameter& parameter : hardware_parameters()) {
    if (parameter.required || value_of(parameter, profile) != value_of(parameter, {})) {
      profile.estimated.push_back(parameter.key);
    }
  }
  profile.device = {{"name", sheet.name}, {"backend", "cuda"}, {"dtype", "bf16"}};
  return profile;
}

}  // namespace

const std::vector<std::string>& builtin_names() {
  static const std::vector<std::string> kNames = {"h100-sxm", "h200-sxm", "a100-80g-sxm"};
  return kNames;
}

std::optional<HardwareProfile> builtin_profile(const std::string& name) {
  // Datasheets of NVIDIA: H100 SXM5 and H200 SXM, NVLink 4 with 900 GB/s in both directions
  // together, InfiniBand NDR 400 Gbit/s; A100 80 GB SXM, NVLink 3 with 600 GB/s, HDR 200 Gbit/s.
  // Efficiencies: fits to published GEMM measurements of these GPUs (docs/yaml/hw.md).
  constexpr Reached kHopper{0.76, 190, 0.80};
  constexpr Reached kAmpere{0.77, 110, 0.76};
  if (name == "h100-sxm") {
    return make_profile({"H100 SXM 80 GB", 989.4e12, 80e9, 3.35e12, 450e9, 50e9}, kHopper);
  }
  if (name == "h200-sxm") {
    return make_profile({"H200 SXM 141 GB", 989.4e12, 141e9, 4.8e12, 450e9, 50e9}, kHopper);
  }
  if (name == "a100-80g-sxm") {
    return make_profile({"A100 SXM 80 GB", 312e12, 80e9, 2.039e12, 300e9, 25e9}, kAmpere);
  }
  return std::nullopt;
}

}  // namespace rpeg
