#pragma once

#include <filesystem>
#include <optional>

#include "rpeg/spec/workload_config.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {

/// Reads one model of the map `models`, nothing when it is absent; `directory` is what a path of
/// hf_config is relative to. Faults go to the reader.
std::optional<ModelSpec> read_model(MapReader& models,
                                    ModelRole role,
                                    const std::filesystem::path& directory);

}  // namespace rpeg
