#include "cost/pipeline.h"

#include <algorithm>

namespace rpeg {

MicroBatches cut_micro_batches(std::int64_t units, std::int64_t count) {
  const std::int64_t larger = units % count;
  const std::int64_t size = units / count;
  const auto small = static_cast<double>(size);
  if (larger == 0) return {small, static_cast<double>(count), small, 0.0};
  return {small + 1.0, static_cast<double>(larger), small, static_cast<double>(count - larger)};
}

TaskTime pipeline_time(const StageTimes& large,
                       const StageTimes& small,
                       const MicroBatches& batches) {
  const Seconds busy = batches.large_count * large.slowest + batches.small_count * small.slowest;
  return with_total({.compute_s = busy.compute,
                     .comm_s = busy.comm,
                     .bubble_s = large.sum_s - large.slowest.total()});
}

double one_f_one_b_sends_s(double send_s, int pp, std::int64_t m) {
  if (pp == 1) return 0.0;
  const double rounded = static_cast<double>(ceil_divide(m, pp) * pp);
  const double exact = 2.0 * rounded * (pp - 1) / pp + 2.0 * (pp - 2);
  const double blocking = 2.0 * (static_cast<double>(m) + pp - 2.0);
  return send_s * std::min(exact, blocking);
}

TaskTime with_total(TaskTime time) {
  time.total_s = time.compute_s + time.comm_s + time.bubble_s;
  return time;
}

}  // namespace rpeg
