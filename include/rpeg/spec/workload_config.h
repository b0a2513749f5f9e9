#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "rpeg/spec/model_spec.h"

namespace rpeg {

class MapReader;
class YamlWriter;

enum class Algorithm { kPpo, kGrpo, kDpo };
enum class DpoMode { kOffline, kOnline };
enum class RewardSource { kModel, kVerifier };
enum class Recompute { kNone, kSelective, kFull };
enum class Objective { kThroughput, kCost };
enum class TrainDtype { kBf16, kFp32 };
/// The four models of a job; the order is that of every per-model array.
enum class ModelRole { kActor, kCritic, kReward, kReference };
inline constexpr std::size_t kModelRoles = 4;

/// The cluster: racks × nodes × GPUs.
struct ClusterSpec {
  int racks = 1;
  int nodes_per_rack = 1;
  int gpus_per_node = 1;
  std::optional<double> gpu_hour_price;  ///< money per GPU hour
  std::optional<int> max_gpus;           ///< GPUs that a plan may use

  int gpu_count() const { return racks * nodes_per_rack * gpus_per_node; }
  bool operator==(const ClusterSpec&) const = default;
};

/// A point of the response-length distribution: `probability` of the sequences have ended by
/// `tokens`. Linear between points, (0, 0) implied, the last is (1, generation_length).
struct LengthQuantile {
  double probability = 0.0;
  double tokens = 0.0;
  bool operator==(const LengthQuantile&) const = default;
};

struct WorkloadSpec {
  std::int64_t batch_size = 0;                ///< prompts per iteration
  std::int64_t samples_per_prompt = 1;        ///< rollouts per prompt
  std::int64_t context_length = 0;            ///< prompt tokens
  std::int64_t generation_length = 0;         ///< most response tokens
  std::vector<LengthQuantile> gen_quantiles;  ///< empty: every sequence has generation_length

  std::int64_t sequences() const { return batch_size * samples_per_prompt; }
  bool operator==(const WorkloadSpec&) const = default;
};

struct PolicySpec {
  Algorithm algorithm = Algorithm::kPpo;
  DpoMode dpo_mode = DpoMode::kOffline;
  RewardSource reward = RewardSource::kModel;
  bool allow_ac_share = false;
  bool kl_reference = true;
  bool allow_fusion = true;
  bool recompute_logprobs = false;
  std::int64_t epochs = 1;       ///< passes over a batch
  std::int64_t minibatches = 1;  ///< optimizer steps per pass

  bool operator==(const PolicySpec&) const = default;
};

struct OptimizerSpec {
  std::int64_t k_eval = 5;  ///< least iterations unrolled
  double t_init = 0.05;     ///< temperatures are relative worsenings (0.05: 5 %)
  double t_min = 0.05;
  double t_warm = 0.10;
  std::int64_t k_x = 6;           ///< candidates per focused vertex
  std::int64_t stag_window = 10;  ///< rejections in a row before a warm restart
  std::vector<std::int64_t> staleness_actor{0};
  std::vector<std::int64_t> staleness_critic{0};
  std::optional<std::int64_t> evals;
  std::int64_t chains = 8;
  std::int64_t zero_stage = 1;  ///< 0 … 3
  Recompute recompute = Recompute::kFull;
  bool sequence_parallel = false;  ///< norms and residuals divided over the tensor-parallel group
  Objective objective = Objective::kThroughput;
  TrainDtype dtype = TrainDtype::kBf16;
  std::optional<std::int64_t> max_tp;
  std::optional<std::int64_t> max_pp;

  bool operator==(const OptimizerSpec&) const = default;
};

struct OutputSpec {
  bool plots = false;
  std::string plots_dir;  ///< all four: "" when absent
  std::string log_file;
  std::string base_plan;
  std::string opt_plan;
  bool operator==(const OutputSpec&) const = default;
};

/// The workload configuration: everything that the planner needs besides hw.yaml.
struct WorkloadConfig {
  ClusterSpec hardware;
  std::array<std::optional<ModelSpec>, kModelRoles> models;  ///< indexed by ModelRole
  WorkloadSpec workload;
  PolicySpec policy;
  OptimizerSpec optimizer;
  OutputSpec output;
  std::uint64_t seed = 0;

  /// The shape of a model; the reference defaults to the actor. Throws kInternal when the job has
  /// no such model (the loader has checked that it needs none).
  const ModelSpec& model(ModelRole role) const;
  bool operator==(const WorkloadConfig&) const = default;
};

/// Reads a workload configuration; throws kUsage listing every fault of the file.
WorkloadConfig load_workload_config(const std::filesystem::path& path);
/// The same from text; `file` is used in messages and to resolve `hf_config` paths.
WorkloadConfig parse_workload_config(const std::string& text, const std::filesystem::path& file);

/// The same from a map of another file (`inputs` of plan.yaml). Faults go to the reader;
/// `directory` resolves `hf_config` paths. The result is whole only when no fault was recorded.
WorkloadConfig read_workload_config(MapReader& reader, const std::filesystem::path& directory);
/// Writes the keys of everything but `output` below the writer's current position;
/// `read_workload_config` reads an equal value back.
void write_workload_inputs(YamlWriter& writer, const WorkloadConfig& config);

/// Names as in the files: "actor", "ppo", ….
const char* to_string(ModelRole role);
const char* to_string(Algorithm algorithm);
/// Whether a job has this model: the actor always, the critic with PPO, the reward model when it is
/// asked for, the reference when the loss reads it.
bool needs_model(const PolicySpec& policy, ModelRole role);

}  // namespace rpeg
