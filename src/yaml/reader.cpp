#include "rpeg/yaml/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "rpeg/base/error.h"
#include "rpeg/base/text.h"
#include "rpeg/base/units.h"

namespace rpeg {
namespace {

const YamlValue& empty_map() {
  static const YamlValue value = [] {
    YamlValue map;
    map.kind = YamlValue::Kind::kMap;
    return map;
  }();
  return value;
}

bool is_number_text(const std::string& text) {
  double number = 0.0;
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return !text.empty() && result.ptr == end;
}

/// What a value is, for "expected …, found …".
std::string found(const YamlValue& value) {
  switch (value.kind) {
    case YamlValue::Kind::kNull:
      return "nothing";
    case YamlValue::Kind::kSequence:
      return "a sequence";
    case YamlValue::Kind::kMap:
      return "a map";
    case YamlValue::Kind::kScalar:
      if (!value.quoted && is_number_text(value.scalar)) {
        return value.scalar;
      }
      return fmt::format("\"{}\"", value.scalar);
  }
  return "";
}

std::string range_text(Bounds bounds) {
  constexpr double kHuge = 9e18;
  if (bounds.low <= -kHuge && bounds.high >= kHuge) {
    return "";
  }
  if (bounds.high >= kHuge) {
    return fmt::format(" of at least {}", bounds.low);
  }
  if (bounds.low <= -kHuge) {
    return fmt::format(" of at most {}", bounds.high);
  }
  return fmt::format(" from {} to {}", bounds.low, bounds.high);
}

bool is_inside(double value, Bounds bounds) { return value >= bounds.low && value <= bounds.high; }

void expect(const YamlValue& value,
            const std::string& path,
            Faults& faults,
            const std::string& expected) {
  faults.add(value, path, fmt::format("expected {}, found {}", expected, found(value)));
}

bool is_plain(const YamlValue& value) {
  return value.kind == YamlValue::Kind::kScalar && !value.quoted;
}

std::optional<std::int64_t> to_integer(const YamlValue& value) {
  const std::string& text = value.scalar;
  const std::size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  // YAML 1.1 reads 010 as eight: no leading zeros, so that nobody has to wonder.
  const bool leading_zero = text.size() > sign + 1 && text[sign] == '0';
  if (!is_plain(value) || leading_zero || text.size() == sign || text[sign] == '-') {
    return std::nullopt;
  }
  std::int64_t number = 0;
  const char* begin = text.data() + (text[0] == '+' ? 1 : 0);
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(begin, end, number);
  if (result.ec != std::errc{} || result.ptr != end) {
    return std::nullopt;
  }
  return number;
}

std::optional<double> to_number(const YamlValue& value) {
  const std::string& text = value.scalar;
  if (!is_plain(value) || text.empty()) {
    return std::nullopt;
  }
  const char* begin = text.data() + (text[0] == '+' && text.size() > 1 && text[1] != '-' ? 1 : 0);
  const char* end = text.data() + text.size();
  double number = 0.0;
  const auto result = std::from_chars(begin, end, number);
  if (result.ec != std::errc{} || result.ptr != end || !std::isfinite(number)) {
    return std::nullopt;
  }
  return number;
}

std::optional<std::int64_t> read_integer(const YamlValue& value,
                                         const std::string& path,
                                         Faults& faults,
                                         Bounds bounds) {
  const auto number = to_integer(value);
  if (number && is_inside(static_cast<double>(*number), bounds)) {
    return number;
  }
  expect(value, path, faults, "an integer" + range_text(bounds));
  return std::nullopt;
}

std::optional<double> read_number(const YamlValue& value,
                                  const std::string& path,
                                  Faults& faults,
                                  Bounds bounds) {
  const auto number = to_number(value);
  if (number && is_inside(*number, bounds)) {
    return number;
  }
  expect(value, path, faults, "a number" + range_text(bounds));
  return std::nullopt;
}

std::optional<std::string> read_string(const YamlValue& value,
                                       const std::string& path,
                                       Faults& faults) {
  const bool is_other_type = is_plain(value) && (is_number_text(value.scalar) ||
                                                 value.scalar == "true" || value.scalar == "false");
  if (value.kind == YamlValue::Kind::kScalar && !is_other_type) {
    return value.scalar;
  }
  expect(value, path, faults, is_other_type ? "a string (put it in quotes)" : "a string");
  return std::nullopt;
}

}  // namespace

void Faults::add(const YamlValue& at, const std::string& path, const std::string& message) {
  std::string text = file_;
  if (at.line > 0) {
    text += fmt::format(":{}:{}", at.line, at.column);
  }
  text += path.empty() ? ": " : fmt::format(": `{}`: ", path);
  messages_.push_back(text + message);
}

void Faults::throw_if_any() const {
  if (messages_.empty()) {
    return;
  }
  std::string all = messages_.size() == 1 ? "" : fmt::format("{} faults:", messages_.size());
  constexpr std::size_t kMostShown = 100;
  for (std::size_t i = 0; i < std::min(kMostShown, messages_.size()); ++i) {
    all += (all.empty() ? "" : "\n") + messages_[i];
  }
  if (messages_.size() > kMostShown) {
    all += fmt::format("\n... and {} more", messages_.size() - kMostShown);
  }
  throw Error(ErrorKind::kUsage, all);
}

MapReader::MapReader(const YamlValue& value, std::string path, Faults& faults)
    : value_(&value), path_(std::move(path)), faults_(&faults) {
  if (value.kind != YamlValue::Kind::kMap) {
    expect(value, path_, faults, "a map of keys and values");
    value_ = &empty_map();
    muted_ = true;
  }
}

MapReader::MapReader(Empty, std::string path, Faults& faults, bool muted)
    : value_(&empty_map()), path_(std::move(path)), faults_(&faults), muted_(muted) {}

std::string MapReader::path_of(const std::string& key) const {
  return path_.empty() ? key : path_ + "." + key;
}

bool MapReader::has(const std::string& key) const {
  const YamlValue* found_value = value_->find(key);
  return found_value != nullptr && found_value->kind != YamlValue::Kind::kNull;
}

const YamlValue* MapReader::optional_value(const std::string& key) { return value(key, false); }

const YamlValue* MapReader::value(const std::string& key, bool required) {
  ignore(key);
  if (has(key)) {
    return value_->find(key);
  }
  if (required && !muted_) {
    faults_->add(*value_, path_of(key), "required key is missing");
  }
  return nullptr;
}

std::int64_t MapReader::integer(const std::string& key, Bounds bounds) {
  const YamlValue* item = value(key, true);
  const auto number = item ? read_integer(*item, path_of(key), *faults_, bounds) : std::nullopt;
  return number.value_or(static_cast<std::int64_t>(std::max(bounds.low, 0.0)));
}

std::int64_t MapReader::integer(const std::string& key, Bounds bounds, std::int64_t fallback) {
  const YamlValue* item = optional_value(key);
  const auto number = item ? read_integer(*item, path_of(key), *faults_, bounds) : std::nullopt;
  return number.value_or(fallback);
}

double MapReader::number(const std::string& key, Bounds bounds) {
  const YamlValue* item = value(key, true);
  const auto number = item ? read_number(*item, path_of(key), *faults_, bounds) : std::nullopt;
  return number.value_or(std::max(bounds.low, 0.0));
}

double MapReader::number(const std::string& key, Bounds bounds, double fallback) {
  const YamlValue* item = optional_value(key);
  const auto number = item ? read_number(*item, path_of(key), *faults_, bounds) : std::nullopt;
  return number.value_or(fallback);
}

bool MapReader::boolean(const std::string& key, bool fallback) {
  const YamlValue* item = optional_value(key);
  if (item == nullptr) {
    return fallback;
  }
  const bool is_true = is_plain(*item) && item->scalar == "true";
  if (!is_true && !(is_plain(*item) && item->scalar == "false")) {
    expect(*item, path_of(key), *faults_, "true or false");
    return fallback;
  }
  return is_true;
}

std::string MapReader::string(const std::string& key) {
  const YamlValue* item = value(key, true);
  return item ? read_string(*item, path_of(key), *faults_).value_or("") : "";
}

std::string MapReader::string(const std::string& key, const std::string& fallback) {
  const YamlValue* item = optional_value(key);
  return item ? read_string(*item, path_of(key), *faults_).value_or(fallback) : fallback;
}

std::size_t MapReader::choice(const std::string& key, const std::vector<std::string>& choices) {
  return value(key, true) == nullptr ? 0 : choice(key, choices, 0);
}

std::size_t MapReader::choice(const std::string& key,
                              const std::vector<std::string>& choices,
                              std::size_t fallback) {
  const YamlValue* item = optional_value(key);
  if (item == nullptr) {
    return fallback;
  }
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (item->kind == YamlValue::Kind::kScalar && item->scalar == choices[i]) {
      return i;
    }
  }
  const std::string near = nearest(item->scalar, choices);
  const std::string hint = near.empty() ? "" : fmt::format("; did you mean `{}`?", near);
  faults_->add(
      *item,
      path_of(key),
      fmt::format("expected one of {}, found {}{}", fmt::join(choices, ", "), found(*item), hint));
  return fallback;
}

