#include "rpeg/data/verifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

double reward(const VerifierSpec& spec,
              std::string_view response,
              std::string_view answer,
              bool stopped = true) {
  return verify(spec, {"", response, answer, stopped});
}

double gsm8k(std::string_view response, std::string_view answer) {
  return reward({VerifierKind::kGsm8k, ""}, response, answer);
}

TEST(Gsm8k, TakesTheNumberAfterTheMark) {
  EXPECT_EQ(gsm8k("16 - 3 = 13\n#### 18", "18"), 1.0);
  EXPECT_EQ(gsm8k("#### 18\nand 7 more words", "18"), 1.0);
  EXPECT_EQ(gsm8k("#### 17", "18"), 0.0);
  EXPECT_EQ(gsm8k("#### 1\n#### 18", "18"), 1.0);  // the last mark
  EXPECT_EQ(gsm8k("It is 18 ####", "18"), 1.0);    // a mark without a number
}

TEST(Gsm8k, TakesTheLastNumberWithoutAMark) {
  EXPECT_EQ(gsm8k("She makes 9 * 2 = $18.", "18"), 1.0);
  EXPECT_EQ(gsm8k("18 or 19", "18"), 0.0);
  EXPECT_EQ(gsm8k("nothing", "18"), 0.0);
  EXPECT_EQ(gsm8k("", "18"), 0.0);
}

TEST(Gsm8k, ComparesNumbersNotSpellings) {
  EXPECT_EQ(gsm8k("#### $1,234.50", "1234.5"), 1.0);
  EXPECT_EQ(gsm8k("#### 18.0", "18"), 1.0);
  EXPECT_EQ(gsm8k("#### 018", "18.00"), 1.0);
  EXPECT_EQ(gsm8k("#### .5", "0.50"), 1.0);
  EXPECT_EQ(gsm8k("#### 1,000,000.", "1000000"), 1.0);
  EXPECT_EQ(gsm8k("#### -5", "-5"), 1.0);
  EXPECT_EQ(gsm8k("#### -$5", "-5"), 1.0);
  EXPECT_EQ(gsm8k("#### 5", "-5"), 0.0);
  EXPECT_EQ(gsm8k("#### -0", "0"), 1.0);
  EXPECT_EQ(gsm8k("8-5", "5"), 1.0);     // a difference, not a negative number
  EXPECT_EQ(gsm8k("3, 1,2", "2"), 1.0);  // a list, not a thousands separator
  EXPECT_EQ(gsm8k("#### 123456789012345678901", "123456789012345678900"), 0.0);
}

TEST(Gsm8k, AcceptsWholeSolutionsAsAnswers) {
  EXPECT_EQ(gsm8k("#### 3", "It takes 2/2=1 bolt, so 2+1=3\n#### 3"), 1.0);
}

TEST(RegexVerifier, MatchesAnywhere) {
  const VerifierSpec spec{VerifierKind::kRegex, R"(answer:\s*\d+$)"};
  EXPECT_EQ(reward(spec, "the answer: 12", ""), 1.0);
  EXPECT_EQ(reward(spec, "the answer: x", ""), 0.0);
}

TEST(RegexVerifier, CatastrophicPatternsAndBrokenTextEarnNothing) {
  EXPECT_EQ(reward({VerifierKind::kRegex, "(a+)+$"}, std::string(40, 'a') + "b", ""), 0.0);
  EXPECT_EQ(reward({VerifierKind::kRegex, "a"}, "a\xff", ""), 0.0);
}

TEST(RegexVerifier, PatternsAreCheckedBeforehand) {
  EXPECT_THROW(check_verifier({VerifierKind::kRegex, "a("}), Error);
  EXPECT_THROW(check_verifier({VerifierKind::kRegex, ""}), Error);
  EXPECT_NO_THROW(check_verifier({VerifierKind::kRegex, "a"}));
  EXPECT_NO_THROW(check_verifier({VerifierKind::kCopy, ""}));
  EXPECT_THROW(check_verifier({VerifierKind::kCommand}), Error);
  EXPECT_NO_THROW(check_verifier({VerifierKind::kCommand, "", {"./score"}}));
}

