#include "rpeg/calibrate/profile_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "calibrate/comparison.h"
#include "calibrate/layer_fit.h"
#include "calibrate/link_fit.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

// Not in the measurements, hence marked estimated.
constexpr double kAttentionEff = 0.5;
constexpr double kReserveShare = 0.05;  // of the memory: context, buffers of collectives
const std::string kGemms = "matrix products";
const std::string kNonGemms = "norms, residual, rotary, gate";

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
  result.left_out = leave_one_out(models, options.gpu, profile);
  result.one_constant = one_constant_rows(models, profile);
  fit_links(measurements, options, &result);
  return result;
}

}  // namespace rpeg
