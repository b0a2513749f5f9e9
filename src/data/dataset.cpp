#include "rpeg/data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "data/prompt_template.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "rpeg/base/text.h"

namespace rpeg {
namespace {

/// Sets the order of prompts apart from other uses of the run's seed.
constexpr std::uint64_t kShuffleStream = 0x70726f6d70747321ULL;

/// One line of the file: an object with text fields.
struct Row {
  nlohmann::json object;
  std::string where;  ///< file:line

  [[noreturn]] void fail(const std::string& complaint) const {
    throw Error(ErrorKind::kUsage, complaint, where);
  }
};

Row parse_row(std::string_view line, std::string where) {
  Row row{nullptr, std::move(where)};
  try {
    row.object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    row.fail(fmt::format("not valid JSON: {}", error.what()));
  }
  if (!row.object.is_object()) {
    row.fail(fmt::format("a JSON object was expected, found {}", row.object.type_name()));
  }
  return row;
}

/// The text of a field: strings as they are, numbers and booleans as JSON writes them.
std::string field_text(const Row& row, const std::string& name, const nlohmann::json& value) {
  if (value.is_string()) {
    return value.get<std::string>();
  }
  if (value.is_number() || value.is_boolean()) {
    return value.dump();
  }
  row.fail(
      fmt::format("field '{}' is {}; a string or a number was expected", name, value.type_name()));
}

std::string required_field(const Row& row, const std::string& name) {
  const auto found = row.object.find(name);
  if (found != row.object.end()) {
    return field_text(row, name, *found);
  }
  std::vector<std::string> names;
  for (const auto& item : row.object.items()) {
    names.push_back(item.key());
  }
  const std::string likely = nearest(name, names);
  row.fail(fmt::format("there is no field '{}'{}; the fields are: {}",
                       name,
                       likely.empty() ? "" : fmt::format(" (did you mean '{}'?)", likely),
                       fmt::join(names, ", ")));
}

std::string prompt_text(const Row& row,
                        const std::vector<TemplatePart>& parts,
                        const std::string& prompt_field) {
  if (parts.empty()) {
    return required_field(row, prompt_field);
  }
  std::string result;
  for (const TemplatePart& part : parts) {
    result += part.is_field ? required_field(row, part.text) : part.text;
  }
  return result;
}

std::string answer_text(const Row& row, const std::string& answer_field) {
  const auto found = row.object.find(answer_field);
  if (found == row.object.end() || found->is_null()) {
    return "";
  }
  return field_text(row, answer_field, *found);
}

/// Applies the length limit; nullopt when the prompt is dropped.
std::optional<Prompt> limit_length(Prompt prompt, const DatasetOptions& options, const Row& row) {
  const auto length = static_cast<std::int64_t>(prompt.tokens.size());
  if (options.max_prompt_tokens == 0 || length <= options.max_prompt_tokens) {
    return prompt;
  }
  switch (options.over_long) {
    case OverLong::kDrop:
      return std::nullopt;
    case OverLong::kTruncate:
      prompt.tokens.erase(prompt.tokens.begin(), prompt.tokens.end() - options.max_prompt_tokens);
      return prompt;
    case OverLong::kError:
      break;
  }
  row.fail(
      fmt::format("the prompt has {} tokens, more than max_prompt_tokens {}; raise the limit "
                  "or set over_long to drop or truncate",
                  length,
                  options.max_prompt_tokens));
}

std::optional<Prompt> load_prompt(const Row& row,
                                  const std::vector<TemplatePart>& parts,
                                  const DatasetOptions& options,
                                  const Tokenizer& tokenizer) {
  Prompt prompt;
  prompt.text = prompt_text(row, parts, options.prompt_field);
  prompt.answer = answer_text(row, options.answer_field);
  prompt.tokens = tokenizer.encode(prompt.text);
  if (prompt.tokens.empty()) {
    row.fail("the prompt has no tokens, so there is nothing to continue");
  }
  return limit_length(std::move(prompt), options, row);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

}  // namespace

std::vector<Prompt> load_dataset(const DatasetOptions& options, const Tokenizer& tokenizer) {
  check(options.max_prompt_tokens >= 0, "load_dataset: max_prompt_tokens is not negative");
  const std::string content = read_file(options.path);
  const std::vector<TemplatePart> parts = parse_template(options.prompt_template);
  std::vector<Prompt> prompts;
  std::int64_t dropped = 0;
  std::int64_t line_number = 0;
  for (std::string_view rest = content; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++line_number;
    if (is_blank(line)) {
      continue;
    }
    const Row row = parse_row(line, fmt::format("{}:{}", options.path.string(), line_number));
    if (auto prompt = load_prompt(row, parts, options, tokenizer)) {
      prompts.push_back(std::move(*prompt));
    } else {
      ++dropped;
    }
  }
  if (prompts.empty()) {
    throw Error(ErrorKind::kUsage,
                dropped == 0 ? "the dataset has no prompts"
                             : fmt::format("no prompt is left: all {} are longer than "
                                           "max_prompt_tokens {}",
                                           dropped,
                                           options.max_prompt_tokens),
                options.path.string());
  }
  return prompts;
}

std::vector<std::int64_t> iteration_prompts(std::int64_t size,
                                            std::int64_t count,
                                            std::int64_t iteration,
                                            bool shuffle,
                                            std::uint64_t seed) {
  check(size >= 1 && count >= 0 && iteration >= 0,
        "iteration_prompts: size is at least 1, count and iteration are not negative");
  std::vector<std::int64_t> result;
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::int64_t ordered_epoch = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t position = iteration * count + i;
    const std::int64_t epoch = position / size;
    if (epoch != ordered_epoch) {
      std::iota(order.begin(), order.end(), std::int64_t{0});
      Rng rng(derive_seed(derive_seed(seed, kShuffleStream), static_cast<std::uint64_t>(epoch)));
      for (std::int64_t last = size - 1; shuffle && last > 0; --last) {
        std::swap(order[static_cast<std::size_t>(last)],
                  order[static_cast<std::size_t>(rng.below(last + 1))]);
      }
      ordered_epoch = epoch;
    }
    result.push_back(order[static_cast<std::size_t>(position % size)]);
  }
  return result;
}

}  // namespace rpeg
