#include "data/math_answer.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "data/numbers.h"
#include "data/rational.h"

namespace rpeg {
namespace {

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Position after the brace that closes the one at `open`; npos when none does.
std::size_t after_group(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    depth += text[i] == '{' ? 1 : 0;
    depth -= text[i] == '}' ? 1 : 0;
    if (depth == 0) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

/// What the last `command{…}` holds; nothing when there is none with its braces.
std::optional<std::string> last_group_of(std::string_view text, std::string_view command) {
  const std::size_t at = text.rfind(command);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const std::size_t open = text.find_first_not_of(' ', at + command.size());
  if (open == std::string_view::npos || text[open] != '{') {
    return std::nullopt;
  }
  const std::size_t end = after_group(text, open);
  return end == std::string_view::npos
             ? std::nullopt
             : std::optional(std::string(text.substr(open + 1, end - open - 2)));
}

std::optional<std::string> boxed(std::string_view text) {
  auto result = last_group_of(text, "\\boxed");
  return result ? result : last_group_of(text, "\\fbox");
}

/// The last number, or the last two when a fraction bar stands between them.
std::string last_number_or_fraction(std::string_view text) {
  FoundNumber before;
  FoundNumber last = next_number(text, 0);
  for (FoundNumber next = last; !next.digits.empty(); next = next_number(text, next.end)) {
    before = std::exchange(last, next);
  }
  if (last.digits.empty() || before.digits.empty() || before.end > last.begin) {
    return last.digits;
  }
  const std::string_view between = text.substr(before.end, last.begin - before.end);
  return between == "/" || between == "}{" ? before.digits + "/" + last.digits : last.digits;
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, done)) {
    result.append(text, done, at - done).append(by);
    done = at + what.size();
  }
  text = result.append(text, done);
}

/// Removes a command such as \left, but not the \leftarrow that begins with it.
void remove_command(std::string& text, std::string_view command) {
  std::size_t at = 0;
  while ((at = text.find(command, at)) != std::string::npos) {
    const std::size_t end = at + command.size();
    if (end < text.size() && is_letter(text[end])) {
      at = end;
    } else {
      text.erase(at, command.size());
    }
  }
}

/// A trailing \text{…} behind something is a unit, perhaps with a power, and goes; any other gives
/// way to what it holds.
void resolve_text(std::string& text) {
  for (const std::string_view command : {"\\text{", "\\mathrm{", "\\textbf{", "\\mbox{"}) {
    for (std::size_t at = text.rfind(command); at != std::string::npos; at = text.rfind(command)) {
      const std::size_t open = at + command.size() - 1;
      const std::size_t end = after_group(text, open);
      if (end == std::string::npos) {
        break;
      }
      std::string_view rest = std::string_view(text).substr(end);
      const bool has_power = rest.starts_with('^');
      rest.remove_prefix(has_power ? 1 : 0);
      const bool is_last =
          rest.find_first_not_of(has_power ? "{}0123456789 ." : " .") == std::string_view::npos;
      const bool is_first = text.find_first_not_of(' ') == at;
      if (is_last && !is_first) {
        text.erase(at);
      } else {
        text.replace(at, end - at, text.substr(open + 1, end - open - 2));
      }
    }
  }
}

/// \frac12 → \frac{1}{2}, \sqrt3 → \sqrt{3}: braces around the `count` digits that may follow.
void brace_digits(std::string& text, std::string_view command, int count) {
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = text.find(command); at != std::string::npos;
       at = text.find(command, done)) {
    result.append(text, done, at + command.size() - done);
    done = at + command.size();
    for (int i = 0; i < count && done < text.size() && is_digit(text[done]); ++i) {
      result.append({'{', text[done++], '}'});
    }
  }
  text = result.append(text, done);
}

/// "1,234,567" → "1234567"; anything else stays, such as the list "1,2".
void remove_thousands_separators(std::string& text) {
  const FoundNumber number = next_number(text, 0);
  const bool is_signed = !text.empty() && (text[0] == '-' || text[0] == '+');
  if (number.begin == (is_signed ? 1U : 0U) && number.end == text.size()) {
    std::erase(text, ',');
  }
}

/// Reads `\frac{a}{b}` at the start of a text, its numbers unsigned decimals.
std::optional<Rational> take_fraction(std::string_view& text) {
  constexpr std::string_view kCommand = "\\frac{";
  if (!text.starts_with(kCommand)) {
    return std::nullopt;
  }
  const std::size_t middle = text.find("}{");
  const std::size_t end = middle == std::string_view::npos ? middle : text.find('}', middle + 2);
  if (end == std::string_view::npos) {
    return std::nullopt;
  }
  const auto above = parse_decimal(text.substr(kCommand.size(), middle - kCommand.size()));
  const auto below = parse_decimal(text.substr(middle + 2, end - middle - 2));
  text.remove_prefix(end + 1);
  return above && below ? divide(*above, *below) : std::nullopt;
}

