#include "data/command_verifier.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "data/child_process.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Longest line that can be a number, with room to spare.
constexpr std::size_t kLongestLine = 4096;

[[noreturn]] void fail(const VerifierSpec& spec, const std::string& complaint) {
  throw Error(ErrorKind::kRuntime,
              fmt::format("reward command `{}` {}", fmt::join(spec.command, " "), complaint));
}

std::string input_lines(std::span<const VerifierInput> inputs) {
  std::string text;
  for (const VerifierInput& input : inputs) {
    const nlohmann::ordered_json object = {
        {"prompt", input.prompt}, {"response", input.response}, {"answer", input.answer}};
    // Bytes that are not UTF-8 become U+FFFD.
    text += object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    text += '\n';
  }
  return text;
}

void check_end(const VerifierSpec& spec, const ChildResult& result) {
  if (result.timed_out) {
    fail(spec, fmt::format("did not end within {} s and was killed", spec.timeout_s));
  }
  if (result.overflowed) {
    fail(spec, "wrote far more than one number a response and was killed");
  }
  if (result.signal != 0) {
    fail(spec, fmt::format("was killed by signal {}", result.signal));
  }
  if (result.exit_code != 0) {
    fail(spec, fmt::format("ended with exit code {}", result.exit_code));
  }
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  return first == std::string_view::npos
             ? std::string_view()
             : text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

double parse_reward(const VerifierSpec& spec, std::string_view line, std::size_t number) {
  const std::string_view text = trimmed(line);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    fail(spec,
         fmt::format("wrote \"{}\" as line {}; one finite number a line was expected",
                     text.substr(0, 80),
                     number));
  }
  return value;
}

}  // namespace

std::vector<double> run_reward_command(const VerifierSpec& spec,
                                       std::span<const VerifierInput> inputs) {
  if (inputs.empty()) {
    return {};
  }
  const ChildResult result = run_child(
      spec.command, input_lines(inputs), spec.timeout_s, kLongestLine * (inputs.size() + 1));
  check_end(spec, result);
  std::vector<double> rewards;
  std::string_view rest = result.output;
  while (!rest.empty() && rewards.size() < inputs.size()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    rewards.push_back(parse_reward(spec, line, rewards.size() + 1));
  }
  if (rewards.size() < inputs.size()) {
    fail(spec,
         fmt::format("wrote no line {}: {} lines for {} responses; one number a line was expected",
                     rewards.size() + 1,
                     rewards.size(),
                     inputs.size()));
  }
  if (!trimmed(rest).empty() && trimmed(rest) != "\n") {
    fail(spec,
         fmt::format("wrote a line {} after the {} responses; one number a line was expected",
                     inputs.size() + 1,
                     inputs.size()));
  }
  return rewards;
}

}  // namespace rpeg
