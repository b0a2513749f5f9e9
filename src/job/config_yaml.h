#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/job/job_config.h"
#include "rpeg/spec/workload_config.h"
#include "rpeg/yaml/reader.h"
#include "rpeg/yaml/writer.h"

namespace rpeg {

/// What reading a job configuration depends on besides its text.
struct ConfigContext {
  const WorkloadConfig& plan;          ///< inputs of the plan: algorithm, defaults
  std::filesystem::path folder;        ///< relative input paths start here
  std::vector<std::string>& warnings;  ///< receives warnings
  std::uint64_t seed = 0;              ///< of the job: default of random initialisations
};

/// Reads the keys of job.yaml (all but `schema`) from `root` and calls its `finish`.
JobConfig read_job_config(MapReader& root, ConfigContext context);
/// Reads `data`: prompts, or the preference pairs of offline DPO.
DataConfig read_data_config(MapReader data, const ConfigContext& context);
/// Reads `reward` of a job.yaml: a verifier; kNone where a model gives the rewards or where there
/// are none.
VerifierSpec read_reward_config(MapReader& root, const ConfigContext& context);
/// Reads `train`.
TrainConfig read_train_config(MapReader& root, const ConfigContext& context);

/// Writes the keys of job.yaml that a policy reads, so that `read_job_config` gives an equal value.
void write_job_config(YamlWriter& writer, const JobConfig& config, const PolicySpec& policy);

/// An input path of the file: relative ones start at `folder`; "" stays empty.
std::filesystem::path resolve_path(const std::filesystem::path& folder, const std::string& text);

/// A fault when `key` is present, which the job does not read: `reason` says why.
void refuse_key(MapReader& reader, const std::string& key, const std::string& reason);

/// A fault when `key` is present: a feature that this version does not have. `advice` says what to
/// do instead.
void reject_key(MapReader& reader, const std::string& key, const std::string& advice);

inline constexpr Bounds kAtLeastZero{0.0, 9.2e18};
inline constexpr Bounds kAtLeastOne{1.0, 9.2e18};

// Names in the files, in the order of the enumerations they stand for.
inline const std::vector<std::string> kKlEstimatorNames{"k1", "k2", "k3"};
inline const std::vector<std::string> kAdvantageNames{"std", "mean", "rloo"};
inline const std::vector<std::string> kScheduleNames{"constant", "linear", "cosine"};
inline const std::vector<std::string> kRatioNames{"token", "sequence"};
inline const std::vector<std::string> kAggregationNames{
    "token_mean", "seq_mean_token_mean", "seq_mean_token_sum_norm"};
inline const std::vector<std::string> kWhiteningNames{"none", "unbiased", "biased"};
inline const std::vector<std::string> kOverLongNames{"drop", "truncate", "error"};
/// The built-in verifiers; a command and none are not named.
inline const std::vector<std::string> kVerifierNames{
    "gsm8k", "regex", "digit_completion", "copy", "math", "countdown"};
inline const std::vector<std::string> kDpoLossNames{"sigmoid", "ipo", "hinge"};
inline const std::vector<std::string> kPublishNames{"auto", "buffered"};

}  // namespace rpeg
