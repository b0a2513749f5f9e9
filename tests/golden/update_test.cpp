// Whole runs against an implementation of its own (scripts/make_update_golden.py, PyTorch in
// float64), on recorded rollouts: two iterations of two passes over three mini-batches, and three
// iterations of one update.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rpeg/base/file.h"
#include "rpeg/model/parameters.h"
#include "rpeg/plan/plan_file.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kData = fs::path(RPEG_SOURCE_DIR) / "tests/golden/data/update";
// Ten times what fp32 loses in twelve updates, which move the weights by up to 0.05.
constexpr double kMetricsTolerance = 1e-5;
constexpr double kWeightTolerance = 1e-5;
constexpr double kChangeTolerance = 1e-3;  // relative L2, of three updates at learning rate 1e-3

/// A recorded run: its folder below `kData` and its settings that the plan shares.
struct Recording {
  std::string folder;
  Algorithm algorithm;
  std::int64_t epochs = 2;
  std::int64_t minibatches = 3;
  std::int64_t iterations = 2;
};

/// Where every vertex runs: all on the block "", or some elsewhere.
using Placements = std::map<std::string, std::string>;

PlanFile plan_of(const Recording& recording, const Placements& placements) {
  const Algorithm algorithm = recording.algorithm;
  PlanFile file;
  const ModelSpec spec = load_hf_config(kData / "actor");
  file.inputs.hardware.gpus_per_node = 4;
  for (const ModelRole role : {ModelRole::kActor, ModelRole::kReference, ModelRole::kCritic}) {
    if (role != ModelRole::kCritic || algorithm == Algorithm::kPpo) {
      file.inputs.models[static_cast<std::size_t>(role)] = spec;
    }
  }
  file.inputs.workload.batch_size = 5;
  file.inputs.workload.samples_per_prompt = 3;
  file.inputs.workload.context_length = 6;
  file.inputs.workload.generation_length = 5;
  file.inputs.policy.algorithm = algorithm;
  file.inputs.policy.reward = RewardSource::kVerifier;
  file.inputs.policy.epochs = recording.epochs;
  file.inputs.policy.minibatches = recording.minibatches;
  for (const Vertex& vertex : build_graph(file.inputs.policy, {}).vertices) {
    const auto own = placements.find(vertex.name);
    VertexPlan plan;
    plan.placement = parse_placement(own == placements.end() ? placements.at("") : own->second);
    plan.parallelism.dp = plan.placement.gpu_count();
    plan.micro_batches = vertex.op == Op::kGenerate || plan.parallelism.dp > 1 ? 1 : 2;
    file.plan.vertices.push_back(plan);
  }
  return file;
}

std::vector<float> weights_in(const fs::path& directory, ModelRole role) {
  const ParameterLayout layout =
      build_parameter_layout(load_hf_config(kData / "actor"),
                             role == ModelRole::kCritic ? Head::kScalar : Head::kLanguageModel);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  load_parameters(directory, layout, weights);
  return weights;
}

void expect_metrics(const json& expected, const std::string& line) {
  const json actual = json::parse(line);
  SCOPED_TRACE("iteration " + expected.at("iteration").dump());
  for (const auto& [key, value] : expected.items()) {
    if (value.is_null()) {
      EXPECT_TRUE(actual.at(key).is_null()) << key;
    } else {
      const double number = value.get<double>();
      EXPECT_NEAR(actual.at(key).get<double>(), number, kMetricsTolerance * (1.0 + number)) << key;
    }
  }
}

void expect_weights(const fs::path& actual_dir, const fs::path& expected_dir, ModelRole role) {
  const auto expected = weights_in(expected_dir / to_string(role), role);
  const auto actual = weights_in(actual_dir / to_string(role), role);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], kWeightTolerance) << to_string(role) << " weight " << i;
  }
}

void expect_change(const fs::path& actual_dir, const fs::path& expected_dir, ModelRole role) {
  const auto expected = weights_in(expected_dir / to_string(role), role);
  const auto initial = weights_in(kData / "three" / to_string(role), role);
  const auto actual = weights_in(actual_dir / to_string(role), role);
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(actual[i] - initial[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), kChangeTolerance) << to_string(role);
}

/// Replays a recording and compares the metrics; returns where the trained models are.
fs::path replay(const Recording& recording, const Placements& placements) {
  const fs::path directory = fresh_directory(to_string(recording.algorithm));
  const PlanFile plan = plan_of(recording, placements);
  write_file_atomic(directory / "plan.yaml", plan_file_text(plan, nullptr));
  std::vector<std::string> warnings;
  const fs::path recorded = kData / recording.folder;
  const JobConfig config =
      load_job_config(recorded / "job.yaml", warnings, directory / "plan.yaml");
  EXPECT_TRUE(warnings.empty());
  RunOptions options;
  options.replay = recorded / "rollouts.jsonl";
  options.max_iterations = recording.iterations;
  run_on_threads(compile_job(config, plan, directory), options);
  std::istringstream lines(read_file(directory / "metrics/metrics.jsonl"));
  for (const json& expected : json::parse(read_file(recorded / "metrics.json"))) {
    std::string line;
    EXPECT_TRUE(std::getline(lines, line));
    expect_metrics(expected, line);
  }
  return directory / "model";
}

std::vector<ModelRole> trained_roles(Algorithm algorithm) {
  return algorithm == Algorithm::kPpo ? std::vector{ModelRole::kActor, ModelRole::kCritic}
                                      : std::vector{ModelRole::kActor};
}

void expect_recorded_update(Algorithm algorithm, const Placements& placements) {
  const Recording recording{to_string(algorithm), algorithm};
  const fs::path models = replay(recording, placements);
  for (const ModelRole role : trained_roles(algorithm)) {
    expect_weights(models, kData / recording.folder, role);
  }
}

void expect_three_updates(Algorithm algorithm, const Placements& placements) {
  const Recording recording{std::string("three/") + to_string(algorithm), algorithm, 1, 1, 3};
  const fs::path models = replay(recording, placements);
  for (const ModelRole role : trained_roles(algorithm)) {
    expect_change(models, kData / recording.folder / "change", role);
  }
}

const Placements kOneRank = {{"", "r0 n[0-0] g[0-0]"}};
/// Mini-batches of five sequences on three training ranks: shares of 2, 2 and 1.
const Placements kDisjoint = {{"", "r0 n[0-0] g[0-1]"},
                              {"t_pi", "r0 n[0-0] g[1-3]"},
                              {"t_V", "r0 n[0-0] g[2-3]"},
                              {"i_V", "r0 n[0-0] g[0-2]"}};

TEST(Update, GrpoEqualsPyTorch) {
  expect_recorded_update(Algorithm::kGrpo, kOneRank);
  expect_recorded_update(Algorithm::kGrpo, kDisjoint);
  expect_three_updates(Algorithm::kGrpo, kOneRank);
  expect_three_updates(Algorithm::kGrpo, kDisjoint);
}

TEST(Update, PpoEqualsPyTorch) {
  expect_recorded_update(Algorithm::kPpo, kOneRank);
  expect_recorded_update(Algorithm::kPpo, kDisjoint);
  expect_three_updates(Algorithm::kPpo, kOneRank);
  expect_three_updates(Algorithm::kPpo, kDisjoint);
}

}  // namespace
}  // namespace rpeg
