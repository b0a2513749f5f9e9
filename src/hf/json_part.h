#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

/// Parses a JSON file. Throws kUsage with the file, the line and the column.
nlohmann::json parse_json_file(const std::filesystem::path& path);

/// A value inside a JSON document that knows where it stands, so that every complaint names the
/// file and the part. The document must outlive it. All readers throw kUsage.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  /// Throws kUsage: "<file>: <path>: <complaint>".
  [[noreturn]] void fail(std::string_view complaint) const;

  const nlohmann::json& json() const { return *value_; }
  /// Whether this is an object whose `key` is there and not null.
  bool has(std::string_view key) const;
  JsonPart at(std::string_view key) const;
  std::vector<JsonPart> elements() const;  ///< of an array

  std::string text() const;
  bool boolean() const;
  std::int64_t integer() const;
  std::int32_t token_id() const;  ///< an integer in [0, 2^31)

  std::string text_or(std::string_view key, std::string_view fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string path_;
};

/// The members of a (possibly nested) Sequence in order: `part` itself when it is none, nothing
/// when it is null. `members_key` is what this kind of Sequence calls its list.
std::vector<JsonPart> sequence_members(const JsonPart& part, std::string_view members_key);

}  // namespace rpeg
