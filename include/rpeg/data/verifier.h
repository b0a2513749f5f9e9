#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

enum class VerifierKind {
  kGsm8k,            ///< number after "####" (else the last number) equals the answer: 1 or 0
  kRegex,            ///< the pattern (PCRE2) matches the response: 1 or 0
  kDigitCompletion,  ///< dense: 1/(len+1) per correct character up to the first mismatch
  kCopy,             ///< dense: share of the answer's leading characters reproduced
};

struct VerifierSpec {
  VerifierKind kind = VerifierKind::kGsm8k;
  std::string pattern;  ///< kRegex
};

/// Returns the verifier of a name ("gsm8k", "copy", …); throws kUsage with a suggestion.
VerifierKind verifier_kind(std::string_view name);

/// What a verifier may look at.
struct VerifierInput {
  std::string_view prompt;    ///< prompt text after the template
  std::string_view response;  ///< decoded response, special tokens removed
  std::string_view answer;    ///< ground truth of the dataset
  bool stopped = false;       ///< the response ended with a stop token
};

/// Throws kUsage when the verifier cannot work: a pattern that is missing or does not compile.
void check_verifier(const VerifierSpec& spec);

/// Throws kUsage when no response could earn a reward because of this ground truth: no number for
/// gsm8k, nothing to copy.
void check_answer(const VerifierSpec& spec, std::string_view answer);

/// Reward of one response in [0, 1]. Never throws for any response text, given a spec that
/// `check_verifier` accepts; a regex search beyond PCRE2's limits counts as no match.
double verify(const VerifierSpec& spec, const VerifierInput& input);

}  // namespace rpeg
