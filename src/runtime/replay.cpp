#include "runtime/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

using Json = nlohmann::ordered_json;

RolloutRecord parse_record(const std::string& line, const std::string& where) {
  RolloutRecord record;
  try {
    const Json json = Json::parse(line);
    json.at("iteration").get_to(record.iteration);
    json.at("prompt").get_to(record.prompt);
    json.at("sample").get_to(record.sample);
    json.at("dataset_index").get_to(record.dataset_index);
    json.at("version").get_to(record.version);
    // A reward model scores later: no reward is null.
    const Json& reward = json.at("reward");
    record.reward =
        reward.is_null() ? std::numeric_limits<double>::quiet_NaN() : reward.get<double>();
    json.at("stopped").get_to(record.rollout.stopped);
    json.at("tokens").get_to(record.rollout.tokens);
    json.at("logprobs").get_to(record.rollout.logprobs);
    json.at("text").get_to(record.text);
  } catch (const Json::exception& error) {
    throw Error(ErrorKind::kUsage, fmt::format("not a recorded rollout: {}", error.what()), where);
  }
  if (record.rollout.tokens.empty() ||
      record.rollout.tokens.size() != record.rollout.logprobs.size()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("a rollout needs as many logprobs as tokens and at least one, found {} "
                            "tokens and {} logprobs",
                            record.rollout.tokens.size(),
                            record.rollout.logprobs.size()),
                where);
  }
  return record;
}

std::vector<std::filesystem::path> rollout_files(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) {
    return {path};
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".jsonl") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string rollout_line(const RolloutRecord& record) {
  Json line;
  line["iteration"] = record.iteration;
  line["prompt"] = record.prompt;
  line["sample"] = record.sample;
  line["dataset_index"] = record.dataset_index;
  line["version"] = record.version;
  line["reward"] = record.reward;
  line["stopped"] = record.rollout.stopped;
  line["tokens"] = record.rollout.tokens;
  line["logprobs"] = record.rollout.logprobs;
  line["text"] = record.text;
  // Byte-level tokens can end a response inside a character.
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RolloutTable load_rollouts(const std::filesystem::path& path) {
  RolloutTable table;
  for (const auto& file : rollout_files(path)) {
    std::ifstream in(file);
    if (!in) {
      throw Error(ErrorKind::kUsage, fmt::format("cannot read rollouts {}", file.string()));
    }
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      RolloutRecord record = parse_record(line, fmt::format("{}:{}", file.string(), number));
      const auto key = std::make_tuple(record.iteration, record.prompt, record.sample);
      table.insert_or_assign(key, std::move(record));
    }
  }
  if (table.empty()) {
    throw Error(ErrorKind::kUsage, fmt::format("no rollouts in {}", path.string()));
  }
  return table;
}

}  // namespace rpeg
