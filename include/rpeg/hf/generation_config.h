#pragma once

#include <filesystem>
#include <string>

namespace rpeg {

/// Returns the text of the generation_config.json that a copy of the model in `directory` needs:
/// its own, and where that names no stop tokens those of its config.json in it. Empty when there is
/// neither. Throws kUsage naming the file when one is not a JSON object.
std::string generation_config_text(const std::filesystem::path& directory);

}  // namespace rpeg
