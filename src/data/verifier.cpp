#include "rpeg/data/verifier.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

#include "rpeg/base/error.h"
#include "rpeg/base/text.h"
#include "rpeg/hf/regex.h"

namespace rpeg {
namespace {

constexpr std::array<std::pair<std::string_view, VerifierKind>, 4> kNames = {
    {{"gsm8k", VerifierKind::kGsm8k},
     {"regex", VerifierKind::kRegex},
     {"digit_completion", VerifierKind::kDigitCompletion},
     {"copy", VerifierKind::kCopy}}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// A number found in a text.
struct FoundNumber {
  std::string digits;   ///< canonical: no sign of 0, no leading or trailing zeros; "" when none
  std::size_t end = 0;  ///< where it ends in the text
};

bool digits_at(std::string_view text, std::size_t at, std::size_t count) {
  return at + count <= text.size() &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(at),
                     text.begin() + static_cast<std::ptrdiff_t>(at + count),
                     is_digit);
}

/// Whether a thousands separator and its three digits stand at `at`.
bool thousands_at(std::string_view text, std::size_t at) {
  return at < text.size() && text[at] == ',' && digits_at(text, at + 1, 3) &&
         !digits_at(text, at + 4, 1);
}

/// Whether the digits at `at` are negative: a minus before them, perhaps with a dollar sign
/// between, that does not itself follow an operand ("5-3", "x-3").
bool is_negative(std::string_view text, std::size_t at) {
  at -= at > 0 && text[at - 1] == '$' ? 1 : 0;
  if (at == 0 || text[at - 1] != '-') {
    return false;
  }
  const char before = at > 1 ? text[at - 2] : ' ';
  return std::isalnum(static_cast<unsigned char>(before)) == 0 && before != ')';
}

std::string canonical(bool negative, std::string whole, std::string fraction) {
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);
  std::string result = whole.empty() ? "0" : whole;
  if (!fraction.empty()) {
    result += "." + fraction;
  }
  return negative && result != "0" ? "-" + result : result;
}

/// The first number at or after `at`.
FoundNumber next_number(std::string_view text, std::size_t at) {
  const auto begins_here = [text](std::size_t i) {
    return digits_at(text, i, 1) || (text[i] == '.' && digits_at(text, i + 1, 1));
  };
  while (at < text.size() && !begins_here(at)) {
    ++at;
  }
  if (at == text.size()) {
    return {"", at};
  }
  const bool negative = is_negative(text, at);
  std::string whole;
  while (digits_at(text, at, 1) || (!whole.empty() && thousands_at(text, at))) {
    whole += is_digit(text[at]) ? std::string(1, text[at]) : std::string();
    ++at;
  }
  std::string fraction;
  if (at < text.size() && text[at] == '.') {
    std::size_t digit = at + 1;
    while (digits_at(text, digit, 1)) {
      fraction.push_back(text[digit++]);
    }
    at = fraction.empty() ? at : digit;
  }
  return {canonical(negative, std::move(whole), std::move(fraction)), at};
}

/// The number that a solution ends with: the first after the last "####" that one follows, else the
/// last of all; "" when there is none.
std::string final_number(std::string_view text) {
  const std::size_t mark = text.rfind("####");
  if (mark != std::string_view::npos) {
    const FoundNumber marked = next_number(text.substr(mark + 4), 0);
    if (!marked.digits.empty()) {
      return marked.digits;
    }
  }
  std::string last;
  for (FoundNumber found = next_number(text, 0); !found.digits.empty();
       found = next_number(text, found.end)) {
    last = found.digits;
  }
  return last;
}

bool is_continuation_byte(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

double character_count(std::string_view text) {
  return static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation_byte(c); }));
}

/// Characters of `answer` that `response` begins with.
double leading_correct(std::string_view response, std::string_view answer) {
  const auto differ = std::mismatch(answer.begin(), answer.end(), response.begin(), response.end());
  auto equal_bytes = static_cast<std::size_t>(differ.first - answer.begin());
  while (equal_bytes > 0 && equal_bytes < answer.size() &&
         is_continuation_byte(answer[equal_bytes])) {
    --equal_bytes;  // part of a character is not a character
  }
  return character_count(answer.substr(0, equal_bytes));
}

double verify_digit_completion(const VerifierInput& input) {
  const double shares = character_count(input.answer) + 1.0;
  const bool complete = input.stopped && input.response == input.answer;
  return (leading_correct(input.response, input.answer) + (complete ? 1.0 : 0.0)) / shares;
}

double verify_regex(const std::string& pattern, std::string_view response) {
  const Regex regex(pattern);
  try {
    return regex.matches(response) ? 1.0 : 0.0;
  } catch (const Error&) {  // not UTF-8, or beyond PCRE2's limits: it does not match
    return 0.0;
  }
}

}  // namespace

VerifierKind verifier_kind(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& [known, kind] : kNames) {
    if (known == name) {
      return kind;
    }
    names.emplace_back(known);
  }
  const std::string likely = nearest(name, names);
  throw Error(ErrorKind::kUsage,
              fmt::format("verifier '{}' is not known{}; the verifiers are: {}",
                          name,
                          likely.empty() ? "" : fmt::format(" (did you mean '{}'?)", likely),
                          fmt::join(names, ", ")));
}

void check_verifier(const VerifierSpec& spec) {
  if (spec.kind != VerifierKind::kRegex) {
    return;
  }
  if (spec.pattern.empty()) {
    throw Error(ErrorKind::kUsage, "verifier regex needs a pattern");
  }
  (void)Regex(spec.pattern);
}

void check_answer(const VerifierSpec& spec, std::string_view answer) {
  if (spec.kind == VerifierKind::kGsm8k && final_number(answer).empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("verifier gsm8k: the answer '{}' holds no number", answer));
  }
  if (spec.kind == VerifierKind::kCopy && answer.empty()) {
    throw Error(ErrorKind::kUsage, "verifier copy: the answer is empty");
  }
}

double verify(const VerifierSpec& spec, const VerifierInput& input) {
  switch (spec.kind) {
    case VerifierKind::kGsm8k: {
      const std::string expected = final_number(input.answer);
      return !expected.empty() && final_number(input.response) == expected ? 1.0 : 0.0;
    }
    case VerifierKind::kRegex:
      return verify_regex(spec.pattern, input.response);
    case VerifierKind::kDigitCompletion:
      return verify_digit_completion(input);
    case VerifierKind::kCopy:
      return input.answer.empty()
                 ? 0.0
                 : leading_correct(input.response, input.answer) / character_count(input.answer);
  }
  return 0.0;
}

}  // namespace rpeg
