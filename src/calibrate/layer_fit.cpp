#include "calibrate/layer_fit.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "calibrate/minimise.h"
#include "rpeg/base/error.h"
#include "rpeg/profile/by_tp.h"

namespace rpeg {
namespace {

constexpr double kElementBytes = 2.0;  // bf16 and fp16
constexpr double kGemmsPerLayer = 4.0;
constexpr double kReferenceRows = 4096.0;
// Where the searches start: shares of the datasheet that GPUs usually reach, and a kernel launch.
constexpr double kStartFlopShare = 0.77;
constexpr double kStartBandwidthShare = 0.8;
constexpr double kStartHalfRows = 150.0;
constexpr double kStartCall_s = 2e-6;
constexpr double kEdge = 0.2;  // of a search, in the logarithm of a parameter

struct GemmPoint {
  double elements = 0.0;  // of the weights on one rank
  double tokens = 0.0;
  double seconds = 0.0;
};

/// Of one tensor-parallel size.
struct GemmRate {
  double bandwidth_eff = kStartBandwidthShare;
  double half_rows = kStartHalfRows;
  double flop_per_s = 0.0;
};

struct CallTimes {
  double affine_s = 0.0;
  double floor_s = 0.0;
};

double kv_heads_of_a_rank(const ModelSpec& model, int tp) {
  return std::max(1.0, static_cast<double>(model.num_kv_heads) / tp);
}

double elements_of_a_rank(const ModelSpec& model, int tp) {
  const auto hidden = static_cast<double>(model.hidden_dim);
  const auto head_dim = static_cast<double>(model.head_dim);
  const double query = static_cast<double>(model.num_heads) / tp * head_dim;
  const double ffn = static_cast<double>(model.ffn_dim) / tp;
  const double key_value = kv_heads_of_a_rank(model, tp) * head_dim;
  return hidden * (2.0 * query + 2.0 * key_value + (model.gated_ffn ? 3.0 : 2.0) * ffn);
}

double gemm_s(const GemmRate& rate,
              const CallTimes& call,
              double memory_bytes_per_s,
              double elements,
              double tokens) {
  const double floor_s = kElementBytes * elements / (rate.bandwidth_eff * memory_bytes_per_s) +
                         kGemmsPerLayer * call.floor_s;
  const double affine_s =
      2.0 * elements * (tokens + rate.half_rows) / rate.flop_per_s + kGemmsPerLayer * call.affine_s;
  return std::max(floor_s, affine_s);
}

GemmRate rate_of(const HardwareProfile& profile, int tp) {
  return {.bandwidth_eff = value_at_tp(profile.decode_bw_eff_tp, tp, profile.decode_bw_eff),
          .half_rows = value_at_tp(profile.gemm_m_half_tp, tp, profile.gemm_m_half),
          .flop_per_s = value_at_tp(profile.flops_eff_tp, tp, 1.0) * profile.flops_per_gpu};
}

/// The rate of one tensor-parallel size at given call times, and its mean error.
struct FittedRate {
  GemmRate rate;
  double error = 0.0;
};

FittedRate fit_rate(std::span<const GemmPoint> points,
                    const CallTimes& call,
                    double memory_bytes_per_s,
                    const GemmRate& start) {
  const auto rate_at = [](const std::vector<double>& x) {
    return GemmRate{.bandwidth_eff = std::min(1.0, std::exp(x[0])),
                    .half_rows = std::exp(x[1]),
                    .flop_per_s = std::exp(x[2])};
  };
  const auto error_at = [&](const std::vector<double>& x) {
    const GemmRate rate = rate_at(x);
    double sum = 0.0;
    for (const GemmPoint& point : points) {
      const double predicted = gemm_s(rate, call, memory_bytes_per_s, point.elements, point.tokens);
      sum += std::abs(predicted / point.seconds - 1.0);
    }
    return sum / static_cast<double>(points.size());
  };
  const auto best = minimise(
      error_at,
      {std::log(start.bandwidth_eff), std::log(start.half_rows), std::log(start.flop_per_s)},
      kEdge);
  return {rate_at(best), error_at(best)};
}

std::map<int, std::vector<GemmPoint>> points_by_tp(ModelSet models) {
  std::map<int, std::vector<GemmPoint>> result;
  for (const LayerMeasurements* model : models) {
    for (const LayerPoint& point : model->points) {
      result[point.tp].push_back({.elements = elements_of_a_rank(model->model, point.tp),
                                  .tokens = point.tokens,
                                  .seconds = point.gemm_s});
    }
  }
  return result;
}

/// Bytes that the elementwise kernels of a layer move per token, two bytes a value: two norms (read
/// and write) and two residual sums (two reads and a write) are on every rank; rotary embedding
/// (queries and keys) and gate (two reads, a write) are divided.
struct LayerBytes {
  double replicated = 0.0;
  double divided = 0.0;
};

LayerBytes layer_bytes(const ModelSpec& model, int tp) {
  const double heads = static_cast<double>(model.num_heads) / tp + kv_heads_of_a_rank(model, tp);
  return {.replicated = kElementBytes * 10.0 * static_cast<double>(model.hidden_dim),
          .divided = kElementBytes * (2.0 * static_cast<double>(model.head_dim) * heads +
                                      3.0 * static_cast<double>(model.ffn_dim) / tp)};
}

double non_gemm_error(ModelSet models, const HardwareProfile& profile) {
  double sum = 0.0;
  double count = 0.0;
  for (const LayerMeasurements* model : models) {
    for (const LayerPoint& point : model->points) {
      const double predicted = predicted_non_gemm_s(profile, model->model, point.tp, point.tokens);
      sum += std::abs(predicted / point.non_gemm_s - 1.0);
      count += 1.0;
    }
  }
  return sum / count;
}

}  // namespace

double predicted_gemm_s(const HardwareProfile& profile,
                        const ModelSpec& model,
                        int tp,
                        double tokens) {
  return gemm_s(rate_of(profile, tp),
                {.affine_s = profile.gemm_call_s, .floor_s = profile.gemm_call_floor_s},
                profile.memory_bandwidth,
                elements_of_a_rank(model, tp),
                tokens);
}

void fit_gemms(ModelSet models, double peak_flop_per_s, HardwareProfile* profile) {
  const auto points = points_by_tp(models);
  check(!points.empty() && points.begin()->first == 1, "a fit needs points at tp = 1");
  // First one rate for all sizes, which leaves the effect of smaller matrices to the call times;
  // then every size has a rate of its own beside those. Fitted all at once, few models cannot tell
  // the call times from the half rows, and a model that was not seen is predicted worse.
  std::vector<GemmPoint> all;
  for (const auto& [unused, of_tp] : points) {
    all.insert(all.end(), of_tp.begin(), of_tp.end());
  }
  const double bandwidth = profile->memory_bandwidth;
  const GemmRate start{.flop_per_s = kStartFlopShare * peak_flop_per_s};
  const auto call_at = [](const std::vector<double>& x) {
    return CallTimes{.affine_s = std::abs(x[0]) * kStartCall_s,
                     .floor_s = std::abs(x[1]) * kStartCall_s};
  };
  const CallTimes call = call_at(minimise(
      [&](const std::vector<double>& x) {
        return fit_rate(all, call_at(x), bandwidth, start).error;
      },
      {1.0, 1.0},
      0.5));
  const GemmRate common = fit_rate(all, call, bandwidth, start).rate;
  std::map<int, GemmRate> rates;
  for (const auto& [tp, of_tp] : points) {
    rates[tp] = fit_rate(of_tp, call, bandwidth, common).rate;
  }

  profile->gemm_call_s = call.affine_s;
  profile->gemm_call_floor_s = call.floor_s;
  const GemmRate& single = rates.at(1);
  profile->flops_per_gpu = single.flop_per_s;
  profile->gemm_m_half = single.half_rows;
  profile->decode_bw_eff = single.bandwidth_eff;
  for (const auto& [tp, rate] : rates) {
    if (tp > 1) {
      profile->flops_eff_tp[tp] = rate.flop_per_s / single.flop_per_s;
      profile->gemm_m_half_tp[tp] = rate.half_rows;
      profile->decode_bw_eff_tp[tp] = rate.bandwidth_eff;
    }
  }
}

double predicted_non_gemm_s(const HardwareProfile& profile,
                            const ModelSpec& model,
                            int tp,
                            double tokens) {
  if (!profile.non_gemm_bytes) {
    return profile.non_gemm_constant +
           tokens / profile.non_gemm_batch_cal *
               (profile.non_gemm_scaling / tp + profile.non_gemm_replicated);
  }
  const LayerBytes bytes = layer_bytes(model, tp);
  return profile.non_gemm_constant + tokens * (bytes.replicated + bytes.divided) /
                                         (profile.vector_eff * profile.memory_bandwidth);
}

void fit_non_gemm_bytes(ModelSet models, HardwareProfile* profile) {
  profile->non_gemm_bytes = true;
  const auto set = [&](const std::vector<double>& x) {
    profile->non_gemm_constant = std::exp(x[0]);
    profile->vector_eff = std::exp(x[1]);
  };
  const auto best = minimise(
      [&](const std::vector<double>& x) {
        set(x);
        return non_gemm_error(models, *profile);
      },
      {std::log(10.0 * kStartCall_s), std::log(kStartBandwidthShare)},
      kEdge);
  set(best);
}

void fit_non_gemm_seconds(ModelSet models, HardwareProfile* profile) {
  profile->non_gemm_bytes = false;
  profile->non_gemm_batch_cal = kReferenceRows;
  const LayerBytes bytes = layer_bytes(models.front()->model, 1);
  const double byte_s = 1.0 / (kStartBandwidthShare * profile->memory_bandwidth);
  const auto set = [&](const std::vector<double>& x) {
    profile->non_gemm_constant = std::exp(x[0]);
    profile->non_gemm_scaling = std::exp(x[1]);
    profile->non_gemm_replicated = std::exp(x[2]);
  };
  const auto best = minimise(
      [&](const std::vector<double>& x) {
        set(x);
        return non_gemm_error(models, *profile);
      },
      {std::log(10.0 * kStartCall_s),
       std::log(kReferenceRows * bytes.divided * byte_s),
       std::log(kReferenceRows * bytes.replicated * byte_s)},
      kEdge);
  set(best);
}

}  // namespace rpeg
