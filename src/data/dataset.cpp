#include "rpeg/data/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "data/jsonl.h"
#include "data/length_limit.h"
#include "data/prompt_template.h"
#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

/// Sets the order of prompts apart from other uses of the run's seed.
constexpr std::uint64_t kShuffleStream = 0x70726f6d70747321ULL;

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
  return limit_length(row, prompt_limit(options), prompt.tokens) ? std::optional(std::move(prompt))
                                                                 : std::nullopt;
}

}  // namespace

std::vector<Prompt> load_dataset(const DatasetOptions& options, const Tokenizer& tokenizer) {
  check(options.max_prompt_tokens >= 0, "load_dataset: max_prompt_tokens is not negative");
  const std::vector<TemplatePart> parts = parse_template(options.prompt_template);
  std::vector<Prompt> prompts;
  std::int64_t dropped = 0;
  for_each_row(options.path, [&](const Row& row) {
    if (auto prompt = load_prompt(row, parts, options, tokenizer)) {
      prompts.push_back(std::move(*prompt));
    } else {
      ++dropped;
    }
  });
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
