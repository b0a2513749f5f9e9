#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rpeg {

enum class VerifierKind {
  kGsm8k,            ///< number after "####" (else the last number) equals the answer: 1 or 0
  kRegex,            ///< the pattern (PCRE2) matches the response: 1 or 0
  kDigitCompletion,  ///< dense: 1/(len+1) per correct character up to the first mismatch
  kCopy,             ///< dense: share of the answer's leading characters reproduced
  kMath,             ///< the last \boxed{…} (else the last number) equals the answer: 1 or 0
  kCountdown,        ///< an expression of the given numbers that reaches the target: 1 or 0
  kCommand,          ///< an external program, which the user must allow
  kNone,             ///< no verifier: rewards come from a model, or there are none (offline DPO)
};

struct VerifierSpec {
  VerifierKind kind = VerifierKind::kGsm8k;
  std::string pattern = {};               ///< kRegex
  std::vector<std::string> command = {};  ///< kCommand: program and arguments
  double timeout_s = 300.0;               ///< kCommand: longest run for one batch
  bool operator==(const VerifierSpec&) const = default;
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

/// Throws kUsage when the verifier cannot work: a pattern that is missing or does not compile, a
/// command that is missing.
void check_verifier(const VerifierSpec& spec);

/// Throws kUsage when no response could earn a reward because of this ground truth: no number for
/// gsm8k, nothing to copy, no countdown puzzle.
void check_answer(const VerifierSpec& spec, std::string_view answer);

/// Reward of one response, in [0, 1] for built-in verifiers, which never throw for any response
/// text, given a spec that `check_verifier` accepts. What cannot be read earns 0; a regex search
/// beyond PCRE2's limits counts as no match.
///
/// math: both answers are brought to a normal form (spaces, $, \left, units of text, fractions,
/// thousands separators) and compared as text, then as exact numbers, then element by element when
/// they are tuples. The answer of the data set may be a whole solution.
///
/// countdown: + − * /, signs and parentheses over the given numbers, each used at most once,
/// evaluated exactly. The answer of the data set is a solution ("74 - ((96 + 37) / 7)"), which
/// gives the numbers and the target, or {"numbers": [..], "target": n}. The response's expression
/// stands between <answer> and </answer>, else in its last line.
double verify(const VerifierSpec& spec, const VerifierInput& input);

/// Rewards of a batch, in order. A command is run once for the whole batch, without a shell: it
/// reads one JSON object a line, {"prompt", "response", "answer"}, and writes one number a line.
/// Throws kRuntime naming the command when it cannot be started, ends with another code than 0,
/// takes longer than `timeout_s`, or writes anything but one finite number for each response.
std::vector<double> verify_batch(const VerifierSpec& spec, std::span<const VerifierInput> inputs);

}  // namespace rpeg
