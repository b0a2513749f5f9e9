#include "data/expression.h"

#include <cstddef>

namespace rpeg {
namespace {

constexpr int kDeepest = 100;
constexpr std::size_t kMostDigits = 18;

using Value = std::optional<Rational>;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Recursive descent, one function a rule; nothing returned ends it.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  std::optional<Expression> parse() {
    const Value value = sum();
    skip_spaces();
    if (!value || at_ != text_.size()) {
      return std::nullopt;
    }
    return Expression{*value, std::move(numbers_)};
  }

 private:
  void skip_spaces() {
    while (at_ < text_.size() && is_space(text_[at_])) {
      ++at_;
    }
  }

  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) {
      return false;
    }
    ++at_;
    return true;
  }

  // product { (+ | −) product }
  Value sum() {
    Value value = product();
    while (value) {
      if (accept('+')) {
        const Value right = product();
        value = right ? add(*value, *right) : std::nullopt;
      } else if (accept('-')) {
        const Value right = product();
        value = right ? add(*value, negate(*right)) : std::nullopt;
      } else {
        break;
      }
    }
    return value;
  }

  // factor { (* | /) factor }
  Value product() {
    Value value = factor();
    while (value) {
      if (accept('*')) {
        const Value right = factor();
        value = right ? multiply(*value, *right) : std::nullopt;
      } else if (accept('/')) {
        const Value right = factor();
        value = right ? divide(*value, *right) : std::nullopt;
      } else {
        break;
      }
    }
    return value;
  }

  // { − } (number | ( sum ))
  Value factor() {
    bool negative = false;
    while (accept('-')) {
      negative = !negative;
    }
    Value value = accept('(') ? parenthesised() : number();
    return value && negative ? negate(*value) : value;
  }

  Value parenthesised() {
    if (++depth_ > kDeepest) {
      return std::nullopt;
    }
    Value value = sum();
    --depth_;
    return accept(')') ? value : std::nullopt;
  }

  Value number() {
    const std::size_t begin = at_;
    std::int64_t value = 0;
    while (at_ < text_.size() && is_digit(text_[at_]) && at_ - begin < kMostDigits) {
      value = 10 * value + (text_[at_++] - '0');
    }
    if (at_ == begin || (at_ < text_.size() && is_digit(text_[at_]))) {
      return std::nullopt;
    }
    numbers_.push_back(value);
    return Rational{value, 1};
  }

  std::string_view text_;
  std::size_t at_ = 0;
  int depth_ = 0;
  std::vector<std::int64_t> numbers_;
};

}  // namespace

std::optional<Expression> evaluate_expression(std::string_view text) {
  return Parser(text).parse();
}

}  // namespace rpeg
