#pragma once

#include <functional>
#include <string>
#include <vector>

#include "rpeg/calibrate/calibrate.h"
#include "rpeg/calibrate/fit.h"

namespace rpeg {

/// How long to measure, and how far.
struct CalibrationEffort {
  double point_s = 0.0;         ///< per measured point
  double slowest_call_s = 0.0;  ///< no larger calls are tried beyond one this slow
  std::int64_t most_rows = 0;
  std::int64_t most_message_bytes = 0;
};

/// Tells what is measured next: "256 rows".
using Announce = std::function<void(const std::string& detail)>;

/// All times are with every rank running at once.

/// Bytes per second that a rank reads from an array as large as the weights of the model (256 KiB
/// to 256 MiB): from memory for real models, from the caches for those that live there.
double read_bandwidth(Comm& world, const ModelSpec& model, const CalibrationEffort& effort);

/// Time of the four matrix products of a layer, over rows. Layers are walked in turn, as a model
/// does.
std::vector<TimedPoint> gemm_times(Comm& world,
                                   const ModelSpec& model,
                                   const CalibrationEffort& effort,
                                   const Announce& announce);

/// Time of the rest of a layer, attention apart, over rows.
struct NonGemmTimes {
  std::vector<TimedPoint> replicated;  ///< norms and copies of the residual stream
  std::vector<TimedPoint> split;       ///< rotations and gates: tensor parallelism divides them
};
NonGemmTimes non_gemm_times(Comm& world, const ModelSpec& model, const CalibrationEffort& effort);

/// FLOP/s of causal attention over sequences of the workload's length (4 a d per query and key).
double attention_flop_rate(Comm& world,
                           const CalibrationWorkload& workload,
                           const CalibrationEffort& effort);

/// Bytes of the key-value cache per second that decoding reads.
double kv_bandwidth(Comm& world,
                    const CalibrationWorkload& workload,
                    const CalibrationEffort& effort);

/// Bytes per second of an AdamW step with the norm of its gradient (28 bytes a parameter).
double optimizer_bandwidth(Comm& world, const ModelSpec& model, const CalibrationEffort& effort);

/// Parameters of the matrices of one layer, and their bytes.
double layer_matrix_parameters(const ModelSpec& model);

/// Measured time of one decode step of `generate`, and what the step did.
struct DecodeStep {
  double seconds = 0.0;  ///< 0: responses of one token have no decode step
  double layers = 0.0;
  double sequences = 0.0;
  double context_tokens = 0.0;  ///< over all sequences
  double head_flop = 0.0;
  double logits_bytes = 0.0;  ///< three passes over the logits
};
DecodeStep decode_step(Comm& world,
                       const CalibrationWorkload& workload,
                       const CalibrationEffort& effort);

}  // namespace rpeg
