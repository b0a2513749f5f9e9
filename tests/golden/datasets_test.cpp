// Published data sets through the readers and verifiers. The files are found through
// RPEG_TEST_DATA.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>

#include "rpeg/base/file.h"
#include "rpeg/data/preferences.h"
#include "rpeg/data/verifier.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

class Datasets : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("RPEG_TEST_DATA");
    if (data == nullptr || !fs::is_directory(fs::path(data) / "datasets")) {
      GTEST_SKIP() << "set RPEG_TEST_DATA to a folder that holds datasets and stories260k";
    }
    data_ = data;
  }

  std::vector<Json> rows(const char* file) const {
    std::istringstream text(read_file(data_ / "datasets" / file));
    std::vector<Json> result;
    for (std::string line; std::getline(text, line);) {
      result.push_back(Json::parse(line));
    }
    return result;
  }

  fs::path data_;
};

TEST_F(Datasets, CountdownSolutionsSolveTheirPuzzles) {
  const VerifierSpec spec{VerifierKind::kCountdown};
  for (const Json& row : rows("countdown_500.jsonl")) {
    const auto solution = row.at("solution").get<std::string>();
    const std::string puzzle = Json{{"nums", row.at("nums")}, {"target", row.at("target")}}.dump();
    const std::string response = "... </think>\n<answer> " + solution + " </answer>";
    const std::string wrong = "<answer> " + solution + " + 1 - 1 </answer>";
    for (const std::string& answer : {solution, puzzle}) {
      EXPECT_EQ(verify(spec, {"", response, answer, true}), 1.0) << solution;
      EXPECT_EQ(verify(spec, {"", wrong, answer, true}), 0.0) << solution;
    }
  }
}

TEST_F(Datasets, SchoolProblemsAreVerifiedByTheirSolutions) {
  for (const Json& row : rows("gsm8k_test_500.jsonl")) {
    const auto solution = row.at("solution").get<std::string>();
    const auto answer = row.at("answer").get<std::string>();
    for (const VerifierKind kind : {VerifierKind::kGsm8k, VerifierKind::kMath}) {
      EXPECT_EQ(verify({kind}, {"", solution, answer, true}), 1.0) << solution;
      EXPECT_EQ(verify({kind}, {"", solution, answer + "1", true}), 0.0) << solution;
    }
  }
}

TEST_F(Datasets, PreferencePairsOfMessagesAreEncoded) {
  const Tokenizer tokenizer = Tokenizer::load(data_ / "stories260k");
  const auto stop = load_stop_tokens(data_ / "stories260k");
  ASSERT_FALSE(stop.empty());
  DatasetOptions options;
  options.path = data_ / "datasets/dpo_en_300.jsonl";
  options.prompt_field = "messages";
  options.prompt_template = "User: {messages}\nAssistant:";
  const auto pairs = load_preferences(options, tokenizer, stop);
  const auto expected = rows("dpo_en_300.jsonl");
  ASSERT_EQ(pairs.size(), expected.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const auto question = expected[i].at("messages").back().at("content").get<std::string>();
    EXPECT_EQ(pairs[i].prompt, "User: " + question + "\nAssistant:");
    EXPECT_EQ(pairs[i].chosen.back(), stop.front());
    EXPECT_EQ(pairs[i].rejected.back(), stop.front());
    EXPECT_NE(pairs[i].chosen, pairs[i].rejected);
  }
  options.max_prompt_tokens = 64;
  options.max_response_tokens = 128;
  options.over_long = OverLong::kTruncate;
  for (const PreferencePair& pair : load_preferences(options, tokenizer, stop)) {
    EXPECT_LE(pair.prompt_tokens.size(), 64U);
    EXPECT_LE(std::max(pair.chosen.size(), pair.rejected.size()), 128U);
  }
}

}  // namespace
}  // namespace rpeg
