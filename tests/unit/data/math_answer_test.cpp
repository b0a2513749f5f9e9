#include "data/math_answer.h"

#include <gtest/gtest.h>

#include <string>

#include "rpeg/base/rng.h"
#include "rpeg/data/verifier.h"

namespace rpeg {
namespace {

double math(std::string_view response, std::string_view answer) {
  return verify({VerifierKind::kMath}, {"", response, answer, true});
}

TEST(MathFinalAnswer, IsTheLastBox) {
  EXPECT_EQ(math_final_answer(R"(so \boxed{1} or rather \boxed{2}.)"), "2");
  EXPECT_EQ(math_final_answer(R"(\boxed{\frac{1}{\sqrt{2}}} of 7)"), R"(\frac{1}{\sqrt{2}})");
  EXPECT_EQ(math_final_answer(R"(\fbox {x})"), "x");
  EXPECT_EQ(math_final_answer(R"(\boxed{)"
                              "5"),
            "5");  // not closed: the last number
}

TEST(MathFinalAnswer, IsTheLastNumberWithoutABox) {
  EXPECT_EQ(math_final_answer("first 3, then the answer is -1,200.50."), "-1200.5");
  EXPECT_EQ(math_final_answer("it is 3/4."), "3/4");
  EXPECT_EQ(math_final_answer(R"($\frac{14}{3}$)"), "14/3");
  EXPECT_EQ(math_final_answer("3 / 4"), "4");
  EXPECT_EQ(math_final_answer("none"), "");
}

TEST(NormalMath, RemovesWhatHasNoMeaning) {
  EXPECT_EQ(normal_math(R"($\left( 3, \, \dfrac12 \right)$.)"), R"((3,\frac{1}{2}))");
  EXPECT_EQ(normal_math(R"(x = 5\text{ cm}^2)"), "5");
  EXPECT_EQ(normal_math(R"(12\mathrm{~dollars})"), "12");
  EXPECT_EQ(normal_math(R"(\text{Evelyn})"), "Evelyn");
  EXPECT_EQ(normal_math(R"(5\text{ or }7)"), "5or7");  // no unit: it is not at the end
  EXPECT_EQ(normal_math(R"(30^\circ)"), "30");
  EXPECT_EQ(normal_math(R"(50\%)"), "50");
  EXPECT_EQ(normal_math(R"(1{,}234,567)"), "1234567");
  EXPECT_EQ(normal_math("1,2"), "1,2");  // a list
  EXPECT_EQ(normal_math(R"(\leftarrow)"), R"(\leftarrow)");
  EXPECT_EQ(normal_math(R"(\frac1{72}+\sqrt3)"), R"(\frac{1}{72}+\sqrt{3})");
}

TEST(MathVerifier, ComparesMeaningsNotSpellings) {
  EXPECT_EQ(math(R"(\boxed{\frac{1}{2}})", "0.5"), 1.0);
  EXPECT_EQ(math(R"(\boxed{\dfrac12})", "1/2"), 1.0);
  EXPECT_EQ(math(R"(\boxed{2\frac{1}{2}})", "2.50"), 1.0);
  EXPECT_EQ(math(R"(\boxed{-\frac{3}{6}})", "-.5"), 1.0);
  EXPECT_EQ(math(R"(\boxed{1{,}000})", "1000"), 1.0);
  EXPECT_EQ(math(R"(\boxed{(0.5, 2)})", R"(\left( \frac{1}{2}, 2 \right))"), 1.0);
  EXPECT_EQ(math(R"(\boxed{x^2+1})", "x^2 + 1"), 1.0);
  EXPECT_EQ(math(R"(\boxed{\left( 3, \frac{\pi}{2} \right)})", R"((3,\frac{\pi}{2}))"), 1.0);
  EXPECT_EQ(math("The answer is 42", R"(Since 6 * 7 = 42, \boxed{42}.)"), 1.0);
  EXPECT_EQ(math("the ratio is 14/3", R"(\frac{14}{3})"), 1.0);
}

TEST(MathVerifier, TellsDifferentAnswersApart) {
  EXPECT_EQ(math(R"(\boxed{\frac{1}{3}})", "0.333"), 0.0);
  EXPECT_EQ(math(R"(\boxed{5})", "-5"), 0.0);
  EXPECT_EQ(math(R"(\boxed{[0,1)})", "(0,1)"), 0.0);
  EXPECT_EQ(math(R"(\boxed{(1,2)})", "(1,2,3)"), 0.0);
  EXPECT_EQ(math(R"(\boxed{12})", "(1,2)"), 0.0);
  EXPECT_EQ(math(R"(\boxed{\frac{1}{0}})", R"(\frac{2}{0})"), 0.0);
  EXPECT_EQ(math(R"(\boxed{3\pi})", "3"), 0.0);
  EXPECT_EQ(math(R"(\boxed{})", ""), 0.0);
  EXPECT_EQ(math("", "1"), 0.0);
  EXPECT_EQ(math(R"(\boxed{123456789012345678901})", "123456789012345678902"), 0.0);
}

/// Pieces of LaTeX, put together at random.
std::string random_latex(Rng& rng) {
  constexpr std::string_view kPieces[] = {
      "\\boxed{", "\\frac{", "}{", "}", "{",  "\\text{", "\\left", "(", ")",  ",", "12",   "0.5",
      "-",        "/",       "$",  " ", "x=", "\\frac",  "\\sqrt", "^", "\\", "é", "\xff", "."};
  std::string text;
  for (std::int64_t i = rng.below(20); i > 0; --i) {
    text += kPieces[rng.below(std::ssize(kPieces))];
  }
  return text;
}

TEST(MathEqual, IsSymmetricAndAgreesWithItselfForAnyText) {
  Rng rng(11);
  for (int round = 0; round < 2000; ++round) {
    const std::string a = random_latex(rng);
    const std::string b = random_latex(rng);
    ASSERT_EQ(math_equal(a, b), math_equal(b, a)) << a << " | " << b;
    ASSERT_EQ(math_equal(a, a), !normal_math(a).empty()) << a;
    const double value = math(a, b);
    ASSERT_TRUE(value == 0.0 || value == 1.0);
  }
}

TEST(MathEqual, FractionsEqualTheirMultiples) {
  Rng rng(12);
  for (int round = 0; round < 500; ++round) {
    const std::int64_t a = rng.below(2000) - 1000;
    const std::int64_t b = 1 + rng.below(1000);
    const std::int64_t k = 1 + rng.below(1000);
    const std::string fraction = std::to_string(a) + "/" + std::to_string(b);
    const std::string multiple = (a < 0 ? "-" : "") + std::string("\\frac{") +
                                 std::to_string(std::abs(a) * k) + "}{" + std::to_string(b * k) +
                                 "}";
    const std::string other = std::to_string(a + 1) + "/" + std::to_string(b);
    ASSERT_TRUE(math_equal(fraction, multiple)) << fraction << " " << multiple;
    ASSERT_FALSE(math_equal(other, multiple)) << other << " " << multiple;
  }
}

}  // namespace
}  // namespace rpeg
