#include "data/countdown.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "data/expression.h"
#include "rpeg/base/rng.h"
#include "rpeg/data/verifier.h"

namespace rpeg {
namespace {

using testing::ElementsAre;

std::optional<Rational> value_of(std::string_view text) {
  const auto expression = evaluate_expression(text);
  return expression ? std::optional(expression->value) : std::nullopt;
}

TEST(Rational, IsExactOrNothing) {
  EXPECT_EQ(make_rational(-6, -4), (Rational{3, 2}));
  EXPECT_EQ(make_rational(1, 0), std::nullopt);
  EXPECT_EQ(add({1, 3}, {1, 6}), (Rational{1, 2}));
  EXPECT_EQ(divide({1, 2}, {-3, 4}), (Rational{-2, 3}));
  EXPECT_EQ(divide({1, 2}, {0, 1}), std::nullopt);
  const std::int64_t large = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(multiply({large, 1}, {2, 1}), std::nullopt);
  EXPECT_EQ(add({large, 1}, {1, 1}), std::nullopt);
  EXPECT_EQ(parse_decimal("12.50"), (Rational{25, 2}));
  EXPECT_EQ(parse_decimal(".5"), (Rational{1, 2}));
  for (const char* text : {"", ".", "5.", "1.2.3", "-1", "1e3", "1234567890123456789"}) {
    EXPECT_EQ(parse_decimal(text), std::nullopt) << text;
  }
}

TEST(EvaluateExpression, KnowsPrecedenceSignsAndParentheses) {
  EXPECT_EQ(value_of("2 + 3 * 4"), (Rational{14, 1}));
  EXPECT_EQ(value_of("(2 + 3) * 4"), (Rational{20, 1}));
  EXPECT_EQ(value_of("20 - 5 - 3"), (Rational{12, 1}));
  EXPECT_EQ(value_of("1 / 3 / 2"), (Rational{1, 6}));
  EXPECT_EQ(value_of("-(2 - 5) * --2"), (Rational{6, 1}));
  EXPECT_THAT(evaluate_expression("74 - ((96 + 37) / 7)")->numbers, ElementsAre(74, 96, 37, 7));
}

TEST(EvaluateExpression, RefusesWhatIsNoExpression) {
  for (const char* text : {"",
                           " ",
                           "1 +",
                           "+ 1",
                           "(1",
                           "1)",
                           "()",
                           "1 2",
                           "2 ** 3",
                           "1.5",
                           "x",
                           "1 / (2 - 2)",
                           "9999999999999999999",
                           "999999999999999999 * 100"}) {
    EXPECT_EQ(value_of(text), std::nullopt) << text;
  }
  EXPECT_NE(value_of(std::string(100, '(') + "1" + std::string(100, ')')), std::nullopt);
  EXPECT_EQ(value_of(std::string(100000, '(')), std::nullopt);
  EXPECT_EQ(value_of(std::string(100000, '-') + "1"), (Rational{1, 1}));
}

/// A random expression whose value is computed beside it.
struct Built {
  std::string text;
  Rational value;
  std::size_t numbers = 1;
};

Built build_expression(Rng& rng, int depth) {
  if (depth == 0 || rng.below(4) == 0) {
    const std::int64_t number = rng.below(100);
    return {std::to_string(number), {number, 1}};
  }
  const Built left = build_expression(rng, depth - 1);
  const Built right = build_expression(rng, depth - 1);
  const auto build = [&](const char* sign, const std::optional<Rational>& value) {
    return value ? Built{"(" + left.text + sign + right.text + ")",
                         *value,
                         left.numbers + right.numbers}
                 : left;  // a division by zero
  };
  switch (rng.below(4)) {
    case 0:
      return build(" + ", add(left.value, right.value));
    case 1:
      return build("-", add(left.value, negate(right.value)));
    case 2:
      return build(" *", multiply(left.value, right.value));
    default:
      return build("/ ", divide(left.value, right.value));
  }
}

TEST(EvaluateExpression, EqualsTheValueOfItsTree) {
  Rng rng(5);
  for (int round = 0; round < 2000; ++round) {
    const Built built = build_expression(rng, 4);
    const auto expression = evaluate_expression(built.text);
    ASSERT_TRUE(expression.has_value()) << built.text;
    ASSERT_EQ(expression->value, built.value) << built.text;
    ASSERT_EQ(expression->numbers.size(), built.numbers);
    const std::string answer = built.text;
    ASSERT_EQ(verify({VerifierKind::kCountdown}, {"", built.text, answer, true}), 1.0);
  }
}

TEST(ParseCountdown, ReadsASolutionOrAnObject) {
  EXPECT_EQ(parse_countdown("74 - ((96 + 37) / 7)")->target, (Rational{55, 1}));
  const auto object = parse_countdown(R"( {"target": 55, "numbers": [96, 7, 37, 74]})");
  EXPECT_EQ(object->target, (Rational{55, 1}));
  EXPECT_THAT(object->numbers, ElementsAre(96, 7, 37, 74));
  EXPECT_THAT(parse_countdown(R"({"nums": [1], "target": 1})")->numbers, ElementsAre(1));
  for (const char* text : {"",
                           "55 of them",
                           "{",
                           R"({"target": 1})",
                           R"({"nums": ["1"], "target": 1})",
                           R"({"nums": 1, "target": 1})",
                           R"({"nums": [1], "target": 1.5})"}) {
    EXPECT_FALSE(parse_countdown(text).has_value()) << text;
  }
}

double countdown(std::string_view response) {
  return verify({VerifierKind::kCountdown},
                {"", response, R"({"numbers": [96, 7, 37, 74, 7], "target": 55})", true});
}

TEST(Countdown, EarnsAPointForASolution) {
  EXPECT_EQ(countdown("96 + 37 = 133 </think> <answer> 74 - ((96 + 37) / 7) </answer>"), 1.0);
  EXPECT_EQ(countdown("<answer>1</answer> no: <answer>74 - (96 + 37) / 7 = 55</answer> done"), 1.0);
  EXPECT_EQ(countdown("thinking\n74 − (96 + 37) ÷ 7\n\n"), 1.0);
  EXPECT_EQ(countdown(R"(74 - (96 + 37) \div 7)"), 1.0);
}

TEST(Countdown, EarnsNothingForAnythingElse) {
  EXPECT_EQ(countdown("<answer>55</answer>"), 0.0);                      // not a given number
  EXPECT_EQ(countdown("<answer>74 - 37 / 2</answer>"), 0.0);             // 2 is not given
  EXPECT_EQ(countdown("<answer>74 - 96 + 37 + 74 - 37</answer>"), 0.0);  // 74 and 37 twice
  EXPECT_EQ(countdown("<answer>74 - 7 - 7 - (96 - 96)</answer>"), 0.0);
  EXPECT_EQ(countdown("<answer>74 - (96 + 37) / 7 = 56</answer>"), 0.0);
  EXPECT_EQ(countdown("<answer>(96 + 37) / 7</answer>"), 0.0);  // 19
  EXPECT_EQ(countdown("74 - (96 + 37) / 7\nis the answer"), 0.0);
  EXPECT_EQ(countdown("<answer></answer>"), 0.0);
  EXPECT_EQ(countdown(""), 0.0);
}

TEST(Countdown, NeverThrowsForAnyResponse) {
  Rng rng(6);
  constexpr std::string_view kPieces[] = {"74",
                                          "96",
                                          "37",
                                          "7",
                                          "+",
                                          "-",
                                          "*",
                                          "/",
                                          "(",
                                          ")",
                                          "=",
                                          " ",
                                          "\n",
                                          "<answer>",
                                          "</answer>",
                                          "55",
                                          "×",
                                          "\xff",
                                          "9999999999"};
  for (int round = 0; round < 2000; ++round) {
    std::string response;
    for (std::int64_t i = rng.below(15); i > 0; --i) {
      response += kPieces[rng.below(std::ssize(kPieces))];
    }
    const double value = countdown(response);
    ASSERT_TRUE(value == 0.0 || value == 1.0);
  }
}

}  // namespace
}  // namespace rpeg
