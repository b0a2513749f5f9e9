#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace rpeg {

/// What a Hugging Face config.json says about the head on top of the trunk.
struct HeadConfig {
  std::string architecture;            ///< e.g. LlamaForSequenceClassification; "" when not given
  std::optional<std::int64_t> labels;  ///< num_labels, else the size of id2label
};

/// Reads the head's part of a `config.json` (the file or the directory that holds it). Throws
/// kUsage naming the file when it is no JSON object.
HeadConfig load_hf_head(const std::filesystem::path& path);

}  // namespace rpeg
