#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "hf/json_part.h"
#include "rpeg/hf/regex.h"

namespace rpeg {

/// What a Split or Replace step looks for: {"String": s} or {"Regex": r}.
using Pattern = std::variant<std::string, Regex>;

Pattern load_pattern(const JsonPart& part);

/// All non-overlapping matches from left to right; the empty string matches nowhere.
std::vector<TextSpan> find_all(const Pattern& pattern, std::string_view text);

/// Replaces every match by `content`, literally.
std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content);

/// How text is cut around matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

SplitBehavior load_split_behavior(const JsonPart& part);

/// The pieces of `text` in order, empty ones left out. With `invert` the pattern describes the
/// pieces and the matches are what lies between.
std::vector<std::string_view> split_text(const Pattern& pattern,
                                         SplitBehavior behavior,
                                         bool invert,
                                         std::string_view text);

}  // namespace rpeg