TEST(DigitCompletion, EachCharacterAndTheStopEarnOneShare) {
  const VerifierSpec spec{VerifierKind::kDigitCompletion, ""};
  // "3,5" has three characters: four shares.
  EXPECT_DOUBLE_EQ(reward(spec, "3,5", "3,5", true), 4.0 / 4.0);
  EXPECT_DOUBLE_EQ(reward(spec, "3,5", "3,5", false), 3.0 / 4.0);
  EXPECT_DOUBLE_EQ(reward(spec, "3,57", "3,5", true), 3.0 / 4.0);
  EXPECT_DOUBLE_EQ(reward(spec, "3,", "3,5", true), 2.0 / 4.0);
  EXPECT_DOUBLE_EQ(reward(spec, "3,4", "3,5", true), 2.0 / 4.0);
  EXPECT_DOUBLE_EQ(reward(spec, "4,5", "3,5", true), 0.0);
  EXPECT_DOUBLE_EQ(reward(spec, "", "3,5", true), 0.0);
  EXPECT_DOUBLE_EQ(reward(spec, "", "", true), 1.0);
  EXPECT_DOUBLE_EQ(reward(spec, "3", "", true), 0.0);
}

TEST(Copy, EarnsTheShareOfLeadingCharacters) {
  const VerifierSpec spec{VerifierKind::kCopy, ""};
  EXPECT_DOUBLE_EQ(reward(spec, "123", "123", false), 1.0);
  EXPECT_DOUBLE_EQ(reward(spec, "1239", "123", false), 1.0);
  EXPECT_DOUBLE_EQ(reward(spec, "12", "123"), 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(reward(spec, "193", "123"), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(reward(spec, "è", "é"), 0.0);  // the same first byte, another character
  EXPECT_DOUBLE_EQ(reward(spec, "aé", "aéb"), 2.0 / 3.0);
}

TEST(CheckAnswer, RefusesGroundTruthThatNothingCanMeet) {
  EXPECT_THROW(check_answer({VerifierKind::kGsm8k, ""}, "twelve"), Error);
  EXPECT_THROW(check_answer({VerifierKind::kCopy, ""}, ""), Error);
  EXPECT_THROW(check_answer({VerifierKind::kMath}, " $ "), Error);
  EXPECT_THROW(check_answer({VerifierKind::kCountdown}, "55 of them"), Error);
  EXPECT_NO_THROW(check_answer({VerifierKind::kMath}, "\\boxed{x}"));
  EXPECT_NO_THROW(check_answer({VerifierKind::kCountdown}, "(40 + 74) - 58"));
  EXPECT_NO_THROW(check_answer({VerifierKind::kGsm8k, ""}, "#### 12"));
  EXPECT_NO_THROW(check_answer({VerifierKind::kDigitCompletion, ""}, ""));
  EXPECT_NO_THROW(check_answer({VerifierKind::kRegex, "a"}, ""));
}

TEST(VerifierKind, KnowsItsNames) {
  EXPECT_EQ(verifier_kind("gsm8k"), VerifierKind::kGsm8k);
  EXPECT_EQ(verifier_kind("digit_completion"), VerifierKind::kDigitCompletion);
  try {
    (void)verifier_kind("gsm8");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.message(), testing::HasSubstr("did you mean 'gsm8k'"));
  }
}

TEST(Verify, WithoutAVerifierThereIsNoReward) {
  EXPECT_THROW((void)reward({VerifierKind::kNone}, "1", "1"), Error);
}

TEST(VerifyBatch, GivesEachResponseItsReward) {
  const std::vector<VerifierInput> inputs = {{"", "7", "7", true}, {"", "8", "7", true}};
  EXPECT_EQ(verify_batch({VerifierKind::kGsm8k}, inputs), (std::vector<double>{1.0, 0.0}));
}

TEST(Verify, StaysInRangeForAnyResponse) {
  Rng rng(3);
  const std::string alphabet = "#0123456789.,-$ ax\n\xc3\xa9\xff";
  for (int round = 0; round < 3000; ++round) {
    std::string response;
    for (std::int64_t i = rng.below(30); i > 0; --i) {
      const auto at = rng.below(static_cast<std::int64_t>(alphabet.size()));
      response.push_back(alphabet[static_cast<std::size_t>(at)]);
    }
    for (const VerifierSpec& spec : {VerifierSpec{VerifierKind::kGsm8k, ""},
                                     VerifierSpec{VerifierKind::kRegex, R"(\d)"},
                                     VerifierSpec{VerifierKind::kDigitCompletion, ""},
                                     VerifierSpec{VerifierKind::kCopy, ""},
                                     VerifierSpec{VerifierKind::kMath, ""}}) {
      const double value = reward(spec, response, "12\xc3\xa9", rng.below(2) == 0);
      ASSERT_GE(value, 0.0);
      ASSERT_LE(value, 1.0);
    }
  }
}

}  // namespace
}  // namespace rpeg
