#include "data/numbers.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace rpeg {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

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

}  // namespace

FoundNumber next_number(std::string_view text, std::size_t at) {
  const auto begins_here = [text](std::size_t i) {
    return digits_at(text, i, 1) || (text[i] == '.' && digits_at(text, i + 1, 1));
  };
  while (at < text.size() && !begins_here(at)) {
    ++at;
  }
  if (at == text.size()) {
    return {"", at, at};
  }
  const std::size_t begin = at;
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
  return {canonical(negative, std::move(whole), std::move(fraction)), begin, at};
}

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

}  // namespace rpeg