MapReader MapReader::map(const std::string& key, bool required) {
  const YamlValue* item = value(key, required);
  if (item == nullptr) {
    return MapReader(Empty{}, path_of(key), *faults_, muted_ || required);
  }
  return MapReader(*item, path_of(key), *faults_);
}

void MapReader::sequence(const std::string& key,
                         bool required,
                         const std::function<void(const YamlValue&, const std::string&)>& each) {
  const YamlValue* item = value(key, required);
  if (item == nullptr) {
    return;
  }
  if (item->kind != YamlValue::Kind::kSequence) {
    expect(*item, path_of(key), *faults_, "a sequence");
    return;
  }
  for (std::size_t i = 0; i < item->items.size(); ++i) {
    each(item->items[i], fmt::format("{}[{}]", path_of(key), i));
  }
}

void MapReader::fault(const std::string& key, const std::string& message) {
  const YamlValue* item = value_->find(key);
  faults_->add(item != nullptr ? *item : *value_, path_of(key), message);
}

void MapReader::ignore(const std::string& key) { known_.push_back(key); }

void MapReader::finish() {
  for (const auto& [key, item] : value_->fields) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) {
      continue;
    }
    const std::string near = nearest(key, known_);
    const std::string hint = near.empty() ? "" : fmt::format("; did you mean `{}`?", near);
    YamlValue at;
    at.line = item.key_line;
    at.column = item.key_column;
    faults_->add(at, "", fmt::format("unknown key `{}`{}", path_of(key), hint));
  }
}

std::int64_t yaml_integer(const YamlValue& value,
                          const std::string& path,
                          Faults& faults,
                          Bounds bounds) {
  return read_integer(value, path, faults, bounds)
      .value_or(static_cast<std::int64_t>(std::max(bounds.low, 0.0)));
}

double yaml_number(const YamlValue& value, const std::string& path, Faults& faults, Bounds bounds) {
  return read_number(value, path, faults, bounds).value_or(std::max(bounds.low, 0.0));
}

std::string yaml_string(const YamlValue& value, const std::string& path, Faults& faults) {
  return read_string(value, path, faults).value_or("");
}

}  // namespace rpeg
