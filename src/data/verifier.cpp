#include "rpeg/data/verifier.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "data/command_verifier.h"
#include "data/countdown.h"
#include "data/math_answer.h"
#include "data/numbers.h"
#include "rpeg/base/error.h"
#include "rpeg/base/text.h"
#include "rpeg/hf/regex.h"

namespace rpeg {
namespace {

constexpr std::array<std::pair<std::string_view, VerifierKind>, 6> kNames = {
    {{"gsm8k", VerifierKind::kGsm8k},
     {"regex", VerifierKind::kRegex},
     {"digit_completion", VerifierKind::kDigitCompletion},
     {"copy", VerifierKind::kCopy},
     {"math", VerifierKind::kMath},
     {"countdown", VerifierKind::kCountdown}}};

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
  if (spec.kind == VerifierKind::kCommand && (spec.command.empty() || spec.command[0].empty())) {
    throw Error(ErrorKind::kUsage, "the reward command needs a program");
  }
  if (spec.kind != VerifierKind::kRegex) {
    return;
  }
  if (spec.pattern.empty()) {
    throw Error(ErrorKind::kUsage, "verifier regex needs a pattern");
  }
  (void)Regex(spec.pattern);
}

void check_answer(const VerifierSpec& spec, std::string_view answer) {
  const auto refuse_unless = [](bool is_usable, const std::string& complaint) {
    if (!is_usable) {
      throw Error(ErrorKind::kUsage, complaint);
    }
  };
  switch (spec.kind) {
    case VerifierKind::kGsm8k:
      return refuse_unless(!final_number(answer).empty(),
                           fmt::format("verifier gsm8k: the answer '{}' holds no number", answer));
    case VerifierKind::kCopy:
      return refuse_unless(!answer.empty(), "verifier copy: the answer is empty");
    case VerifierKind::kMath:
      return refuse_unless(!normal_math(math_stated_answer(answer)).empty(),
                           "verifier math: the answer is empty");
    case VerifierKind::kCountdown:
      return refuse_unless(
          parse_countdown(answer).has_value(),
          fmt::format("verifier countdown: the answer '{}' is neither a solution such as "
                      "'(40 + 74) - 58' nor {{\"numbers\": [..], \"target\": n}}",
                      answer));
    case VerifierKind::kRegex:
    case VerifierKind::kDigitCompletion:
    case VerifierKind::kCommand:
    case VerifierKind::kNone:
      return;
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
    case VerifierKind::kMath:
      return math_equal(math_final_answer(input.response), math_stated_answer(input.answer)) ? 1.0
                                                                                             : 0.0;
    case VerifierKind::kCountdown: {
      const auto puzzle = parse_countdown(input.answer);
      return puzzle && solves_countdown(*puzzle, input.response) ? 1.0 : 0.0;
    }
    case VerifierKind::kCommand:
      return run_reward_command(spec, {&input, 1}).front();
    case VerifierKind::kNone:
      break;
  }
  throw Error(ErrorKind::kInternal, "verify: the job has no verifier");
}

std::vector<double> verify_batch(const VerifierSpec& spec, std::span<const VerifierInput> inputs) {
  if (spec.kind == VerifierKind::kCommand) {
    return run_reward_command(spec, inputs);
  }
  std::vector<double> rewards;
  rewards.reserve(inputs.size());
  for (const VerifierInput& input : inputs) {
    rewards.push_back(verify(spec, input));
  }
  return rewards;
}

}  // namespace rpeg
