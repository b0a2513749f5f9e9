#include "rpeg/spec/head_config.h"

#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {

HeadConfig load_hf_head(const std::filesystem::path& path) {
  const auto file = std::filesystem::is_directory(path) ? path / "config.json" : path;
  const auto json = nlohmann::json::parse(read_file(file), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw Error(ErrorKind::kUsage, "is not a JSON object", file.string());
  }
  HeadConfig head;
  const auto names = json.find("architectures");
  if (names != json.end() && names->is_array() && names->size() == 1 &&
      names->front().is_string()) {
    head.architecture = names->front().get<std::string>();
  }
  const auto count = json.find("num_labels");
  const auto names_of_labels = json.find("id2label");
  if (count != json.end() && count->is_number_integer()) {
    head.labels = count->get<std::int64_t>();
  } else if (names_of_labels != json.end() && names_of_labels->is_object()) {
    head.labels = static_cast<std::int64_t>(names_of_labels->size());
  }
  return head;
}

}  // namespace rpeg
