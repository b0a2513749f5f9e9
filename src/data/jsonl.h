#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/prompt_template.h"

namespace rpeg {

/// One line of a data set: an object with fields.
struct Row {
  nlohmann::json object;
  std::string where;  ///< file:line

  /// Throws kUsage at this line.
  [[noreturn]] void fail(const std::string& complaint) const;
};

/// Calls `each` for the lines of a JSONL file that are not blank. Throws kUsage with file:line for
/// one that is not a JSON object.
void for_each_row(const std::filesystem::path& path, const std::function<void(const Row&)>& each);

/// The text of a field: strings as they are, numbers and booleans as JSON writes them, of a list of
/// {role, content} messages the content of the last. Fails with the fields that are there when it
/// is missing.
std::string required_field(const Row& row, const std::string& name);

/// The text of the ground truth, "" when absent; an object as JSON writes it.
std::string answer_text(const Row& row, const std::string& answer_field);

/// The prompt: a filled-in template, or without one the prompt field.
std::string prompt_text(const Row& row,
                        const std::vector<TemplatePart>& parts,
                        const std::string& prompt_field);

}  // namespace rpeg
