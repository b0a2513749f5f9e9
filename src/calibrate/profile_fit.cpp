#include "rpeg/calibrate/profile_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/layer_fit.h"
#include "calibrate/message_fit.h"
#include "rpeg/base/error.h"
#include "rpeg/calibrate/fit.h"

namespace rpeg {
namespace {

constexpr std::size_t kNode = 0;
constexpr std::size_t kRack = 1;
constexpr std::size_t kCluster = 2;
constexpr double kWireShare = 0.8;  // of a port's datasheet rate that messages reach
// Not in the measurements, hence marked estimated.
constexpr double kAttentionEff = 0.5;
constexpr double kReserveShare = 0.05;  // of the memory: context, buffers of collectives
const std::string kGemms = "matrix products";
const std::string kNonGemms = "norms, residual, rotary, gate";

/// What was predicted and measured, in pairs.
struct Comparison {
  std::vector<double> predicted_s;
  std::vector<TimedPoint> measured;

  void add(double predicted, double x, double seconds) {
    predicted_s.push_back(predicted);
    measured.push_back({x, seconds});
  }
};

FitError error_of(const Comparison& comparison) {
  std::vector<double> errors;
  double sum = 0.0;
  for (std::size_t i = 0; i < comparison.measured.size(); ++i) {
    errors.push_back(std::abs(comparison.predicted_s[i] / comparison.measured[i].seconds - 1.0));
    sum += errors.back();
  }
  std::sort(errors.begin(), errors.end());
  const auto count = static_cast<double>(errors.size());
  const auto at = static_cast<std::size_t>(std::ceil(0.95 * count)) - 1;
  return {static_cast<std::int64_t>(errors.size()), sum / count, errors[at]};
}

/// Digits beyond the fourth are noise to readers of the file; what is reported is the error of the
/// rounded values.
double rounded(double value) {
  if (value == 0.0) {
    return 0.0;
  }
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 3.0);
  // By way of text, so that the file shows four digits.
  return std::stod(fmt::format("{:.12g}", std::round(value / unit) * unit));
}

void round_layers(HardwareProfile* profile) {
  for (double* value : {&profile->flops_per_gpu,
                        &profile->gemm_m_half,
                        &profile->decode_bw_eff,
                        &profile->gemm_call_s,
                        &profile->gemm_call_floor_s,
                        &profile->non_gemm_constant,
                        &profile->vector_eff}) {
    *value = rounded(*value);
  }
  for (auto* table :
       {&profile->flops_eff_tp, &profile->gemm_m_half_tp, &profile->decode_bw_eff_tp}) {
    for (auto& [unused, value] : *table) {
      value = rounded(value);
    }
  }
}

MessageFit rounded(MessageFit fit) {
  fit.alpha_s = rounded(fit.alpha_s);
  fit.alpha_step_s = rounded(fit.alpha_step_s);
  fit.beta_s_per_byte = rounded(fit.beta_s_per_byte);
  for (auto& [bytes, seconds] : fit.table) {
    seconds = rounded(seconds);
  }
  return fit;
}

FitQuality quality_of(const Comparison& comparison) {
  const FitQuality exact = fit_quality(comparison.predicted_s, comparison.measured);
  return {exact.samples, rounded(exact.relative_rms), rounded(exact.r_squared)};
}

enum class Part { kGemm, kNonGemm };

/// `tp` 0: all of them.
Comparison compare(Part part, const HardwareProfile& profile, ModelSet models, int tp) {
  Comparison result;
  for (const LayerMeasurements* model : models) {
    for (const LayerPoint& point : model->points) {
      if (tp != 0 && point.tp != tp) {
        continue;
      }
      if (part == Part::kGemm) {
        result.add(predicted_gemm_s(profile, model->model, point.tp, point.tokens),
                   point.tokens,
                   point.gemm_s);
      } else {
        result.add(predicted_non_gemm_s(profile, model->model, point.tp, point.tokens),
                   point.tokens,
                   point.non_gemm_s);
      }
    }
  }
  return result;
}

std::vector<const LayerMeasurements*> pointers(const std::vector<LayerMeasurements>& models) {
  std::vector<const LayerMeasurements*> result;
  for (const LayerMeasurements& model : models) {
    result.push_back(&model);
  }
  return result;
}

std::set<int> tensor_sizes(ModelSet models) {
  std::set<int> result;
  for (const LayerMeasurements* model : models) {
    for (const LayerPoint& point : model->points) {
      result.insert(point.tp);
    }
  }
  return result;
}

const std::string& name_of(Part part) { return part == Part::kGemm ? kGemms : kNonGemms; }

/// Every model and size, every model, everything.
void add_layer_rows(Part part,
                    const HardwareProfile& profile,
                    ModelSet models,
                    std::vector<FitRow>* rows) {
  for (const LayerMeasurements* model : models) {
    const ModelSet one(&model, 1);
    for (const int tp : tensor_sizes(one)) {
      rows->push_back({name_of(part),
                       model->name,
                       fmt::format("tp {}", tp),
                       error_of(compare(part, profile, one, tp))});
    }
    rows->push_back({name_of(part), model->name, "", error_of(compare(part, profile, one, 0))});
  }
  rows->push_back({name_of(part), "", "", error_of(compare(part, profile, models, 0))});
}

void fit_layers(ModelSet models, const GpuDatasheet& gpu, HardwareProfile* profile) {
  fit_gemms(models, gpu.flop_per_s, profile);
  fit_non_gemm_bytes(models, profile);
  round_layers(profile);
}

/// Each model, priced by a profile that never saw it.
std::vector<FitRow> leave_one_out(ModelSet models,
                                  const GpuDatasheet& gpu,
                                  const HardwareProfile& base) {
  std::vector<FitRow> rows;
  for (std::size_t out = 0; models.size() > 1 && out < models.size(); ++out) {
    std::vector<const LayerMeasurements*> rest(models.begin(), models.end());
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(out));
    HardwareProfile profile;
    profile.memory_bandwidth = base.memory_bandwidth;
    fit_layers(rest, gpu, &profile);
    for (const Part part : {Part::kGemm, Part::kNonGemm}) {
      rows.push_back({name_of(part),
                      models[out]->name,
                      "",
                      error_of(compare(part, profile, models.subspan(out, 1), 0))});
    }
  }
  return rows;
}

