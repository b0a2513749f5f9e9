#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "rpeg/plan/plan.h"
#include "rpeg/yaml/writer.h"

namespace rpeg {

/// Place of a task in the steady-state order that every iteration repeats.
struct ScheduleEntry {
  std::string id;          ///< a vertex, or "t_pi->g_pi" for a weights transfer
  std::int64_t shift = 0;  ///< iterations by which it runs behind the first task of its period
  std::int64_t order = 0;  ///< rank in the order of the period
  bool operator==(const ScheduleEntry&) const = default;
};

/// What the model predicts for one task, seconds per iteration.
struct PredictedTask {
  double compute_s = 0.0;  ///< kernels on the critical rank
  double comm_s = 0.0;     ///< exposed communication
  double bubble_s = 0.0;   ///< pipeline bubble
  double wait_s = 0.0;     ///< its GPUs idle between its inputs' end and its start
  double bytes = 0.0;      ///< of a transfer: bytes moved
  bool operator==(const PredictedTask&) const = default;
};

struct Prediction {
  double iteration_time_s = 0.0;
  double lower_bound_s = 0.0;  ///< 0: not computed
  double throughput_tokens_per_s = 0.0;
  std::map<std::string, PredictedTask> breakdown;   ///< by schedule id
  std::map<std::string, double> memory_peak_bytes;  ///< largest over the GPUs of each vertex
  bool operator==(const Prediction&) const = default;
};

/// plan.yaml. It stands alone: the inputs are embedded.
struct PlanFile {
  WorkloadConfig inputs;  ///< hardware, models, workload, policy, optimizer limits
  Plan plan;
  std::vector<ScheduleEntry> schedule;
  Prediction predicted;
  bool operator==(const PlanFile&) const = default;
};

/// Text of plan.yaml. Without `provenance` (nullptr) the text is the content that digests cover.
std::string plan_file_text(const PlanFile& file, const Provenance* provenance);
/// Reads plan.yaml; throws kUsage listing every fault of the file, then every structural violation.
PlanFile load_plan_file(const std::filesystem::path& path);
PlanFile parse_plan_file(const std::string& text, const std::string& file);

}  // namespace rpeg
