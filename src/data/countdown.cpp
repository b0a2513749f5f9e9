#include "data/countdown.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "data/expression.h"

namespace rpeg {
namespace {

constexpr std::string_view kOpen = "<answer>";
constexpr std::string_view kClose = "</answer>";
constexpr std::string_view kBlank = " \t\r\n";

std::optional<Countdown> puzzle_of_json(const nlohmann::json& object) {
  const auto numbers = object.contains("numbers") ? object.find("numbers") : object.find("nums");
  const auto target = object.find("target");
  const auto is_whole = [](const nlohmann::json& value) { return value.is_number_integer(); };
  if (numbers == object.end() || target == object.end() || !numbers->is_array() ||
      !std::all_of(numbers->begin(), numbers->end(), is_whole) || !is_whole(*target)) {
    return std::nullopt;
  }
  return Countdown{numbers->get<std::vector<std::int64_t>>(), {target->get<std::int64_t>(), 1}};
}

std::string_view last_line(std::string_view text) {
  const std::size_t last = text.find_last_not_of(kBlank);
  if (last == std::string_view::npos) {
    return {};
  }
  text = text.substr(0, last + 1);
  return text.substr(text.rfind('\n') + 1);  // npos + 1 = 0: the whole text
}

std::string_view final_answer(std::string_view response) {
  const std::size_t close = response.rfind(kClose);
  if (close != std::string_view::npos) {
    const std::size_t open = response.rfind(kOpen, close);
    if (open != std::string_view::npos) {
      return response.substr(open + kOpen.size(), close - open - kOpen.size());
    }
  }
  return last_line(response);
}

/// The signs that people and LaTeX write, as ASCII.
std::string with_ascii_operators(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, char>, 5> kSigns = {
      {{"×", '*'}, {"÷", '/'}, {"−", '-'}, {"\\times", '*'}, {"\\div", '/'}}};
  std::string result;
  while (!text.empty()) {
    const auto sign = std::find_if(kSigns.begin(), kSigns.end(), [&](const auto& candidate) {
      return text.starts_with(candidate.first);
    });
    result.push_back(sign == kSigns.end() ? text.front() : sign->second);
    text.remove_prefix(sign == kSigns.end() ? 1 : sign->first.size());
  }
  return result;
}

}  // namespace

std::optional<Countdown> parse_countdown(std::string_view answer) {
  const std::size_t first = answer.find_first_not_of(kBlank);
  if (first != std::string_view::npos && answer[first] == '{') {
    const auto object = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
    return object.is_object() ? puzzle_of_json(object) : std::nullopt;
  }
  auto solution = evaluate_expression(answer);
  if (!solution) {
    return std::nullopt;
  }
  return Countdown{std::move(solution->numbers), solution->value};
}

bool solves_countdown(const Countdown& puzzle, std::string_view response) {
  const std::string text = with_ascii_operators(final_answer(response));
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const auto claimed = evaluate_expression(std::string_view(text).substr(equals + 1));
    if (!claimed || claimed->value != puzzle.target) {
      return false;
    }
  }
  auto solution = evaluate_expression(std::string_view(text).substr(0, equals));
  if (!solution || solution->value != puzzle.target) {
    return false;
  }
  std::vector<std::int64_t> given = puzzle.numbers;
  std::sort(given.begin(), given.end());
  std::sort(solution->numbers.begin(), solution->numbers.end());
  return std::includes(
      given.begin(), given.end(), solution->numbers.begin(), solution->numbers.end());
}

}  // namespace rpeg
