#pragma once

/// Fits the times of a transformer layer to hardware_profile.h's parameters, one set for all models
/// given.

#include <span>

#include "rpeg/calibrate/kernel_measurements.h"
#include "rpeg/profile/hardware_profile.h"

namespace rpeg {

/// Models of which some may be left out.
using ModelSet = std::span<const LayerMeasurements* const>;

/// The four matrix products of a layer by the profile:
/// max(W / (ε B) + 4 · gemm_call_floor, 2 P (M + γ) / F + 4 · gemm_call).
double predicted_gemm_s(const HardwareProfile& profile,
                        const ModelSpec& model,
                        int tp,
                        double tokens);

/// Sets flops_per_gpu, gemm_m_half, decode_bw_eff, their values by tp, gemm_call and
/// gemm_call_floor. memory_bandwidth is given; `peak_flop_per_s` only starts the search.
void fit_gemms(ModelSet models, double peak_flop_per_s, HardwareProfile* profile);

/// Everything else of a layer but attention, by the profile: the constant, and either seconds per
/// row or the memory traffic of the model's widths.
double predicted_non_gemm_s(const HardwareProfile& profile,
                            const ModelSpec& model,
                            int tp,
                            double tokens);

/// Sets non_gemm_form: bytes, non_gemm_constant and vector_eff.
void fit_non_gemm_bytes(ModelSet models, HardwareProfile* profile);
/// Sets non_gemm_constant, non_gemm_scaling and non_gemm_replicated at 4096 tokens.
void fit_non_gemm_seconds(ModelSet models, HardwareProfile* profile);

}  // namespace rpeg
