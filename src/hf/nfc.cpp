#include "hf/nfc.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "hf/utf8.h"

namespace rpeg {
namespace {

/// A canonical decomposition into one (`second` = 0) or two code points.
struct Decomposition {
  char32_t composed;
  char32_t first;
  char32_t second;
};
/// Code points [first, last] of one non-zero canonical combining class.
struct CombiningRange {
  char32_t first;
  char32_t last;
  std::uint8_t combining_class;
};
/// The pair that composes to `composed`.
struct Composition {
  char32_t first;
  char32_t second;
  char32_t composed;
};

#include "hf/nfc_table.inc"

// Hangul syllables compose by arithmetic (Unicode standard, section 3.12).
constexpr char32_t kSyllableBase = 0xAC00;
constexpr char32_t kLeadBase = 0x1100;
constexpr char32_t kVowelBase = 0x1161;
constexpr char32_t kTrailBase = 0x11A7;
constexpr char32_t kLeadCount = 19;
constexpr char32_t kVowelCount = 21;
constexpr char32_t kTrailCount = 28;
constexpr char32_t kSyllableCount = kLeadCount * kVowelCount * kTrailCount;
/// Text below U+0300, the first combining mark, is in form C already; this is that mark's first
/// byte.
constexpr unsigned char kFirstMarkLead = 0xCC;

bool in_range(char32_t c, char32_t base, char32_t count) { return c >= base && c - base < count; }

int combining_class(char32_t c) {
  const auto* range =
      std::upper_bound(std::begin(kCombiningRanges),
                       std::end(kCombiningRanges),
                       c,
                       [](char32_t x, const CombiningRange& r) { return x < r.first; });
  if (range == std::begin(kCombiningRanges)) {
    return 0;
  }
  --range;
  return c <= range->last ? range->combining_class : 0;
}

void decompose(char32_t c, std::u32string& out) {
  if (in_range(c, kSyllableBase, kSyllableCount)) {
    const char32_t index = c - kSyllableBase;
    out.push_back(kLeadBase + index / (kVowelCount * kTrailCount));
    out.push_back(kVowelBase + index % (kVowelCount * kTrailCount) / kTrailCount);
    if (index % kTrailCount != 0) {
      out.push_back(kTrailBase + index % kTrailCount);
    }
    return;
  }
  const auto* found =
      std::lower_bound(std::begin(kDecompositions),
                       std::end(kDecompositions),
                       c,
                       [](const Decomposition& d, char32_t x) { return d.composed < x; });
  if (found == std::end(kDecompositions) || found->composed != c) {
    out.push_back(c);
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) {
    decompose(found->second, out);
  }
}

/// Sorts each run of combining marks by class, equal classes in place.
void order_marks(std::u32string& text) {
  auto run = text.begin();
  while (run != text.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end =
        std::find_if(run, text.end(), [](char32_t c) { return combining_class(c) == 0; });
    std::stable_sort(
        run, end, [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

/// The composition of two code points, or 0.
char32_t compose_pair(char32_t first, char32_t second) {
  if (in_range(first, kLeadBase, kLeadCount) && in_range(second, kVowelBase, kVowelCount)) {
    return kSyllableBase +
           ((first - kLeadBase) * kVowelCount + (second - kVowelBase)) * kTrailCount;
  }
  if (in_range(first, kSyllableBase, kSyllableCount) &&
      (first - kSyllableBase) % kTrailCount == 0 &&
      in_range(second, kTrailBase + 1, kTrailCount - 1)) {
    return first + (second - kTrailBase);
  }
  const auto* found =
      std::lower_bound(std::begin(kCompositions),
                       std::end(kCompositions),
                       std::pair(first, second),
                       [](const Composition& c, const std::pair<char32_t, char32_t>& pair) {
                         return std::pair(c.first, c.second) < pair;
                       });
  const bool is_there =
      found != std::end(kCompositions) && found->first == first && found->second == second;
  return is_there ? found->composed : 0;
}

/// Canonical composition: each mark joins the last starter unless another mark blocks it.
std::u32string compose(const std::u32string& text) {
  std::u32string out;
  std::size_t starter = std::u32string::npos;
  int previous_class = 0;
  for (const char32_t c : text) {
    const int current_class = combining_class(c);
    if (starter != std::u32string::npos) {
      const bool adjacent = starter + 1 == out.size();
      const bool blocked = !adjacent && (previous_class == 0 || previous_class >= current_class);
      const char32_t composed = blocked ? 0 : compose_pair(out[starter], c);
      if (composed != 0) {
        out[starter] = composed;
        continue;
      }
    }
    if (current_class == 0) {
      starter = out.size();
    }
    previous_class = current_class;
    out.push_back(c);
  }
  return out;
}

}  // namespace

std::string to_nfc(std::string_view text) {
  const bool is_nfc = std::all_of(text.begin(), text.end(), [](char byte) {
    return static_cast<unsigned char>(byte) < kFirstMarkLead;
  });
  if (is_nfc) {
    return std::string(text);
  }
  std::u32string decomposed;
  for (std::size_t at = 0; at < text.size(); at += character_length(text, at)) {
    decompose(code_point(text, at), decomposed);
  }
  order_marks(decomposed);
  std::string result;
  result.reserve(text.size());
  for (const char32_t c : compose(decomposed)) {
    append_utf8(c, result);
  }
  return result;
}

}  // namespace rpeg
