#include "data/jsonl.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <utility>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/text.h"

namespace rpeg {
namespace {

Row parse_row(std::string_view line, std::string where) {
  Row row{nullptr, std::move(where)};
  try {
    row.object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    row.fail(fmt::format("not valid JSON: {}", error.what()));
  }
  if (!row.object.is_object()) {
    row.fail(fmt::format("a JSON object was expected, found {}", row.object.type_name()));
  }
  return row;
}

/// The content of the last of a list of {role, content} messages, or null.
const nlohmann::json* last_message(const nlohmann::json& value) {
  if (!value.is_array() || value.empty() || !value.back().is_object()) {
    return nullptr;
  }
  const auto content = value.back().find("content");
  return content != value.back().end() && content->is_string() ? &*content : nullptr;
}

std::string field_text(const Row& row, const std::string& name, const nlohmann::json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number() || value.is_boolean()) {
    return value.dump();
  }
  if (const nlohmann::json* content = last_message(value)) {
    return content->get<std::string>();
  }
  row.fail(
      fmt::format("field '{}' is {}; a string, a number or a list of {{role, content}} "
                  "messages was expected",
                  name,
                  value.type_name()));
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

void Row::fail(const std::string& complaint) const {
  throw Error(ErrorKind::kUsage, complaint, where);
}

void for_each_row(const std::filesystem::path& path, const std::function<void(const Row&)>& each) {
  const std::string content = read_file(path);
  std::int64_t line_number = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++line_number;
    if (!is_blank(line)) {
      each(parse_row(line, fmt::format("{}:{}", path.string(), line_number)));
    }
  }
}

std::string required_field(const Row& row, const std::string& name) {
  const auto found = row.object.find(name);
  if (found != row.object.end()) {
    return field_text(row, name, *found);
  }
  std::vector<std::string> names;
  for (const auto& item : row.object.items()) {
    names.push_back(item.key());
  }
  const std::string likely = nearest(name, names);
  row.fail(fmt::format("there is no field '{}'{}; the fields are: {}",
                       name,
                       likely.empty() ? "" : fmt::format(" (did you mean '{}'?)", likely),
                       fmt::join(names, ", ")));
}

std::string prompt_text(const Row& row,
                        const std::vector<TemplatePart>& parts,
                        const std::string& prompt_field) {
  if (parts.empty()) {
    return required_field(row, prompt_field);
  }
  std::string result;
  for (const TemplatePart& part : parts) {
    result += part.is_field ? required_field(row, part.text) : part.text;
  }
  return result;
}

std::string answer_text(const Row& row, const std::string& answer_field) {
  const auto found = row.object.find(answer_field);
  if (found == row.object.end() || found->is_null()) {
    return "";
  }
  return found->is_object() ? found->dump() : field_text(row, answer_field, *found);
}

}  // namespace rpeg