std::vector<FitRow> one_constant_rows(ModelSet models, const HardwareProfile& base) {
  HardwareProfile profile;
  profile.memory_bandwidth = base.memory_bandwidth;
  fit_non_gemm_seconds(models, &profile);
  std::vector<FitRow> rows;
  for (const LayerMeasurements* model : models) {
    const ModelSet one(&model, 1);
    rows.push_back(
        {kNonGemms, model->name, "", error_of(compare(Part::kNonGemm, profile, one, 0))});
  }
  rows.push_back({kNonGemms, "", "", error_of(compare(Part::kNonGemm, profile, models, 0))});
  return rows;
}

std::vector<MessagePoint> select(const std::vector<MessagePoint>& points, bool in_one_node) {
  std::vector<MessagePoint> result;
  std::copy_if(points.begin(), points.end(), std::back_inserter(result), [&](const auto& point) {
    // Between nodes: one GPU of each node. More of them share wires in ways that a line per rank
    // does not tell apart.
    return in_one_node ? point.is_in_one_node() : point.ranks_per_node == 1;
  });
  return result;
}

/// The keys of one tier and kind of message.
struct LinkKeys {
  MessageKind kind;
  std::size_t tier;

  std::string key(const char* number) const {
    static constexpr std::array<const char*, kTiers> kSuffix = {"g", "n", "r"};
    return fmt::format(
        "{}_{}_{}", number, kind == MessageKind::kAllReduce ? "coll" : "p2p", kSuffix[tier]);
  }
  AlphaBeta& link(HardwareProfile& profile) const {
    return kind == MessageKind::kAllReduce ? profile.collective[tier]
                                           : profile.point_to_point[tier];
  }
};

/// Fits a tier and reports it; returns whether there was something to fit.
bool fit_link(const LinkKeys& keys, const std::vector<MessagePoint>& points, ProfileFit* result) {
  if (points.size() < 2) {
    return false;
  }
  HardwareProfile& profile = result->profile;
  const MessageFit fit = rounded(fit_messages(keys.kind, points));
  keys.link(profile) = {fit.alpha_s, fit.beta_s_per_byte};
  if (keys.kind == MessageKind::kAllReduce) {
    profile.alpha_step_s[keys.tier] = fit.alpha_step_s;
    profile.collective_table[keys.tier] = fit.table;
  } else {
    profile.point_to_point_table[keys.tier] = fit.table;
  }
  const std::string what =
      fmt::format("{} {}",
                  keys.kind == MessageKind::kAllReduce ? "all-reduce" : "send and receive",
                  keys.tier == kNode ? "inside a node" : "between nodes");
  std::set<int> groups;
  Comparison all;
  for (const MessagePoint& point : points) {
    groups.insert(point.ranks);
    all.add(predicted_message_s(keys.kind, fit, point), point.bytes, point.seconds);
  }
  for (const int ranks : groups) {
    Comparison of_group;
    for (const MessagePoint& point : points) {
      if (point.ranks == ranks) {
        of_group.add(predicted_message_s(keys.kind, fit, point), point.bytes, point.seconds);
      }
    }
    result->rows.push_back({what, "", fmt::format("{} ranks", ranks), error_of(of_group)});
  }
  if (groups.size() > 1) {
    result->rows.push_back({what, "", "", error_of(all)});
  }
  profile.fit[keys.key("alpha")] = quality_of(all);
  return true;
}

