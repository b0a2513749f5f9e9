#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace rpeg {

/// Bytes [begin, end) of a text.
struct TextSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

/// A compiled regular expression (PCRE2 syntax) over UTF-8 text, with Unicode character classes
/// (\w, \s, \d, \p{L}, …). Immutable, so that threads may share one.
class Regex {
 public:
  /// Throws kUsage with the pattern, the position and PCRE2's own words when it does not compile.
  explicit Regex(std::string_view pattern);
  ~Regex();
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;

  /// Whether the pattern matches somewhere in `text`. Throws kRuntime when `text` is not UTF-8 or
  /// when the search exceeds PCRE2's limits (catastrophic backtracking).
  bool matches(std::string_view text) const;
  /// All non-overlapping matches from left to right; an empty match moves on by one character.
  /// Throws as `matches` does.
  std::vector<TextSpan> find_all(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rpeg
