#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rpeg {

/// Builds a YAML document line by line, with control over flow style and comments. Doubles are
/// written with the fewest digits that read back equal; strings are quoted when they need to be.
class YamlWriter {
 public:
  /// `key:` and everything until `end_map` below it, indented by two spaces.
  void begin_map(std::string_view key);
  void end_map();
  /// `key:` and a block sequence; each `item` opens `- `, its fields follow, `end_item` closes.
  void begin_sequence(std::string_view key);
  void begin_item();
  void end_item();
  void end_sequence();

  void field(std::string_view key, double value, std::string_view comment = "");
  void field(std::string_view key, std::int64_t value, std::string_view comment = "");
  void field(std::string_view key, bool value, std::string_view comment = "");
  void field(std::string_view key, std::string_view value, std::string_view comment = "");
  void field(std::string_view key, const char* value, std::string_view comment = "");
  /// `key: <text>` as given: flow sequences and maps made with the yaml_* helpers below.
  void raw(std::string_view key, std::string_view text, std::string_view comment = "");
  /// `- <text>` as given, inside a block sequence.
  void raw_item(std::string_view text);
  void comment(std::string_view text);
  void blank();

  const std::string& text() const { return text_; }

 private:
  void line(std::string_view content, std::string_view comment);

  std::string text_;
  int indent_ = 0;
  bool item_open_ = false;
};

/// A scalar as the writer prints it.
std::string yaml_scalar(double value);
std::string yaml_scalar(std::int64_t value);
std::string yaml_scalar(std::string_view value);
/// "[a, b, c]" of already printed parts.
std::string yaml_flow(const std::vector<std::string>& parts);

/// The `provenance:` block that ends every file a tool writes: tool, version, date
/// (SOURCE_DATE_EPOCH when set by the caller), host, command line, and the SHA-256 of each input
/// file.
struct Provenance {
  std::string tool;
  std::string version;
  std::string date;  ///< ISO 8601, UTC
  std::string host;
  std::string command;
  std::vector<std::pair<std::string, std::string>> inputs;  ///< path, SHA-256
};
void write_provenance(YamlWriter& writer, const Provenance& provenance);

}  // namespace rpeg
