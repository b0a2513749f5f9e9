#include "hf/pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// A stretch of text that is a match, or lies between two.
struct Segment {
  TextSpan span;
  bool is_match = false;
};

std::vector<Segment> segments(const Pattern& pattern, bool invert, std::string_view text) {
  std::vector<Segment> result;
  std::size_t at = 0;
  for (const TextSpan& match : find_all(pattern, text)) {
    if (at < match.begin) {
      result.push_back({{at, match.begin}, invert});
    }
    result.push_back({match, !invert});
    at = match.end;
  }
  if (at < text.size()) {
    result.push_back({{at, text.size()}, invert});
  }
  return result;
}

/// PCRE2 takes U+180E for white space, as Unicode did before version 6.3; the reference regular
/// expressions do not. Another invisible format character of as many bytes stands in for it.
std::vector<TextSpan> find_all(const Regex& regex, std::string_view text) {
  constexpr std::string_view kVowelSeparator = "\u180E";
  constexpr std::string_view kStandIn = "\u200B";
  std::size_t at = text.find(kVowelSeparator);
  if (at == std::string_view::npos) {
    return regex.find_all(text);
  }
  std::string changed(text);
  for (; at != std::string::npos; at = changed.find(kVowelSeparator, at)) {
    changed.replace(at, kVowelSeparator.size(), kStandIn);
  }
  return regex.find_all(changed);
}

/// Whether `segment` belongs to the same piece as the one before it.
bool joins_previous(SplitBehavior behavior, const Segment& previous, const Segment& segment) {
  switch (behavior) {
    case SplitBehavior::kRemoved:
    case SplitBehavior::kIsolated:
      return false;
    case SplitBehavior::kMergedWithPrevious:
      return segment.is_match && !previous.is_match;
    case SplitBehavior::kMergedWithNext:
      return previous.is_match && !segment.is_match;
    case SplitBehavior::kContiguous:
      return previous.is_match == segment.is_match;
  }
  return false;
}

}  // namespace

Pattern load_pattern(const JsonPart& part) {
  if (part.has("String")) {
    return part.at("String").text();
  }
  if (!part.has("Regex")) {
    part.fail("{\"String\": …} or {\"Regex\": …} was expected");
  }
  const JsonPart regex = part.at("Regex");
  try {
    return Regex(regex.text());
  } catch (const Error& error) {
    regex.fail(error.message());
  }
}

std::vector<TextSpan> find_all(const Pattern& pattern, std::string_view text) {
  if (const auto* regex = std::get_if<Regex>(&pattern)) {
    return find_all(*regex, text);
  }
  const auto& needle = std::get<std::string>(pattern);
  std::vector<TextSpan> result;
  if (needle.empty()) {
    return result;
  }
  for (std::size_t at = text.find(needle); at != std::string_view::npos;
       at = text.find(needle, at + needle.size())) {
    result.push_back({at, at + needle.size()});
  }
  return result;
}

std::string replace_all(const Pattern& pattern, std::string_view text, std::string_view content) {
  std::string result;
  std::size_t at = 0;
  for (const TextSpan& match : find_all(pattern, text)) {
    result.append(text.substr(at, match.begin - at)).append(content);
    at = match.end;
  }
  return result.append(text.substr(at));
}

SplitBehavior load_split_behavior(const JsonPart& part) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {
      {{"Removed", SplitBehavior::kRemoved},
       {"Isolated", SplitBehavior::kIsolated},
       {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
       {"MergedWithNext", SplitBehavior::kMergedWithNext},
       {"Contiguous", SplitBehavior::kContiguous}}};
  const std::string name = part.text();
  const auto* found = std::find_if(
      kNames.begin(), kNames.end(), [&name](const auto& entry) { return entry.first == name; });
  if (found == kNames.end()) {
    part.fail(fmt::format("split behavior '{}' is not known", name));
  }
  return found->second;
}

std::vector<std::string_view> split_text(const Pattern& pattern,
                                         SplitBehavior behavior,
                                         bool invert,
                                         std::string_view text) {
  std::vector<TextSpan> pieces;
  const std::vector<Segment> parts = segments(pattern, invert, text);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (behavior == SplitBehavior::kRemoved && parts[i].is_match) {
      continue;
    }
    if (i > 0 && joins_previous(behavior, parts[i - 1], parts[i])) {
      pieces.back().end = parts[i].span.end;
    } else {
      pieces.push_back(parts[i].span);
    }
  }
  std::vector<std::string_view> result;
  for (const TextSpan& piece : pieces) {
    if (piece.begin < piece.end) {
      result.push_back(text.substr(piece.begin, piece.end - piece.begin));
    }
  }
  return result;
}

}  // namespace rpeg
