#pragma once

/// Module `profile`: measured (or quoted) speeds of one cluster, as hw.yaml holds them. Made by
/// calibrate, read by cost.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/profile/observed.h"
#include "rpeg/profile/tier.h"
#include "rpeg/yaml/writer.h"

namespace rpeg {

/// Time of a message of n bytes: alpha_s + n · beta_s_per_byte.
struct AlphaBeta {
  double alpha_s = 0.0;
  double beta_s_per_byte = 0.0;
  bool operator==(const AlphaBeta&) const = default;
};

/// How well one parameter of hw.yaml was determined.
struct FitQuality {
  std::int64_t samples = 0;
  double relative_rms = 0.0;  ///< RMS of (fit − measured)/measured
  double r_squared = 0.0;
  bool operator==(const FitQuality&) const = default;
};

/// hw.yaml in SI units. Keys and symbols: docs/yaml/hw.md.
struct HardwareProfile {
  double flops_per_gpu = 0.0;                      ///< η·F, FLOP/s of a large GEMM
  double memory_per_gpu = 0.0;                     ///< bytes
  double memory_bandwidth = 0.0;                   ///< B, bytes/s
  std::array<AlphaBeta, kTiers> collective{};      ///< indexed by Tier
  std::array<AlphaBeta, kTiers> point_to_point{};  ///< indexed by Tier
  double gemm_m_half = 0.0;                        ///< γ, rows
  double decode_bw_eff = 0.0;                      ///< ε, share of B
  double non_gemm_constant = 0.0;                  ///< c0, s per layer
  double non_gemm_scaling = 0.0;  ///< s per layer at the reference batch, divides by tp
  double non_gemm_batch_cal =
      1.0;  ///< reference batch: tokens, or sequences in the published dialect
  bool non_gemm_per_sequence = false;  ///< true: non_gemm_batch_cal counts sequences in the call
  /// true: the part that grows with the rows is memory traffic of the model's own widths at
  /// vector_eff; the three non_gemm numbers above but the constant are then not used (and absent).
  bool non_gemm_bytes = false;
  // Optional refinements with the defaults that reduce the model to the published one.
  double non_gemm_replicated = 0.0;  ///< s per layer at the reference batch that tp does not divide
  double attention_eff = 0.5;        ///< η_a, share of flops_per_gpu
  double kv_bw_eff = 0.0;            ///< η_kv; 0: decode_bw_eff
  double vector_eff = 1.0;           ///< η_v, share of B reached by elementwise kernels
  std::array<double, kTiers> alpha_step_s{};  ///< latency per ring step
  double reshard_fixed_s = 0.0;               ///< T_fixed
  double reshard_eff = 1.0;                   ///< η_sync
  double host_step_s = 0.0;                   ///< t_host per decode step
  double host_step_per_layer_s = 0.0;
  /// By tensor-parallel size; a size that is missing takes the next smaller one, tp = 1 the plain
  /// key. decode_bw_eff and gemm_m_half as above; flops_eff relative to flops_per_gpu.
  std::map<int, double> decode_bw_eff_tp;
  std::map<int, double> gemm_m_half_tp;
  std::map<int, double> flops_eff_tp;
  double gemm_call_s = 0.0;        ///< per matrix product of a layer, in the affine time
  double gemm_call_floor_s = 0.0;  ///< per matrix product, in the time of reading the weights
  double node_bytes_per_s = 0.0;   ///< uplink of a node; 0: every rank has its own rate
  double rack_bytes_per_s = 0.0;   ///< uplink of a rack; 0: every rank has its own rate
  /// Rows (bytes that a rank sends, s), ascending, in place of one (α, β); empty: α + n · β.
  std::array<std::vector<std::pair<double, double>>, kTiers> collective_table;
  std::array<std::vector<std::pair<double, double>>, kTiers> point_to_point_table;
  double overlap_slowdown = 1.0;
  double reserve_bytes = 0.0;  ///< kept free on every GPU
  double grad_buckets = 1.0;
  ObservedFactors observed;  ///< what runs measured of predictions; cost multiplies by it
  // About the file.
  std::vector<std::string> estimated;           ///< keys that were derived, not measured
  std::map<std::string, FitQuality> fit;        ///< by key
  std::map<std::string, std::string> device;    ///< name, backend, dtype, count per node
  std::map<std::string, std::string> software;  ///< MPI, compiler, BLAS …
  std::vector<std::string> warnings;            ///< of reading: the dialect note; not written

  bool operator==(const HardwareProfile&) const = default;
};

/// Reads hw.yaml in either dialect (units: si, or the published one without `units`), or a built-in
/// profile named "builtin:h100-sxm", "builtin:h200-sxm", "builtin:a100-80g-sxm". Throws kUsage
/// listing every fault, implausible magnitudes included, with the likely slip in units.
HardwareProfile load_hardware_profile(const std::string& path_or_builtin);
/// The same from text; `file` is used in messages.
HardwareProfile parse_hardware_profile(const std::string& text, const std::string& file);

/// Text of hw.yaml (SI dialect) with a human comment behind every value.
std::string hardware_profile_text(const HardwareProfile& profile, const Provenance& provenance);

/// "440 TFLOP/s, 103 GB at 1 TB/s; inside a node 220 GB/s, 78 us; …": what was read, for people.
std::string describe(const HardwareProfile& profile);

}  // namespace rpeg