/// The exact value of a number, a fraction, or a whole number with a fraction behind it.
std::optional<Rational> exact_value(std::string_view text) {
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative || text.starts_with('+') ? 1 : 0);
  const std::size_t end = std::min(text.find_first_not_of(".0123456789"), text.size());
  const auto whole = parse_decimal(text.substr(0, end));
  std::string_view rest = text.substr(end);
  std::optional<Rational> value = whole;
  if (whole && rest.starts_with('/')) {
    const auto below = parse_decimal(rest.substr(1));
    value = below ? divide(*whole, *below) : std::nullopt;
  } else if (!rest.empty()) {
    const auto fraction = take_fraction(rest);
    const bool is_mixed = end > 0 && whole && fraction;
    value = is_mixed ? add(*whole, *fraction) : end == 0 ? fraction : std::nullopt;
    value = rest.empty() ? value : std::nullopt;
  }
  return value && negative ? negate(*value) : value;
}

/// The elements of "(a,b,…)" or "[a,b)"; empty for anything else.
std::vector<std::string_view> elements(std::string_view text) {
  constexpr std::string_view kOpen = "([{";
  constexpr std::string_view kClose = ")]}";
  std::vector<std::string_view> result;
  if (text.size() < 2 || (text.front() != '(' && text.front() != '[') ||
      (text.back() != ')' && text.back() != ']')) {
    return result;
  }
  const std::string_view inner = text.substr(1, text.size() - 2);
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= inner.size(); ++i) {
    if (i == inner.size() || (inner[i] == ',' && depth == 0)) {
      result.push_back(inner.substr(begin, i - begin));
      begin = i + 1;
    } else {
      depth += kOpen.find(inner[i]) != std::string_view::npos ? 1 : 0;
      depth -= kClose.find(inner[i]) != std::string_view::npos ? 1 : 0;
    }
  }
  return result;
}

bool same_number(std::string_view a, std::string_view b) {
  const auto left = exact_value(a);
  return left && left == exact_value(b);
}

}  // namespace

std::string math_final_answer(std::string_view solution) {
  auto result = boxed(solution);
  return result ? *result : last_number_or_fraction(solution);
}

std::string math_stated_answer(std::string_view ground_truth) {
  auto result = boxed(ground_truth);
  return result ? *result : std::string(ground_truth);
}

std::string normal_math(std::string_view answer) {
  std::string text(answer);
  for (const std::string_view command :
       {"\\left", "\\right", "\\displaystyle", "\\quad", "\\degree"}) {
    remove_command(text, command);
  }
  for (const std::string_view noise : {"\\!",
                                       "\\,",
                                       "\\;",
                                       "\\:",
                                       "\\ ",
                                       "^\\circ",
                                       "^{\\circ}",
                                       "\\$",
                                       "$",
                                       "\\%",
                                       "%",
                                       "\\(",
                                       "\\)",
                                       "\n",
                                       "\r",
                                       "\t"}) {
    replace_all(text, noise, "");
  }
  replace_all(text, "{,}", ",");
  replace_all(text, "−", "-");
  replace_all(text, "dfrac", "frac");
  replace_all(text, "tfrac", "frac");
  resolve_text(text);
  std::erase(text, ' ');
  if (text.ends_with('.')) {
    text.pop_back();
  }
  if (text.size() > 2 && is_letter(text[0]) && text[1] == '=') {
    text.erase(0, 2);
  }
  brace_digits(text, "\\frac", 2);
  brace_digits(text, "\\sqrt", 1);
  remove_thousands_separators(text);
  return text;
}

bool math_equal(std::string_view a, std::string_view b) {
  const std::string left = normal_math(a);
  const std::string right = normal_math(b);
  if (left.empty() || right.empty()) {
    return false;
  }
  if (left == right || same_number(left, right)) {
    return true;
  }
  const auto left_elements = elements(left);
  const auto right_elements = elements(right);
  return left.front() == right.front() && left.back() == right.back() && left_elements.size() > 1 &&
         left_elements.size() == right_elements.size() &&
         std::equal(left_elements.begin(),
                    left_elements.end(),
                    right_elements.begin(),
                    [](std::string_view x, std::string_view y) {
                      return !x.empty() && (x == y || same_number(x, y));
                    });
}

}  // namespace rpeg