void mark(const LinkKeys& keys, ProfileFit* result, bool alpha, bool beta) {
  for (const auto& [is_marked, number] : {std::pair{alpha, "alpha"}, std::pair{beta, "beta"}}) {
    if (is_marked) {
      result->profile.estimated.push_back(keys.key(number));
    }
  }
}

void fit_links(const KernelMeasurements& data, const ProfileFitOptions& options, ProfileFit* fit) {
  const double node_link = options.node_link_bytes_per_s;
  bool is_message_between_nodes = false;
  for (const MessageKind kind : {MessageKind::kSendRecv, MessageKind::kAllReduce}) {
    const auto& points = kind == MessageKind::kAllReduce ? data.all_reduce : data.send_recv;
    const LinkKeys node{kind, kNode};
    const LinkKeys rack{kind, kRack};
    const LinkKeys cluster{kind, kCluster};
    HardwareProfile& profile = fit->profile;
    if (!fit_link(node, select(points, true), fit)) {
      throw Error(ErrorKind::kUsage, "the measurements have no messages inside a node");
    }
    const AlphaBeta inside = node.link(profile);
    bool is_beta_measured = false;
    bool is_alpha_measured = false;
    if (fit_link(rack, select(points, false), fit)) {
      is_alpha_measured = is_beta_measured = true;
      is_message_between_nodes |= kind == MessageKind::kSendRecv;
    } else {
      // A ring between nodes is bound by the port that a message goes through.
      rack.link(profile) = {2.0 * inside.alpha_s,
                            is_message_between_nodes ? profile.point_to_point[kRack].beta_s_per_byte
                                                     : 2.0 * inside.beta_s_per_byte};
    }
    if (node_link > 0.0) {
      rack.link(profile).beta_s_per_byte = rounded(1.0 / (kWireShare * node_link));
      is_beta_measured = false;
      profile.collective_table[kRack].clear();
      profile.point_to_point_table[kRack].clear();
    }
    mark(rack, fit, !is_alpha_measured, !is_beta_measured);
    cluster.link(profile) = {2.0 * rack.link(profile).alpha_s,
                             2.0 * rack.link(profile).beta_s_per_byte};
    mark(cluster, fit, true, true);
  }
}

void set_datasheet(const GpuDatasheet& gpu, HardwareProfile* profile) {
  profile->memory_bandwidth = gpu.memory_bytes_per_s;
  profile->memory_per_gpu = gpu.memory_bytes;
  profile->reserve_bytes = kReserveShare * gpu.memory_bytes;
  profile->device = {{"name", gpu.name},
                     {"backend", "cuda"},
                     {"dtype", "bf16"},
                     {"memory", "bandwidth and capacity by the datasheet"}};
}

}  // namespace

GpuDatasheet gpu_datasheet(const std::string& gpu) {
  if (gpu == "a100") {
    return {"A100 SXM 80 GB", 312e12, 80e9, 2.039e12};
  }
  if (gpu == "h100") {
    return {"H100 SXM 80 GB", 989.4e12, 80e9, 3.35e12};
  }
  throw Error(ErrorKind::kUsage, fmt::format("no datasheet of `{}`; there are a100, h100", gpu));
}

ProfileFit fit_profile(const KernelMeasurements& measurements, const ProfileFitOptions& options) {
  const auto models = pointers(measurements.models);
  check(!models.empty(), "a fit needs a model");
  for (const LayerMeasurements* model : models) {
    if (!tensor_sizes(ModelSet(&model, 1)).contains(1)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{}: no measurement with num_tensor_parallel_workers = 1, the size "
                              "that all others are relative to",
                              model->name));
    }
  }
  ProfileFit result;
  HardwareProfile& profile = result.profile;
  set_datasheet(options.gpu, &profile);
  fit_layers(models, options.gpu, &profile);
  profile.attention_eff = kAttentionEff;
  profile.kv_bw_eff = profile.decode_bw_eff;
  profile.estimated = {
      "memory_per_gpu", "memory_bandwidth", "attention_eff", "kv_bw_eff", "reserve_bytes"};
  for (const Part part : {Part::kGemm, Part::kNonGemm}) {
    add_layer_rows(part, profile, models, &result.rows);
    const Comparison all = compare(part, profile, models, 0);
    profile.fit[part == Part::kGemm ? "flops_per_gpu" : "non_gemm_constant"] = quality_of(all);
  }
  if (options.node_link_bytes_per_s > 0.0) {
    profile.device["links between nodes"] = fmt::format("{:.0f} % of the datasheet's {:g} bytes/s",
                                                        100.0 * kWireShare,
                                                        options.node_link_bytes_per_s);
  }
  result.left_out = leave_one_out(models, options.gpu, profile);
  result.one_constant = one_constant_rows(models, profile);
  fit_links(measurements, options, &result);
  return result;
}

}  // namespace rpeg
