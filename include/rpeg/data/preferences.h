#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "rpeg/data/dataset.h"

namespace rpeg {

/// A prompt with a better and a worse response, ready to use.
struct PreferencePair {
  std::string prompt;                       ///< text, after the template
  std::vector<std::int32_t> prompt_tokens;  ///< as those of a `Prompt`
  std::vector<std::int32_t> chosen;         ///< the better response, without special tokens but
  std::vector<std::int32_t> rejected;       ///< with the stop token at its end; the worse one
};

/// Reads and encodes preference pairs: one JSON object a line with the fields of `options`. Prompt
/// and responses are encoded each by itself; a response ends with the first of `stop_tokens` (of
/// `load_stop_tokens`; none when empty). A pair whose prompt exceeds `max_prompt_tokens` or one of
/// whose responses exceeds `max_response_tokens` is dropped, or cut (the prompt keeps its end, a
/// response its beginning, without a stop token), or an error, as `over_long` says. Throws kUsage
/// with file:line for a broken line, a missing field or an empty response, and when no pair is
/// left.
std::vector<PreferencePair> load_preferences(const DatasetOptions& options,
                                             const Tokenizer& tokenizer,
                                             std::span<const std::int32_t> stop_tokens);

}  // namespace rpeg
