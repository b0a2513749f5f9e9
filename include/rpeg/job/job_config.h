#pragma once

/// Module `job`: the job compiler. plan.yaml + job.yaml → run.yaml: the user's training settings
/// (this header), the compiled job (job.h), and the compiler with its proofs (compile.h).

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rpeg/data/dataset.h"
#include "rpeg/data/verifier.h"
#include "rpeg/loss/advantage.h"
#include "rpeg/loss/dpo_loss.h"
#include "rpeg/loss/kl_controller.h"
#include "rpeg/loss/policy_loss.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// Where a model's weights come from: a Hugging Face directory, a random initialisation of the
/// shape in one, or (critic) the trunk of another model with a fresh value head.
struct ModelSource {
  std::filesystem::path path;          ///< directory: config.json, tokenizer.json, weights
  bool random_init = false;            ///< weights at random instead of from files
  std::uint64_t seed = 0;              ///< of the random initialisation
  std::optional<ModelRole> init_from;  ///< copy this model's initial trunk
  bool operator==(const ModelSource&) const = default;
};

struct DataConfig {
  DatasetOptions train;  ///< prompts, or the preference pairs of offline DPO
  bool shuffle = true;
  std::filesystem::path eval;   ///< held-out prompts, same fields; "" when absent
  std::int64_t eval_every = 0;  ///< iterations between evaluations; 0: only at the end
};

enum class ScheduleKind { kConstant, kLinear, kCosine };

struct TrainConfig {
  std::int64_t iterations = 0;
  double learning_rate_actor = 1e-6;
  double learning_rate_critic = 5e-6;
  ScheduleKind schedule = ScheduleKind::kConstant;
  std::int64_t warmup = 0;  ///< iterations
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.0;
  double grad_clip = 1.0;  ///< global norm; 0: off
  // Read from train.ppo, train.grpo or train.dpo, whichever runs.
  std::int64_t epochs = 1;
  std::int64_t minibatches = 1;
  // PPO and GRPO.
  PolicyLossOptions policy;  ///< policy.kl_coef is of the loss (GRPO)
  bool decoupled = false;    ///< the ratio is against i_pi, weighted by i_pi against the generator
  // PPO.
  double value_clip = 0.2;
  double gamma = 1.0;
  double lambda = 0.95;
  double value_coef = 0.5;       ///< weight of the value loss on a trunk shared with the actor
  double reward_kl_coef = 0.05;  ///< KL in the reward: at the start when there is a target
  KlController kl_controller;    ///< of reward_kl_coef
  KlEstimator reward_kl_estimator = KlEstimator::kK1;
  Whitening whiten = Whitening::kUnbiased;
  // GRPO.
  GroupAdvantage advantage = GroupAdvantage::kStd;
  double std_eps = 1e-6;
  // DPO.
  DpoLossOptions dpo;
};

struct SamplingConfig {
  double temperature = 1.0;
  double top_p = 1.0;
  std::int64_t top_k = 0;
};

/// How new weights reach a copy of the model on the ranks that trained it.
enum class Publish {
  kAuto,      ///< shared in place where the layout allows it and no version must be kept
  kBuffered,  ///< always through a second buffer
};

/// Output folders and files; relative ones are below the output directory given to rpeg-jobplan.
struct RuntimeConfig {
  std::filesystem::path trace_dir;    ///< "" : no trace
  std::filesystem::path metrics_dir;  ///< metrics.jsonl; "metrics" unless job.yaml says otherwise
  std::filesystem::path save_dir;     ///< trained actor (and critic) as Hugging Face directories
  std::filesystem::path rollouts;     ///< JSONL of every rollout; "": none
  Publish publish = Publish::kAuto;
};

struct SlurmConfig {
  std::string partition;
  std::string time;
  std::string account;
  std::string gres_per_node;
  std::vector<std::string> modules;
  std::string container;
  std::vector<std::string> extra;
};

/// job.yaml after reading: paths resolved against the file's folder.
struct JobConfig {
  std::filesystem::path plan;
  std::array<std::optional<ModelSource>, kModelRoles> models;
  DataConfig data;
  VerifierSpec verifier;  ///< kNone: rewards come from models.reward, or there are none
  TrainConfig train;
  SamplingConfig sampling;
  RuntimeConfig runtime;
  SlurmConfig slurm;
  std::optional<std::uint64_t> seed;  ///< absent: the plan's
};

/// Reads job.yaml for the algorithm of its plan (`plan_override` instead of its `plan:` key when
/// not empty); throws kUsage listing every fault. `train.*.epochs` and `minibatches` default to the
/// plan's. Blocks of other algorithms are warnings (appended to `warnings`), keys of features this
/// version does not have are errors that say so.
JobConfig load_job_config(const std::filesystem::path& path,
                          std::vector<std::string>& warnings,
                          const std::filesystem::path& plan_override = {});

/// Whether the policy trains on given preference pairs: it generates nothing and has no rewards.
bool trains_on_preferences(const PolicySpec& policy);

/// The directory that holds a model's config.json and tokenizer.json: the actor's for a critic that
/// starts from the actor's trunk. The job must have the model.
const std::filesystem::path& model_directory(const JobConfig& config, ModelRole role);

/// Learning-rate factor of iteration k (0-based): linear warm-up (k + 1) / warmup, then constant,
/// linear or cosine decay to 0 at `iterations`.
double schedule_factor(const TrainConfig& train, std::int64_t iteration);

}  // namespace rpeg
