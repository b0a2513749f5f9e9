#include "calibrate/csv_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/text.h"

namespace rpeg {
namespace {

std::vector<std::string> fields_of(std::string_view line) {
  std::vector<std::string> fields;
  while (true) {
    const std::size_t comma = line.find(',');
    fields.emplace_back(line.substr(0, comma));
    if (comma == std::string_view::npos) {
      return fields;
    }
    line.remove_prefix(comma + 1);
  }
}

[[noreturn]] void fail(const CsvTable& table, std::size_t row, const std::string& message) {
  throw Error(ErrorKind::kUsage, fmt::format("{}:{}: {}", table.file, row + 2, message));
}

}  // namespace

CsvTable load_csv(const std::filesystem::path& path) {
  const std::string text = read_file(path);
  CsvTable table;
  table.file = path.string();
  std::string_view rest = text;
  std::size_t line_number = 0;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    ++line_number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line_number == 1) {
      table.columns = fields_of(line);
      continue;
    }
    if (line.empty() && rest.empty()) {
      break;
    }
    table.rows.push_back(fields_of(line));
    if (table.rows.back().size() != table.columns.size()) {
      fail(table,
           line_number - 2,
           fmt::format("expected {} fields as in the first line, found {}",
                       table.columns.size(),
                       table.rows.back().size()));
    }
  }
  if (table.rows.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}: expected a line of column names and measurements, found none",
                            table.file));
  }
  return table;
}

std::size_t column_of(const CsvTable& table, const std::string& column) {
  const auto at = std::find(table.columns.begin(), table.columns.end(), column);
  if (at == table.columns.end()) {
    const std::string near = nearest(column, table.columns);
    throw Error(ErrorKind::kUsage,
                fmt::format("{}:1: no column `{}`{}",
                            table.file,
                            column,
                            near.empty() ? "" : fmt::format("; there is `{}`", near)));
  }
  return static_cast<std::size_t>(at - table.columns.begin());
}

double positive_number(const CsvTable& table, std::size_t row, std::size_t column) {
  const std::string& text = table.rows[row][column];
  double value = 0.0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = result.ec == std::errc() && result.ptr == text.data() + text.size();
  if (!is_number || !std::isfinite(value) || value <= 0.0) {
    fail(table,
         row,
         fmt::format(
             "column `{}`: expected a number above 0, found `{}`", table.columns[column], text));
  }
  return value;
}

bool truth(const CsvTable& table, std::size_t row, std::size_t column) {
  const std::string& text = table.rows[row][column];
  if (text != "True" && text != "False") {
    fail(table,
         row,
         fmt::format(
             "column `{}`: expected True or False, found `{}`", table.columns[column], text));
  }
  return text == "True";
}

}  // namespace rpeg
