#include "calibrate/timing.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace rpeg {
namespace {

constexpr int kLeastBatches = 3;
constexpr int kMostBatches = 200;
// A slow call may take this many budgets to be repeated.
constexpr double kPatience = 3.0;
// Short calls are timed in batches long enough for the clock (about 30 ns) not to matter.
constexpr double kBatchSeconds = 100e-6;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double batch_seconds(int calls, const std::function<void()>& body) {
  const double start = now_s();
  for (int i = 0; i < calls; ++i) {
    body();
  }
  return (now_s() - start) / calls;
}

// Disturbances only ever add time; the very least may be a fluke of the clock.
double lower_decile(std::vector<double> values) {
  const auto decile = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 10);
  std::nth_element(values.begin(), decile, values.end());
  return *decile;
}

int calls_per_batch(double call_s) {
  return static_cast<int>(std::clamp(kBatchSeconds / std::max(call_s, 1e-9), 1.0, 1e5));
}

double first_rank_value(Comm& comm, double value) {
  const auto all = comm.all_gather(std::as_bytes(std::span(&value, 1)));
  std::memcpy(&value, all[0].data(), sizeof(value));
  return value;
}

}  // namespace

double call_seconds(double budget_s, const std::function<void()>& body) {
  const double start = now_s();
  body();
  std::vector<double> batches{batch_seconds(1, body)};
  const int calls = calls_per_batch(batches[0]);
  const auto wants_more = [&] {
    const double spent_s = now_s() - start;
    const auto count = static_cast<int>(batches.size());
    return count < kLeastBatches ? spent_s < kPatience * budget_s
                                 : spent_s < budget_s && count < kMostBatches;
  };
  while (wants_more()) {
    batches.push_back(batch_seconds(calls, body));
  }
  return lower_decile(batches);
}

double call_seconds_together(Comm& comm, double budget_s, const std::function<void()>& body) {
  comm.barrier();
  return mean_over_ranks(comm, call_seconds(budget_s, body));
}

double collective_seconds(Comm& comm, double budget_s, const std::function<void()>& body) {
  comm.barrier();
  body();
  const double once_s = first_rank_value(comm, batch_seconds(2, body));
  const int calls = calls_per_batch(once_s);
  const int count = static_cast<int>(
      std::clamp(budget_s / (once_s * calls), double(kLeastBatches), double(kMostBatches)));
  std::vector<double> batches;
  for (int i = 0; i < count; ++i) {
    batches.push_back(batch_seconds(calls, body));
  }
  return mean_over_ranks(comm, lower_decile(batches));
}

double mean_over_ranks(Comm& comm, double value) {
  comm.all_reduce_sum(std::span<double>(&value, 1));
  return value / comm.size();
}

}  // namespace rpeg
