#pragma once

#include <cstdint>
#include <vector>

#include "data/jsonl.h"
#include "rpeg/data/dataset.h"

namespace rpeg {

/// Which part of a text that is cut survives.
enum class Keep { kBeginning, kEnd };

/// A limit on the tokens of one part of a row.
struct LengthLimit {
  const char* what;     ///< "prompt"
  const char* key;      ///< the option that sets it, for messages
  std::int64_t tokens;  ///< 0: none
  OverLong over_long;
  Keep keep;
};

/// The limit on prompts, which keep their end.
LengthLimit prompt_limit(const DatasetOptions& options);

/// Applies a limit: cuts `tokens`, or fails at the row; false when the row is to be dropped.
bool limit_length(const Row& row, const LengthLimit& limit, std::vector<std::int32_t>& tokens);

}  // namespace rpeg
