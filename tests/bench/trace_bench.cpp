/// What tracing costs a rank: nanoseconds per event, formatting, checksum and file included.

#include <benchmark/benchmark.h>

#include <filesystem>

#include "rpeg/trace/trace.h"

namespace rpeg {
namespace {

std::filesystem::path bench_directory() {
  return std::filesystem::temp_directory_path() / "rpeg_trace_bench";
}

TraceEvent event_of(std::int64_t i) {
  const double start_s = 1e-3 * static_cast<double>(i);
  return {.iteration = i / 20,
          .rank = 3,
          .instruction = static_cast<std::int32_t>(i % 20),
          .kind = "receive_weights",
          .vertex = "t_pi->g_pi.1",
          .start_s = start_s,
          .end_s = start_s + 0.7e-3,
          .bytes = 123456789,
          .peer = 17,
          .version = i / 20,
          .written = -1,
          .waited_s = 0.1e-3};
}

void add_event(benchmark::State& state) {
  TraceWriter writer(bench_directory(), {3, 32, std::string(64, 'a'), {}});
  std::int64_t i = 0;
  for (auto step : state) {
    writer.add(event_of(i++));
  }
  writer.close({});
  state.counters["bytes_per_event"] =
      static_cast<double>(writer.bytes()) / static_cast<double>(std::max<std::int64_t>(1, i));
  std::filesystem::remove_all(bench_directory());
}
BENCHMARK(add_event);

/// A record of 64 sequences.
void add_rollout(benchmark::State& state) {
  TraceWriter writer(bench_directory(), {3, 32, std::string(64, 'a'), {}});
  TracedRollouts record{.iteration = 1, .rank = 3, .instruction = 0, .sequences = {}};
  for (std::int64_t s = 0; s < 64; ++s) {
    record.sequences.push_back({s, 128, 300 + s});
  }
  for (auto step : state) {
    writer.add(record);
  }
  writer.close({});
  std::filesystem::remove_all(bench_directory());
}
BENCHMARK(add_rollout);

void load_events(benchmark::State& state) {
  constexpr std::int64_t kEvents = 10000;
  {
    TraceWriter writer(bench_directory(), {3, 32, std::string(64, 'a'), {}});
    for (std::int64_t i = 0; i < kEvents; ++i) {
      writer.add(event_of(i));
    }
    writer.close({});
  }
  for (auto step : state) {
    benchmark::DoNotOptimize(load_trace(bench_directory()).ranks.front().events.size());
  }
  state.SetItemsProcessed(state.iterations() * kEvents);
  std::filesystem::remove_all(bench_directory());
}
BENCHMARK(load_events);

}  // namespace
}  // namespace rpeg

BENCHMARK_MAIN();
