#include "hf/json_part.h"

#include <fmt/format.h>

#include <limits>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {
namespace {

constexpr int kMaxDepth = 8;

void append_members(const JsonPart& part,
                    std::string_view members_key,
                    int depth,
                    std::vector<JsonPart>& out) {
  if (part.json().is_null()) {
    return;
  }
  if (part.at("type").text() != "Sequence") {
    out.push_back(part);
    return;
  }
  if (depth == kMaxDepth) {
    part.fail("Sequences are nested too deeply");
  }
  for (const JsonPart& member : part.at(members_key).elements()) {
    append_members(member, members_key, depth + 1, out);
  }
}

}  // namespace

nlohmann::json parse_json_file(const std::filesystem::path& path) {
  const std::string content = read_file(path);
  try {
    return nlohmann::json::parse(content);
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::kUsage, fmt::format("not valid JSON: {}", error.what()), path.string());
  }
}

void JsonPart::fail(std::string_view complaint) const {
  throw Error(ErrorKind::kUsage,
              path_.empty() ? std::string(complaint) : fmt::format("{}: {}", path_, complaint),
              file_);
}

bool JsonPart::has(std::string_view key) const {
  if (!value_->is_object()) {
    return false;
  }
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPart JsonPart::at(std::string_view key) const {
  if (!value_->is_object()) {
    fail(fmt::format("an object was expected, found {}", value_->type_name()));
  }
  const auto found = value_->find(key);
  if (found == value_->end()) {
    fail(fmt::format("key '{}' is missing", key));
  }
  return {*found, file_, path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key)};
}

std::vector<JsonPart> JsonPart::elements() const {
  if (!value_->is_array()) {
    fail(fmt::format("an array was expected, found {}", value_->type_name()));
  }
  std::vector<JsonPart> result;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    result.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", path_, i));
  }
  return result;
}

std::string JsonPart::text() const {
  if (!value_->is_string()) {
    fail(fmt::format("a string was expected, found {}", value_->type_name()));
  }
  return value_->get<std::string>();
}

bool JsonPart::boolean() const {
  if (!value_->is_boolean()) {
    fail(fmt::format("true or false was expected, found {}", value_->type_name()));
  }
  return value_->get<bool>();
}

std::int64_t JsonPart::integer() const {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (!value_->is_number_integer() ||
      (value_->is_number_unsigned() && value_->get<std::uint64_t>() > kMax)) {
    // dump() recurses: never on arrays and objects, which may be nested without end.
    fail(fmt::format("an integer was expected, found {}",
                     value_->is_number() ? value_->dump() : value_->type_name()));
  }
  return value_->get<std::int64_t>();
}

std::int32_t JsonPart::token_id() const {
  const std::int64_t id = integer();
  if (id < 0 || id > std::numeric_limits<std::int32_t>::max() - 1) {
    fail(fmt::format("{} is not a token id", id));
  }
  return static_cast<std::int32_t>(id);
}

std::string JsonPart::text_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? at(key).text() : std::string(fallback);
}

bool JsonPart::boolean_or(std::string_view key, bool fallback) const {
  return has(key) ? at(key).boolean() : fallback;
}

std::vector<JsonPart> sequence_members(const JsonPart& part, std::string_view members_key) {
  std::vector<JsonPart> result;
  append_members(part, members_key, 0, result);
  return result;
}

}  // namespace rpeg
