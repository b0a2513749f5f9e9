#include "rpeg/data/preferences.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "data/jsonl.h"
#include "data/length_limit.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Everything that turns rows into pairs.
struct PairReader {
  const DatasetOptions& options;
  const Tokenizer& tokenizer;
  std::span<const std::int32_t> stop_tokens;
  std::vector<TemplatePart> parts;

  std::vector<std::int32_t> response(const Row& row, const std::string& field) const {
    auto tokens = tokenizer.encode(required_field(row, field), /*add_special_tokens=*/false);
    if (!stop_tokens.empty()) {
      tokens.push_back(stop_tokens.front());
    }
    if (tokens.empty()) {
      row.fail(fmt::format("the response in field '{}' has no tokens", field));
    }
    return tokens;
  }

  LengthLimit response_limit(const char* what) const {
    return {what,
            "max_response_tokens",
            options.max_response_tokens,
            options.over_long,
            Keep::kBeginning};
  }

  /// Nothing when the pair is dropped.
  std::optional<PreferencePair> read(const Row& row) const {
    PreferencePair pair;
    pair.prompt = prompt_text(row, parts, options.prompt_field);
    pair.prompt_tokens = tokenizer.encode(pair.prompt);
    if (pair.prompt_tokens.empty()) {
      row.fail("the prompt has no tokens, so there is nothing to continue");
    }
    pair.chosen = response(row, options.chosen_field);
    pair.rejected = response(row, options.rejected_field);
    const bool fits = limit_length(row, prompt_limit(options), pair.prompt_tokens) &&
                      limit_length(row, response_limit("chosen response"), pair.chosen) &&
                      limit_length(row, response_limit("rejected response"), pair.rejected);
    return fits ? std::optional(std::move(pair)) : std::nullopt;
  }
};

}  // namespace

std::vector<PreferencePair> load_preferences(const DatasetOptions& options,
                                             const Tokenizer& tokenizer,
                                             std::span<const std::int32_t> stop_tokens) {
  check(options.max_prompt_tokens >= 0 && options.max_response_tokens >= 0,
        "load_preferences: limits are not negative");
  const PairReader reader{options, tokenizer, stop_tokens, parse_template(options.prompt_template)};
  std::vector<PreferencePair> pairs;
  std::int64_t dropped = 0;
  for_each_row(options.path, [&](const Row& row) {
    if (auto pair = reader.read(row)) {
      pairs.push_back(std::move(*pair));
    } else {
      ++dropped;
    }
  });
  if (pairs.empty()) {
    throw Error(ErrorKind::kUsage,
                dropped == 0 ? "the dataset has no preference pairs"
                             : fmt::format("no preference pair is left: all {} have a prompt "
                                           "longer than max_prompt_tokens {} or a response longer "
                                           "than max_response_tokens {}",
                                           dropped,
                                           options.max_prompt_tokens,
                                           options.max_response_tokens),
                options.path.string());
  }
  return pairs;
}

}  // namespace rpeg
