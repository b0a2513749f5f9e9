#pragma once

/// Module `data`: prompts (this header), preference pairs (preferences.h) and the rewards of
/// responses by rule or by an external program (verifier.h).

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/hf/tokenizer.h"

namespace rpeg {

enum class OverLong { kDrop, kTruncate, kError };

/// Where prompts come from and how a JSONL line becomes tokens.
struct DatasetOptions {
  std::filesystem::path path;  ///< JSONL, one object a line
  std::string prompt_field = "prompt";
  std::string answer_field = "answer";
  std::string chosen_field = "chosen";      ///< preference data: the better response
  std::string rejected_field = "rejected";  ///< preference data: the worse response
  std::string prompt_template;  ///< "{question}\n": fields in braces; empty: the prompt field
  std::int64_t max_prompt_tokens = 0;    ///< 0: no limit
  std::int64_t max_response_tokens = 0;  ///< preference data, stop token included; 0: no limit
  OverLong over_long = OverLong::kDrop;
};

/// One prompt, ready to use.
struct Prompt {
  std::string text;    ///< after the template
  std::string answer;  ///< ground truth for the verifier, "" when absent
  std::vector<std::int32_t>
      tokens;  ///< with the tokenizer's special tokens; kTruncate keeps the end
};

/// Reads and encodes a dataset. Throws kUsage with file:line for a broken line or a missing field
/// (with the fields that are there), and when no prompt is left. A field is a string, a number, or
/// a list of {role, content} messages, of which the last one's content counts.
std::vector<Prompt> load_dataset(const DatasetOptions& options, const Tokenizer& tokenizer);

/// Indices into a dataset of `size` prompts for one iteration: `count` consecutive entries of an
/// endless sequence that runs through the whole set once per epoch, each epoch in its own order
/// when `shuffle` (Fisher-Yates keyed by (seed, epoch)). A pure function: every rank computes the
/// same.
std::vector<std::int64_t> iteration_prompts(std::int64_t size,
                                            std::int64_t count,
                                            std::int64_t iteration,
                                            bool shuffle,
                                            std::uint64_t seed);

}  // namespace rpeg
