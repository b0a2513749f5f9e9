#include "rpeg/hf/generation_config.h"

#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/tokenizer.h"

namespace rpeg {

std::string generation_config_text(const std::filesystem::path& directory) {
  const auto file = directory / "generation_config.json";
  const std::vector<std::int32_t> stops = load_stop_tokens(directory);
  std::string text = std::filesystem::exists(file) ? read_file(file) : "";
  auto json = nlohmann::ordered_json::parse(text.empty() ? "{}" : text, nullptr, false);
  if (!json.is_object()) {
    throw Error(ErrorKind::kUsage, "is not a JSON object", file.string());
  }
  const auto own = json.find("eos_token_id");
  if (stops.empty() || (own != json.end() && !own->is_null())) {
    return text;
  }
  json["eos_token_id"] = stops;
  return json.dump(2) + "\n";
}

}  // namespace rpeg
