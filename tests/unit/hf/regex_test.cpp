#include "rpeg/hf/regex.h"

#include <gtest/gtest.h>

#include <string>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

using Spans = std::vector<TextSpan>;

TEST(Regex, FindsMatchesFromLeftToRight) {
  EXPECT_EQ(Regex(R"(\d+)").find_all("a12b345"), (Spans{{1, 3}, {4, 7}}));
  EXPECT_EQ(Regex("x").find_all("abc"), Spans{});
}

TEST(Regex, EmptyMatchesMoveOnByOneCharacter) {
  // "é" has two bytes: places 0, 1, 3.
  EXPECT_EQ(Regex("x*").find_all("aé"), (Spans{{0, 0}, {1, 1}, {3, 3}}));
}

TEST(Regex, ClassesAreThoseOfUnicode) {
  EXPECT_TRUE(Regex(R"(^\w+$)").matches("Größe"));
  EXPECT_TRUE(Regex(R"(^\p{L}+\s\p{N}$)").matches("длина\u00a0½"));
  EXPECT_TRUE(Regex("^.$").matches("😀"));
}

TEST(Regex, PatternErrorsNameThePlace) {
  try {
    const Regex regex("a(b");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(error.message().find("'a(b'"), std::string::npos);
    EXPECT_NE(error.message().find("offset 3"), std::string::npos);
  }
}

TEST(Regex, RefusesTextThatIsNotUtf8) { EXPECT_THROW(Regex("a").matches("a\xff"), Error); }

}  // namespace
}  // namespace rpeg
