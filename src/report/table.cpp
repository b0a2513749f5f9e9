#include "report/table.h"

#include <algorithm>

#include <utility>

#include "rpeg/base/error.h"

namespace rpeg::report {
namespace {

std::string pad(const std::string& text, std::size_t width, Align align) {
  const std::string space(width - std::min(width, display_width(text)), ' ');
  return align == Align::kLeft ? text + space : space + text;
}

std::string line(const std::vector<std::string>& cells,
                 const std::vector<std::size_t>& widths,
                 const std::vector<Align>& align,
                 const std::string& indent) {
  std::string result = indent;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    result += (i > 0 ? "  " : "") + pad(cells[i], widths[i], align[i]);
  }
  result.erase(result.find_last_not_of(' ') + 1);
  return result + "\n";
}

}  // namespace

Table names_and_numbers(std::vector<std::string> header) {
  std::vector<Align> align(header.size(), Align::kRight);
  align.front() = Align::kLeft;
  return {std::move(header), std::move(align), {}};
}

std::size_t display_width(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string rule(const char* character, std::size_t width) {
  std::string result;
  for (std::size_t i = 0; i < width; ++i) result += character;
  return result;
}

std::string format_table(const Table& table, const std::string& indent) {
  std::vector<std::size_t> widths;
  std::vector<std::string> rules;
  for (std::size_t i = 0; i < table.header.size(); ++i) {
    std::size_t width = display_width(table.header[i]);
    for (const auto& row : table.rows) {
      check(row.size() == table.header.size(), "a table row has a cell for every column");
      width = std::max(width, display_width(row[i]));
    }
    widths.push_back(width);
    rules.push_back(rule("─", width));
  }
  std::string result = line(table.header, widths, table.align, indent);
  result += line(rules, widths, table.align, indent);
  for (const auto& row : table.rows) result += line(row, widths, table.align, indent);
  return result;
}

}  // namespace rpeg::report
