#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rpeg {

/// A file of comma-separated values without quotes; its first line names the columns.
struct CsvTable {
  std::string file;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;  ///< as many fields as columns; row i is line i + 2
};

/// Throws kUsage when the file cannot be read, is empty or has a line of another length.
CsvTable load_csv(const std::filesystem::path& path);

/// The position of a column; kUsage, naming the file and its columns, when there is none.
std::size_t column_of(const CsvTable& table, const std::string& column);

/// A number above zero; kUsage with file, line and column otherwise.
double positive_number(const CsvTable& table, std::size_t row, std::size_t column);
/// "True" or "False"; kUsage otherwise.
bool truth(const CsvTable& table, std::size_t row, std::size_t column);

}  // namespace rpeg
