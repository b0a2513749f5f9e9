#include "data/prompt_template.h"

#include <fmt/format.h>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

[[noreturn]] void fail(std::string_view text, std::size_t at, std::string_view complaint) {
  throw Error(ErrorKind::kUsage,
              fmt::format("prompt template '{}', offset {}: {}; write {{field}} for a field and "
                          "{{{{ or }}}} for a brace",
                          text,
                          at,
                          complaint));
}

/// Reads the "{field}" that begins at `at`; returns where it ends.
std::size_t read_field(std::string_view text, std::size_t at, std::vector<TemplatePart>& parts) {
  const std::size_t close = text.find_first_of("{}", at + 1);
  if (close == std::string_view::npos || text[close] != '}') {
    fail(text, at, "'{' is not closed");
  }
  if (close == at + 1) {
    fail(text, at, "the name of the field is missing");
  }
  parts.push_back({std::string(text.substr(at + 1, close - at - 1)), true});
  return close + 1;
}

}  // namespace

std::vector<TemplatePart> parse_template(std::string_view text) {
  std::vector<TemplatePart> parts;
  const auto add_literal = [&parts](char c) {
    if (parts.empty() || parts.back().is_field) {
      parts.emplace_back();
    }
    parts.back().text.push_back(c);
  };
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    const bool is_brace = c == '{' || c == '}';
    if (is_brace && at + 1 < text.size() && text[at + 1] == c) {
      add_literal(c);
      at += 2;
    } else if (c == '{') {
      at = read_field(text, at, parts);
    } else if (c == '}') {
      fail(text, at, "'}' was not opened");
    } else {
      add_literal(c);
      ++at;
    }
  }
  return parts;
}

}  // namespace rpeg
