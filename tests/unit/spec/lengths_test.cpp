#include "rpeg/spec/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::int64_t> load(const std::string& text) {
  const auto path = test::test_directory() / "lengths.jsonl";
  write_file_atomic(path, text);
  const auto lengths = load_response_lengths(path);
  std::filesystem::remove_all(path.parent_path());
  return lengths;
}

std::string error_of(const std::string& text) {
  try {
    load(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(ResponseLengths, AreNumbersOrFieldsOfObjects) {
  EXPECT_THAT(load("12\n\n {\"response_length\": 7, \"tokens\": [1]}\n{\"length\":3}\r\n"
                   "{\"iteration\": 0, \"tokens\": [5, 6], \"text\": \"ab\"}"),
              ElementsAre(12, 7, 3, 2));
}

TEST(ResponseLengths, RefuseAnythingElseWithItsLine) {
  EXPECT_THAT(error_of("1\ntwo\n"), HasSubstr("lengths.jsonl:2"));
  for (const char* line : {"0",
                           "-3",
                           "1.5",
                           "{}",
                           "{\"tokens\": []}",
                           "[1]",
                           "null",
                           "18446744073709551615",
                           "{\"length\": \"7\"}"}) {
    EXPECT_THAT(error_of(line), HasSubstr("expected a response length")) << line;
  }
  EXPECT_THAT(error_of("\n"), HasSubstr("no response lengths"));
}

TEST(LengthQuantiles, AreTheDecilesOfSpreadLengths) {
  std::vector<std::int64_t> lengths(200);
  std::iota(lengths.begin(), lengths.end(), 1);  // 1 … 200
  const auto points = length_quantiles(lengths, 200);
  ASSERT_EQ(points.size(), 11U);
  EXPECT_EQ(points[0], (LengthQuantile{0.1, 20}));
  EXPECT_EQ(points[8], (LengthQuantile{0.9, 180}));
  EXPECT_EQ(points[9], (LengthQuantile{0.95, 190}));
  EXPECT_EQ(points[10], (LengthQuantile{1.0, 200}));
}

TEST(LengthQuantiles, KeepTheShareThatEndsTogether) {
  // Half has 10 tokens, half is cut off at 100: nothing ends between.
  std::vector<std::int64_t> lengths(50, 10);
  lengths.insert(lengths.end(), 50, 100);
  EXPECT_THAT(length_quantiles(lengths, 100),
              ElementsAre(LengthQuantile{0.5, 10}, LengthQuantile{1.0, 100}));
}

TEST(LengthQuantiles, EndAtTheLongestResponseEvenBelowTheLimit) {
  const auto points = length_quantiles({4, 5, 6}, 1000);
  ASSERT_GE(points.size(), 2U);
  EXPECT_EQ(points[points.size() - 2].tokens, 6.0);
  EXPECT_GT(points[points.size() - 2].probability, 0.999999);
  EXPECT_EQ(points.back(), (LengthQuantile{1.0, 1000}));
}

TEST(LengthQuantiles, RefuseLengthsBeyondTheLimit) {
  EXPECT_THROW(length_quantiles({5, 9}, 8), Error);
}

}  // namespace
}  // namespace rpeg
