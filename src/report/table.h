#pragma once

#include <string>
#include <vector>

namespace rpeg::report {

enum class Align { kLeft, kRight };

/// A table of text with aligned columns.
struct Table {
  std::vector<std::string> header;
  std::vector<Align> align;
  std::vector<std::vector<std::string>> rows;  ///< as many cells as the header
};

/// An empty table whose first column is names and whose others are numbers.
Table names_and_numbers(std::vector<std::string> header);

/// Columns of UTF-8 text on a terminal: code points (no wide or combining characters are used).
std::size_t display_width(const std::string& text);

/// Lines of the table, each starting with `indent`: header, rule, rows.
std::string format_table(const Table& table, const std::string& indent);

/// `character` repeated.
std::string rule(const char* character, std::size_t width);

}  // namespace rpeg::report
