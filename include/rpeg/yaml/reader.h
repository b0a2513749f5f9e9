#pragma once

/// Module `yaml`: strict YAML. `parse_yaml` turns text into plain data with positions; `MapReader`
/// reads a map key by key and collects every fault of the file, so that the user sees them all at
/// once; writer.h prints. The only module that knows yaml-cpp.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rpeg {

struct YamlField;

/// A YAML value with the place it was read from (1-based).
struct YamlValue {
  enum class Kind { kNull, kScalar, kSequence, kMap };
  Kind kind = Kind::kNull;
  std::string scalar;             ///< text of a scalar
  bool quoted = false;            ///< "5" is a string, 5 a number
  std::vector<YamlValue> items;   ///< of a sequence
  std::vector<YamlField> fields;  ///< of a map, in file order
  int line = 0;
  int column = 0;
  int key_line = 0;  ///< of a field of a map: where its key stands
  int key_column = 0;

  /// The value of a key, or nullptr.
  const YamlValue* find(std::string_view key) const;
};

/// A key of a map with its value.
struct YamlField {
  std::string key;
  YamlValue value;
};

/// Parses one document. Throws kUsage with file:line:column for a syntax error, a duplicate key, an
/// alias/anchor or a second document.
YamlValue parse_yaml(const std::string& text, const std::string& file);

/// Faults of one file, in the order found.
class Faults {
 public:
  explicit Faults(std::string file) : file_(std::move(file)) {}

  /// Records "file:line:column: `path`: message".
  void add(const YamlValue& at, const std::string& path, const std::string& message);
  bool empty() const { return messages_.empty(); }
  std::size_t count() const { return messages_.size(); }
  const std::string& file() const { return file_; }
  /// Throws one kUsage error that lists every fault, one a line; returns when there is none.
  void throw_if_any() const;

 private:
  std::string file_;
  std::vector<std::string> messages_;
};

/// An inclusive range that a number must lie in, printed in the message.
struct Bounds {
  double low;
  double high;
};

/// Reads the fields of one map. Every key asked for becomes known; `finish` reports the others as
/// unknown, with the nearest known key as a suggestion. A missing or wrong value records a fault
/// and returns the default, so that reading goes on.
class MapReader {
 public:
  /// `path` is the key path of the map ("optimizer"), "" at top level. A value that is not a map is
  /// a fault.
  MapReader(const YamlValue& value, std::string path, Faults& faults);

  bool has(const std::string& key) const;  ///< present and not null; does not make the key known

  std::int64_t integer(const std::string& key, Bounds bounds);                         // required
  std::int64_t integer(const std::string& key, Bounds bounds, std::int64_t fallback);  // optional
  double number(const std::string& key, Bounds bounds);
  double number(const std::string& key, Bounds bounds, double fallback);
  bool boolean(const std::string& key, bool fallback);
  std::string string(const std::string& key);
  std::string string(const std::string& key, const std::string& fallback);
  /// One of `choices`; the message lists them and suggests the nearest. Returns its index.
  std::size_t choice(const std::string& key, const std::vector<std::string>& choices);
  std::size_t choice(const std::string& key,
                     const std::vector<std::string>& choices,
                     std::size_t fallback);
  /// The raw value of a key (known from now on), or nullptr; a required one missing is a fault.
  const YamlValue* value(const std::string& key, bool required);
  /// Reader of a map below this one; absent and not required: a reader of an empty map.
  MapReader map(const std::string& key, bool required);
  /// Calls `each(item, path of the item)` for the items of a sequence; another kind is a fault.
  void sequence(const std::string& key,
                bool required,
                const std::function<void(const YamlValue&, const std::string&)>& each);

  /// Records a fault at a key (or at the map when absent): for checks across fields.
  void fault(const std::string& key, const std::string& message);
  /// Makes a key known without reading it.
  void ignore(const std::string& key);
  /// Reports unknown keys. Call once, last.
  void finish();

  /// Whether the map itself is missing or no map, which is the fault: what it lacks is none.
  bool is_muted() const { return muted_; }
  const std::string& path() const { return path_; }
  Faults& faults() { return *faults_; }

 private:
  struct Empty {};  // the reader of an absent map
  MapReader(Empty, std::string path, Faults& faults, bool muted);
  std::string path_of(const std::string& key) const;
  const YamlValue* optional_value(const std::string& key);

  const YamlValue* value_;
  std::string path_;
  Faults* faults_;
  bool muted_ = false;
  std::vector<std::string> known_;
};

/// Scalars outside a map (items of a sequence); a fault and the fallback when ill-typed.
std::int64_t yaml_integer(const YamlValue&, const std::string& path, Faults&, Bounds);
double yaml_number(const YamlValue&, const std::string& path, Faults&, Bounds);
std::string yaml_string(const YamlValue&, const std::string& path, Faults&);

}  // namespace rpeg
