#include "rpeg/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::filesystem::path scratch(const std::string& name) { return test::test_directory() / name; }

/// One token a character of "abc123 {}", with token 0 before each text.
Tokenizer tokenizer() {
  const auto path = scratch("tokenizer.json");
  write_file_atomic(path, R"({
    "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "a"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"a": {"ids": [0]}}},
    "model": {"type": "BPE", "merges": [],
              "vocab": {"a": 0, "b": 1, "c": 2, "1": 3, "2": 4, "3": 5, " ": 6, "{": 7, "}": 8}}})");
  return Tokenizer::load(path);
}

DatasetOptions options_for(const std::string& lines) {
  DatasetOptions options;
  options.path = scratch("data.jsonl");
  write_file_atomic(options.path, lines);
  return options;
}

Error error_of(const DatasetOptions& options) {
  try {
    (void)load_dataset(options, tokenizer());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error;
  }
  return Error(ErrorKind::kInternal, "no error");
}

TEST(LoadDataset, ReadsPromptsAndAnswers) {
  const auto prompts = load_dataset(
      options_for(
          "{\"prompt\": \"ab\", \"answer\": \"c\"}\n\n{\"prompt\": \"1\", \"answer\": 18.5}\r\n"
          "{\"prompt\": \"b\"}"),
      tokenizer());
  ASSERT_EQ(prompts.size(), 3U);
  EXPECT_EQ(prompts[0].text, "ab");
  EXPECT_EQ(prompts[0].answer, "c");
  EXPECT_EQ(prompts[0].tokens, (Ids{0, 0, 1}));
  EXPECT_EQ(prompts[1].answer, "18.5");
  EXPECT_EQ(prompts[2].answer, "");
}

TEST(LoadDataset, FillsTheTemplate) {
  DatasetOptions options = options_for("{\"q\": \"ab\", \"n\": 12, \"solution\": \"c\"}\n");
  options.prompt_template = "{{{n}}} {q}{q}";
  options.answer_field = "solution";
  const auto prompts = load_dataset(options, tokenizer());
  EXPECT_EQ(prompts[0].text, "{12} abab");
  EXPECT_EQ(prompts[0].answer, "c");
}

TEST(LoadDataset, TemplateErrorsShowThePlace) {
  DatasetOptions options = options_for("{\"q\": \"ab\"}\n");
  options.prompt_template = "a {q";
  EXPECT_THAT(error_of(options).message(), HasSubstr("offset 2: '{' is not closed"));
  options.prompt_template = "a}";
  EXPECT_THAT(error_of(options).message(), HasSubstr("offset 1: '}' was not opened"));
  options.prompt_template = "{}";
  EXPECT_THAT(error_of(options).message(), HasSubstr("name of the field is missing"));
}

TEST(LoadDataset, MissingFieldsNameLineAndFields) {
  DatasetOptions options =
      options_for("{\"question\": \"a\", \"x\": 1}\n\n{\"x\": 1, \"questoin\": \"b\"}\n");
  options.prompt_field = "question";
  const Error error = error_of(options);
  EXPECT_THAT(error.where(), HasSubstr("data.jsonl:3"));
  EXPECT_THAT(error.message(), HasSubstr("no field 'question' (did you mean 'questoin'?)"));
  EXPECT_THAT(error.message(), HasSubstr("the fields are: questoin, x"));
  options.prompt_template = "{x} {answer}";
  EXPECT_THAT(error_of(options).message(), HasSubstr("no field 'answer'"));
}

TEST(LoadDataset, BrokenLinesAreNamed) {
  EXPECT_THAT(error_of(options_for("{\"prompt\": \"a\"}\n{\"prompt\": \n")).where(),
              HasSubstr("data.jsonl:2"));
  EXPECT_THAT(error_of(options_for("[1]\n")).message(), HasSubstr("object was expected"));
  EXPECT_THAT(error_of(options_for("{\"prompt\": [\"a\"]}\n")).message(),
              HasSubstr("field 'prompt' is array"));
  EXPECT_THAT(error_of(options_for("\n")).message(), HasSubstr("no prompts"));
}

TEST(LoadDataset, OverLongPromptsAreDroppedCutOrRefused) {
  // 3 and 5 tokens, the leading one included.
  DatasetOptions options = options_for("{\"prompt\": \"bc\"}\n{\"prompt\": \"bc12\"}\n");
  options.max_prompt_tokens = 4;
  EXPECT_EQ(load_dataset(options, tokenizer()).size(), 1U);
  options.over_long = OverLong::kTruncate;
  EXPECT_EQ(load_dataset(options, tokenizer())[1].tokens, (Ids{1, 2, 3, 4}));
  options.over_long = OverLong::kError;
  EXPECT_THAT(error_of(options).where(), HasSubstr("data.jsonl:2"));
  EXPECT_THAT(error_of(options).message(), HasSubstr("5 tokens, more than max_prompt_tokens 4"));
  options.over_long = OverLong::kDrop;
  options.max_prompt_tokens = 2;
  EXPECT_THAT(error_of(options).message(), HasSubstr("no prompt is left: all 2"));
}

TEST(IterationPrompts, RunsThroughTheFileInOrder) {
  EXPECT_THAT(iteration_prompts(5, 3, 0, false, 1), ElementsAre(0, 1, 2));
  EXPECT_THAT(iteration_prompts(5, 3, 1, false, 1), ElementsAre(3, 4, 0));
  EXPECT_THAT(iteration_prompts(2, 5, 1, false, 1), ElementsAre(1, 0, 1, 0, 1));
}

TEST(IterationPrompts, EachEpochIsAPermutationOfItsOwn) {
  std::vector<std::int64_t> sequence;
  for (std::int64_t iteration = 0; iteration < 20; ++iteration) {
    const auto part = iteration_prompts(50, 15, iteration, true, 7);  // 300 = 6 epochs
    sequence.insert(sequence.end(), part.begin(), part.end());
  }
  std::vector<std::int64_t> all(50);
  std::iota(all.begin(), all.end(), 0);
  for (std::size_t epoch = 0; epoch < 6; ++epoch) {
    const auto begin = sequence.begin() + static_cast<std::ptrdiff_t>(50 * epoch);
    EXPECT_TRUE(std::is_permutation(begin, begin + 50, all.begin()));
    EXPECT_FALSE(std::equal(begin, begin + 50, all.begin()));
    if (epoch > 0) {
      EXPECT_FALSE(std::equal(begin, begin + 50, sequence.begin()));
    }
  }
  EXPECT_EQ(iteration_prompts(50, 15, 3, true, 7), iteration_prompts(50, 15, 3, true, 7));
  EXPECT_NE(iteration_prompts(50, 15, 3, true, 7), iteration_prompts(50, 15, 3, true, 8));
}

}  // namespace
}  // namespace rpeg
