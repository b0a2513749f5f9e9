#include "rpeg/yaml/writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Words that some YAML reader takes for something else than a string.
bool is_reserved_word(std::string_view text) {
  static constexpr std::array<std::string_view, 12> kWords = {
      "true", "false", "yes", "no", "on", "off", "y", "n", "null", "inf", "nan", "infinity"};
  std::string lower(text);
  for (char& c : lower) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
}

/// Deliberately narrow: what is not surely a string in every YAML reader and context is quoted.
bool can_be_plain(std::string_view text) {
  const bool is_path = text.starts_with("./") || text.starts_with("../");
  if (text.empty() || !(is_letter(text[0]) || text[0] == '_' || text[0] == '/' || is_path) ||
      text.back() == ' ' || is_reserved_word(text)) {
    return false;
  }
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || std::string_view("_./+-> ()=@").find(c) < 11;
  });
}

std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (c == '\n') {
      result += "\\n";
    } else if (c == '\t') {
      result += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + '"';
}

}  // namespace

std::string yaml_scalar(double value) {
  check(std::isfinite(value), "a number written to YAML is finite");
  const double size = std::abs(value);
  const bool is_fixed = value == 0.0 || (size >= 1e-3 && size < 1e6);
  std::array<char, 40> buffer{};
  const auto result =
      std::to_chars(buffer.data(),
                    buffer.data() + buffer.size(),
                    value,
                    is_fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), result.ptr);
  // Some readers take "1e-08" for a string: YAML 1.1 numbers have a point.
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

std::string yaml_scalar(std::int64_t value) { return fmt::format("{}", value); }

std::string yaml_scalar(std::string_view value) {
  return can_be_plain(value) ? std::string(value) : quoted(value);
}

std::string yaml_flow(const std::vector<std::string>& parts) {
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

void YamlWriter::line(std::string_view content, std::string_view comment) {
  if (item_open_) {
    text_ += std::string(static_cast<std::size_t>(indent_ - 2), ' ') + "- ";
    item_open_ = false;
  } else {
    text_ += std::string(static_cast<std::size_t>(indent_), ' ');
  }
  text_ += content;
  if (!comment.empty()) {
    std::string one_line(comment);
    std::replace(one_line.begin(), one_line.end(), '\n', ' ');
    text_ += (content.empty() ? "# " : "  # ") + one_line;
  }
  text_ += '\n';
}

void YamlWriter::begin_map(std::string_view key) {
  line(yaml_scalar(key) + ":", "");
  indent_ += 2;
}
void YamlWriter::end_map() { indent_ -= 2; }
void YamlWriter::begin_sequence(std::string_view key) { begin_map(key); }
void YamlWriter::end_sequence() {
  // Items are indented further than the key: when the last line is not, there was none.
  const std::size_t line_start = text_.rfind('\n', text_.size() - 2) + 1;
  const std::size_t spaces = text_.find_first_not_of(' ', line_start) - line_start;
  if (spaces < static_cast<std::size_t>(indent_)) {
    text_.insert(text_.size() - 1, " []");
  }
  indent_ -= 2;
}

void YamlWriter::begin_item() {
  item_open_ = true;
  indent_ += 2;
}
void YamlWriter::end_item() {
  if (item_open_) {
    line("{}", "");
  }
  indent_ -= 2;
}

void YamlWriter::field(std::string_view key, double value, std::string_view comment) {
  raw(key, yaml_scalar(value), comment);
}
void YamlWriter::field(std::string_view key, std::int64_t value, std::string_view comment) {
  raw(key, yaml_scalar(value), comment);
}
void YamlWriter::field(std::string_view key, bool value, std::string_view comment) {
  raw(key, value ? "true" : "false", comment);
}
void YamlWriter::field(std::string_view key, std::string_view value, std::string_view comment) {
  raw(key, yaml_scalar(value), comment);
}
void YamlWriter::field(std::string_view key, const char* value, std::string_view comment) {
  field(key, std::string_view(value), comment);
}
void YamlWriter::raw(std::string_view key, std::string_view text, std::string_view comment) {
  line(fmt::format("{}: {}", yaml_scalar(key), text), comment);
}
void YamlWriter::raw_item(std::string_view text) { line(fmt::format("- {}", text), ""); }
void YamlWriter::comment(std::string_view text) { line("", text); }
void YamlWriter::blank() { text_ += '\n'; }

void write_provenance(YamlWriter& writer, const Provenance& provenance) {
  writer.begin_map("provenance");
  writer.field("tool", provenance.tool);
  writer.field("version", provenance.version);
  // A file that depends on its inputs alone has neither.
  if (!provenance.date.empty()) {
    writer.field("date", provenance.date);
  }
  if (!provenance.host.empty()) {
    writer.field("host", provenance.host);
  }
  writer.field("command", provenance.command);
  if (!provenance.inputs.empty()) {
    writer.begin_sequence("inputs");
    for (const auto& [path, digest] : provenance.inputs) {
      writer.raw_item(
          fmt::format("{{path: {}, sha256: {}}}", yaml_scalar(path), yaml_scalar(digest)));
    }
    writer.end_sequence();
  }
  writer.end_map();
}

}  // namespace rpeg
