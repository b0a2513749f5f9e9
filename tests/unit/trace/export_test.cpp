#include "rpeg/trace/export.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "support/random_job.h"
#include "support/virtual_run.h"

namespace rpeg {
namespace {

/// Rollouts go to another node, weights come back.
Job two_node_job() {
  WorkloadConfig inputs = test::small_ppo(1, 2, 2);
  inputs.policy.algorithm = Algorithm::kGrpo;
  inputs.policy.reward = RewardSource::kVerifier;
  inputs.policy.kl_reference = false;
  const Plan plan{
      {}, {{{2, 1, 1}, 1, {{0, 0}, {0, 0}, {0, 1}}}, {{1, 1, 2}, 1, {{0, 0}, {1, 1}, {0, 1}}}}};
  return test::job_of(inputs, plan);
}

TEST(PerfettoJson, HasSlicesArrowsAndCounters) {
  const Job job = two_node_job();
  const Trace trace = virtual_run(job, {.iterations = 3});
  const nlohmann::json root = nlohmann::json::parse(perfetto_json(job, trace));
  std::map<std::string, int> phases;
  std::set<int> processes;
  std::map<int, int> arrows;
  std::set<int> versions;
  int waits = 0;
  for (const auto& entry : root.at("traceEvents")) {
    const std::string phase = entry.at("ph");
    ++phases[phase];
    processes.insert(entry.at("pid").get<int>());
    if (phase == "X") {
      EXPECT_GE(entry.at("dur").get<double>(), 0.0);
      waits += entry.at("cat") == "wait" ? 1 : 0;
    }
    if (phase == "s" || phase == "f") {
      ++arrows[entry.at("id").get<int>()];
    }
    if (phase == "C") {
      versions.insert(entry.at("args").at("version").get<int>());
    }
  }
  const std::vector<TraceEvent> events = all_events(trace);
  EXPECT_EQ(phases["X"] - waits, static_cast<int>(events.size()));
  EXPECT_GT(waits, 0);
  EXPECT_EQ(processes, (std::set<int>{0, 1}));
  EXPECT_EQ(versions, (std::set<int>{0, 1, 2, 3}));
  int sends = 0;
  for (const TraceEvent& event : events) {
    sends += event.kind.starts_with("send") ? 1 : 0;
  }
  EXPECT_EQ(phases["s"], sends);
  EXPECT_EQ(phases["f"], sends);
  for (const auto& [id, ends] : arrows) {
    EXPECT_EQ(ends, 2) << id;
  }
}

}  // namespace
}  // namespace rpeg
