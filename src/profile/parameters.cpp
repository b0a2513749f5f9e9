#include "profile/parameters.h"

#include <fmt/format.h>

#include "rpeg/base/units.h"

namespace rpeg {
namespace {

using P = HardwareProfile;

template <double P::* Member>
double& plain(P& profile) {
  return profile.*Member;
}
template <std::array<AlphaBeta, kTiers> P::* Member, double AlphaBeta::* Part, std::size_t I>
double& link(P& profile) {
  return (profile.*Member)[I].*Part;
}
template <std::size_t I>
double& step(P& profile) {
  return profile.alpha_step_s[I];
}

constexpr auto kColl = &P::collective;
constexpr auto kP2p = &P::point_to_point;
constexpr auto kAlpha = &AlphaBeta::alpha_s;
constexpr auto kBeta = &AlphaBeta::beta_s_per_byte;

/// A way in which people write a quantity: in `unit`, which is `factor` SI units.
struct Slip {
  double factor;
  const char* unit;
};

std::vector<Slip> slips(Quantity quantity) {
  switch (quantity) {
    case Quantity::kFlopRate:
      return {{1e12, "TFLOP/s"}, {1e9, "GFLOP/s"}, {1e3, "kFLOP/s"}};
    case Quantity::kCapacity:
    case Quantity::kReserve:
      return {{1e9, "GB"}, {1e6, "MB"}};
    case Quantity::kUplink:
      return {{1e9, "GB/s"}, {1e6, "MB/s"}};
    case Quantity::kMemoryBandwidth:
      return {{1e12, "TB/s"}, {1e9, "GB/s"}, {1e6, "MB/s"}};
    case Quantity::kLatency:
    case Quantity::kDuration:
      return {{1e-6, "us"}, {1e-3, "ms"}, {1e-9, "ns"}};
    case Quantity::kInverseBandwidth:
      return {{1e-9, "s/GB"}, {1e-6, "s/MB"}, {1e-3, "s/kB"}};
    case Quantity::kShare:
    case Quantity::kEfficiency:
      return {{0.01, "percent"}};
    case Quantity::kRows:
    case Quantity::kFactor:
      return {};
  }
  return {};
}

bool is_plausible(Quantity quantity, double value) {
  const PlausibleRange range = plausible_range(quantity);
  return value >= range.low && value <= range.high;
}

}  // namespace

const std::vector<Parameter>& hardware_parameters() {
  using Q = Quantity;
  static const std::vector<Parameter> kParameters = {
      {"flops_per_gpu", Q::kFlopRate, true, plain<&P::flops_per_gpu>, "of a large GEMM"},
      {"memory_per_gpu", Q::kCapacity, true, plain<&P::memory_per_gpu>, "usable"},
      {"memory_bandwidth", Q::kMemoryBandwidth, true, plain<&P::memory_bandwidth>, "read"},
      {"alpha_coll_g", Q::kLatency, true, link<kColl, kAlpha, 0>, "inside a node"},
      {"beta_coll_g", Q::kInverseBandwidth, true, link<kColl, kBeta, 0>, "inside a node"},
      {"alpha_coll_n", Q::kLatency, true, link<kColl, kAlpha, 1>, "between nodes"},
      {"beta_coll_n", Q::kInverseBandwidth, true, link<kColl, kBeta, 1>, "between nodes"},
      {"alpha_coll_r", Q::kLatency, true, link<kColl, kAlpha, 2>, "between racks"},
      {"beta_coll_r", Q::kInverseBandwidth, true, link<kColl, kBeta, 2>, "between racks"},
      {"alpha_p2p_g", Q::kLatency, true, link<kP2p, kAlpha, 0>, "inside a node"},
      {"beta_p2p_g", Q::kInverseBandwidth, true, link<kP2p, kBeta, 0>, "inside a node"},
      {"alpha_p2p_n", Q::kLatency, true, link<kP2p, kAlpha, 1>, "between nodes"},
      {"beta_p2p_n", Q::kInverseBandwidth, true, link<kP2p, kBeta, 1>, "between nodes"},
      {"alpha_p2p_r", Q::kLatency, true, link<kP2p, kAlpha, 2>, "between racks"},
      {"beta_p2p_r", Q::kInverseBandwidth, true, link<kP2p, kBeta, 2>, "between racks"},
      {"gemm_m_half", Q::kRows, true, plain<&P::gemm_m_half>, "rows at half efficiency"},
      {"decode_bw_eff", Q::kShare, true, plain<&P::decode_bw_eff>, "of memory_bandwidth"},
      {"non_gemm_constant", Q::kDuration, true, plain<&P::non_gemm_constant>, "per layer"},
      {"non_gemm_scaling", Q::kDuration, true, plain<&P::non_gemm_scaling>, "per layer, over tp"},
      {"non_gemm_batch_cal", Q::kFactor, true, plain<&P::non_gemm_batch_cal>, "reference batch"},
      {"non_gemm_replicated", Q::kDuration, false, plain<&P::non_gemm_replicated>, "per layer"},
      {"attention_eff", Q::kEfficiency, false, plain<&P::attention_eff>, "of flops_per_gpu"},
      {"kv_bw_eff", Q::kEfficiency, false, plain<&P::kv_bw_eff>, "of memory_bandwidth"},
      {"vector_eff", Q::kEfficiency, false, plain<&P::vector_eff>, "of memory_bandwidth"},
      {"gemm_call", Q::kDuration, false, plain<&P::gemm_call_s>, "per product, affine time"},
      {"gemm_call_floor", Q::kDuration, false, plain<&P::gemm_call_floor_s>, "per product, floor"},
      {"node_bytes_per_s", Q::kUplink, false, plain<&P::node_bytes_per_s>, "uplink of a node"},
      {"rack_bytes_per_s", Q::kUplink, false, plain<&P::rack_bytes_per_s>, "uplink of a rack"},
      {"alpha_step_g", Q::kDuration, false, step<0>, "per ring step, inside a node"},
      {"alpha_step_n", Q::kDuration, false, step<1>, "per ring step, between nodes"},
      {"alpha_step_r", Q::kDuration, false, step<2>, "per ring step, between racks"},
      {"reshard_fixed", Q::kDuration, false, plain<&P::reshard_fixed_s>, "per weights transfer"},
      {"reshard_eff", Q::kEfficiency, false, plain<&P::reshard_eff>, "of the wire"},
      {"host_step", Q::kDuration, false, plain<&P::host_step_s>, "per decode step"},
      {"host_step_per_layer", Q::kDuration, false, plain<&P::host_step_per_layer_s>, "per step"},
      {"overlap_slowdown", Q::kFactor, false, plain<&P::overlap_slowdown>, "compute and transfer"},
      {"reserve_bytes", Q::kReserve, false, plain<&P::reserve_bytes>, "kept free per GPU"},
      {"grad_buckets", Q::kFactor, false, plain<&P::grad_buckets>, "all-reduce calls per update"},
  };
  return kParameters;
}

double value_of(const Parameter& parameter, const HardwareProfile& profile) {
  HardwareProfile copy = profile;
  return parameter.field(copy);
}

PlausibleRange plausible_range(Quantity quantity) {
  switch (quantity) {
    case Quantity::kFlopRate:
      return {1e9, 1e17};
    case Quantity::kCapacity:
      return {1e7, 1e14};
    case Quantity::kMemoryBandwidth:
      return {1e8, 1e14};
    case Quantity::kLatency:
      return {1e-8, 1.0};
    case Quantity::kInverseBandwidth:
      return {1e-14, 1e-6};
    case Quantity::kDuration:
      return {0.0, 10.0};
    case Quantity::kShare:
      return {1e-3, 1.0};
    case Quantity::kEfficiency:
      return {1e-3, 4.0};
    case Quantity::kRows:
      return {0.0, 1e6};
    case Quantity::kFactor:
      return {1.0, 1e9};
    case Quantity::kReserve:
      return {0.0, 1e14};
    case Quantity::kUplink:
      return {1e6, 1e16};
  }
  return {0.0, 0.0};
}

std::string human_text(Quantity quantity, double value) {
  switch (quantity) {
    case Quantity::kFlopRate:
      return format_flop_rate(value);
    case Quantity::kCapacity:
    case Quantity::kReserve:
      return format_bytes(value);
    case Quantity::kMemoryBandwidth:
    case Quantity::kUplink:
      return format_bandwidth(value);
    case Quantity::kLatency:
    case Quantity::kDuration:
      return format_seconds(value);
    case Quantity::kInverseBandwidth:
      return format_bandwidth(1.0 / value);
    case Quantity::kShare:
    case Quantity::kEfficiency:
      return fmt::format("{:.3g} %", 100.0 * value);
    case Quantity::kRows:
    case Quantity::kFactor:
      return fmt::format("{:.4g}", value);
  }
  return "";
}

std::string slip_hint(Quantity quantity, double value) {
  if (quantity == Quantity::kInverseBandwidth && value > 0.0) {
    for (const Slip& unit : {Slip{1.0, "B/s"}, Slip{1e9, "GB/s"}, Slip{1e6, "MB/s"}}) {
      if (value >= 1.0 && is_plausible(quantity, 1.0 / (value * unit.factor))) {
        return fmt::format(": is it a bandwidth in {}? beta is its inverse, here {:.4g} s/B",
                           unit.unit,
                           1.0 / (value * unit.factor));
      }
    }
  }
  for (const Slip& slip : slips(quantity)) {
    if (is_plausible(quantity, value * slip.factor)) {
      return fmt::format(": is it in {}? then write {:.4g}", slip.unit, value * slip.factor);
    }
  }
  return "";
}

}  // namespace rpeg
