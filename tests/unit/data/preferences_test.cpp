#include "rpeg/data/preferences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

/// One token a character of "abc12", with token 9 before each prompt.
Tokenizer tokenizer() {
  const auto path = test::test_directory() / "tokenizer.json";
  write_file_atomic(path, R"({
    "added_tokens": [{"id": 9, "content": "S", "special": true}],
    "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "S"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"S": {"ids": [9]}}},
    "model": {"type": "BPE", "merges": [],
              "vocab": {"a": 0, "b": 1, "c": 2, "1": 3, "2": 4, ":": 5, "S": 9}}})");
  return Tokenizer::load(path);
}

DatasetOptions options_for(const std::string& lines) {
  DatasetOptions options;
  options.path = test::test_directory() / "pairs.jsonl";
  write_file_atomic(options.path, lines);
  return options;
}

std::vector<PreferencePair> load(const DatasetOptions& options, const Ids& stop = {7, 8}) {
  return load_preferences(options, tokenizer(), stop);
}

Error error_of(const DatasetOptions& options, const Ids& stop = {7}) {
  try {
    (void)load(options, stop);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error;
  }
  return Error(ErrorKind::kInternal, "no error");
}

TEST(LoadPreferences, EncodesPromptAndResponses) {
  const auto options = options_for(R"({"prompt": "ab", "chosen": "c", "rejected": "12"})");
  const auto pairs = load(options);
  ASSERT_EQ(pairs.size(), 1U);
  EXPECT_EQ(pairs[0].prompt, "ab");
  EXPECT_EQ(pairs[0].prompt_tokens, (Ids{9, 0, 1}));
  EXPECT_EQ(pairs[0].chosen, (Ids{2, 7}));  // no special tokens; the first stop token
  EXPECT_EQ(pairs[0].rejected, (Ids{3, 4, 7}));
  EXPECT_EQ(load(options, {})[0].chosen, (Ids{2}));
}

TEST(LoadPreferences, TakesTheLastOfAListOfMessages) {
  auto options = options_for(
      R"({"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "ab"}],)"
      R"( "good": [{"role": "assistant", "content": "1"}], "bad": "2"})");
  options.prompt_field = "messages";
  options.chosen_field = "good";
  options.rejected_field = "bad";
  const auto pairs = load(options);
  EXPECT_EQ(pairs[0].prompt, "ab");
  EXPECT_EQ(pairs[0].chosen, (Ids{3, 7}));
  EXPECT_EQ(pairs[0].rejected, (Ids{4, 7}));
  options.prompt_template = "a:{messages}:";
  EXPECT_EQ(load(options)[0].prompt, "a:ab:");
}

TEST(LoadPreferences, FaultsNameTheLine) {
  const std::string good = R"({"prompt": "ab", "chosen": "c", "rejected": "12"})";
  EXPECT_THAT(error_of(options_for(good + "\n\n" + R"({"prompt": "a", "chosen": "b"})")).where(),
              HasSubstr("pairs.jsonl:3"));
  EXPECT_THAT(error_of(options_for(R"({"prompt": "a", "chosen": "b", "rejcted": "c"})")).message(),
              HasSubstr("no field 'rejected' (did you mean 'rejcted'?)"));
  for (const char* list : {"[]", "[1]", R"([{"role": "user"}])", R"([{"content": 1}])"}) {
    EXPECT_THAT(error_of(options_for(R"({"prompt": "a", "chosen": "b", "rejected": )" +
                                     std::string(list) + "}"))
                    .message(),
                HasSubstr("'rejected' is array; a string, a number or a list of"))
        << list;
  }
  EXPECT_THAT(
      error_of(options_for(R"({"prompt": "a", "chosen": "", "rejected": "c"})"), {}).message(),
      HasSubstr("the response in field 'chosen' has no tokens"));
  EXPECT_THAT(error_of(options_for("\n")).message(), HasSubstr("no preference pairs"));
}

TEST(LoadPreferences, OverLongPairsAreDroppedCutOrRefused) {
  // Prompts of 3 and 4 tokens; the longest responses have 3, 4 and 3 with the stop token.
  const std::string lines = R"({"prompt": "ab", "chosen": "c", "rejected": "12"}
{"prompt": "ab", "chosen": "abc", "rejected": "1"}
{"prompt": "abc", "chosen": "c", "rejected": "12"})";
  auto options = options_for(lines);
  options.max_prompt_tokens = 3;
  options.max_response_tokens = 3;
  EXPECT_EQ(load(options).size(), 1U);
  options.over_long = OverLong::kTruncate;
  const auto cut = load(options);
  ASSERT_EQ(cut.size(), 3U);
  EXPECT_EQ(cut[0].rejected, (Ids{3, 4, 7}));
  EXPECT_EQ(cut[1].chosen, (Ids{0, 1, 2}));  // it goes on, so there is no stop token
  EXPECT_EQ(cut[2].prompt_tokens, (Ids{0, 1, 2}));
  options.over_long = OverLong::kError;
  EXPECT_THAT(error_of(options).where(), HasSubstr("pairs.jsonl:2"));
  EXPECT_THAT(error_of(options).message(),
              HasSubstr("the chosen response has 4 tokens, more than max_response_tokens 3"));
  options.over_long = OverLong::kDrop;
  options.max_response_tokens = 2;
  EXPECT_THAT(error_of(options).message(), HasSubstr("no preference pair is left: all 3"));
}

}  // namespace
}  // namespace rpeg
