#pragma once

#include <cstdint>

#include "rpeg/cost/cost_model.h"

// Micro-batches through the stages of a pipeline.

namespace rpeg {

/// Kernels and exposed communication of the same work.
struct Seconds {
  double compute = 0.0;
  double comm = 0.0;
  double total() const { return compute + comm; }
};
inline Seconds operator+(Seconds a, Seconds b) { return {a.compute + b.compute, a.comm + b.comm}; }
inline Seconds operator*(double k, Seconds a) { return {a.compute * k, a.comm * k}; }

/// A replica's units cut into micro-batches as evenly as possible; `large_count` ≥ 1.
struct MicroBatches {
  double large_units = 0.0;
  double large_count = 0.0;
  double small_units = 0.0;
  double small_count = 0.0;
};
MicroBatches cut_micro_batches(std::int64_t units, std::int64_t count);

/// One micro-batch: on the slowest stage, and over all stages one after the other.
struct StageTimes {
  Seconds slowest;
  double sum_s = 0.0;
};

/// Σ_j max_i t_i(b_j) + Σ_i t_i − max_i t_i (the last two of a large micro-batch). With t_i =
/// forward + backward this is 1F1B, which takes as long as GPipe: exact for uniform stages, else an
/// upper bound. With t_i = forward it is exact. Sends between stages are not in it.
TaskTime pipeline_time(const StageTimes& large,
                       const StageTimes& small,
                       const MicroBatches& batches);

/// Sends that 1F1B does not hide, of `send_s` seconds each:
/// 2m(pp − 1)/pp + 2(pp − 2) of them, exact for uniform stages and pp | m; otherwise m is rounded
/// up, and bounded by the 2(m + pp − 2) sends of a pipeline that waits for each.
double one_f_one_b_sends_s(double send_s, int pp, std::int64_t m);

/// Sets `total_s` to the sum of the parts.
TaskTime with_total(TaskTime time);

inline std::int64_t ceil_divide(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace rpeg
