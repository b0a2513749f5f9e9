#include "data/length_limit.h"

#include <fmt/format.h>

namespace rpeg {

LengthLimit prompt_limit(const DatasetOptions& options) {
  return {"prompt", "max_prompt_tokens", options.max_prompt_tokens, options.over_long, Keep::kEnd};
}

bool limit_length(const Row& row, const LengthLimit& limit, std::vector<std::int32_t>& tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  if (limit.tokens == 0 || length <= limit.tokens) {
    return true;
  }
  switch (limit.over_long) {
    case OverLong::kDrop:
      return false;
    case OverLong::kTruncate:
      if (limit.keep == Keep::kEnd) {
        tokens.erase(tokens.begin(), tokens.end() - limit.tokens);
      } else {
        tokens.resize(static_cast<std::size_t>(limit.tokens));
      }
      return true;
    case OverLong::kError:
      break;
  }
  row.fail(
      fmt::format("the {} has {} tokens, more than {} {}; raise the limit or set over_long to drop "
                  "or truncate",
                  limit.what,
                  length,
                  limit.key,
                  limit.tokens));
}

}  // namespace rpeg
