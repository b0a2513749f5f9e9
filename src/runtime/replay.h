#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>

#include "runtime/store.h"

namespace rpeg {

/// One line of a rollouts file.
struct RolloutRecord {
  std::int64_t iteration = 0;
  std::int64_t prompt = 0;         ///< index in the iteration's batch
  std::int64_t sample = 0;         ///< which of the samples of that prompt
  std::int64_t dataset_index = 0;  ///< line of the prompt in the data set after filtering
  std::int64_t version = 0;        ///< weight version that generated it
  double reward = 0.0;             ///< by the verifier; NaN with a reward model
  Rollout rollout;
  std::string text;  ///< decoded response
};

/// Recorded rollouts by (iteration, prompt, sample).
using RolloutTable = std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, RolloutRecord>;

/// The record as a JSON object and a line feed; floats read back to the same bits.
std::string rollout_line(const RolloutRecord& record);

/// Reads a rollouts file, or all *.jsonl files of a directory. Throws kUsage naming file and line
/// for a broken one, and when there is none.
RolloutTable load_rollouts(const std::filesystem::path& path);

}  // namespace rpeg
