#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rpeg/base/file.h"
#include "rpeg/hf/tokenizer.h"

namespace rpeg {
namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path data_directory() {
  return std::filesystem::path(RPEG_SOURCE_DIR) / "tests/golden/data";
}

/// Answers of the reference implementation, recorded by scripts/make_tokenizer_golden.py.
class RecordedTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(RecordedTokenizer, EncodesAndDecodesAsRecorded) {
  const auto directory = data_directory() / GetParam();
  const Tokenizer tokenizer = Tokenizer::load(directory);
  const auto golden = nlohmann::json::parse(read_file(directory / "golden.json"));
  ASSERT_GE(golden.at("cases").size(), 50U);
  for (const auto& item : golden.at("cases")) {
    const auto text = item.at("text").get<std::string>();
    SCOPED_TRACE(item.at("text").dump());
    const auto ids = item.at("ids").get<Ids>();
    EXPECT_EQ(tokenizer.encode(text), ids);
    EXPECT_EQ(tokenizer.encode(text, false), item.at("plain_ids").get<Ids>());
    EXPECT_EQ(tokenizer.decode(ids), item.at("decoded").get<std::string>());
    EXPECT_EQ(tokenizer.decode(ids, false), item.at("decoded_all").get<std::string>());
    const auto tail = std::span(ids).subspan(ids.size() / 2);
    EXPECT_EQ(tokenizer.decode(tail), item.at("decoded_tail").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(,
                         RecordedTokenizer,
                         testing::Values("bytelevel",
                                         "bytelevel_nfc",
                                         "bytelevel_gpt2",
                                         "metaspace_always",
                                         "metaspace_first",
                                         "unknown_fused",
                                         "unknown_single"),
                         [](const auto& suite) { return std::string(suite.param); });

TEST(StoriesTokenizer, EncodesAsRecordedAndDecodesToTheText) {
  const char* root = std::getenv("RPEG_TEST_DATA");
  if (root == nullptr) {
    GTEST_SKIP() << "set RPEG_TEST_DATA to a directory with stories260k/tokenizer_golden.json";
  }
  const auto directory = std::filesystem::path(root) / "stories260k";
  const Tokenizer tokenizer = Tokenizer::load(directory);
  const auto golden = nlohmann::json::parse(read_file(directory / "tokenizer_golden.json"));
  ASSERT_EQ(golden.at("cases").size(), 82U);
  for (const auto& item : golden.at("cases")) {
    const auto text = item.at("text").get<std::string>();
    SCOPED_TRACE(item.at("text").dump());
    const Ids ids = tokenizer.encode(text);
    EXPECT_EQ(ids, item.at("ids").get<Ids>());
    if (text.find("▁") == std::string::npos) {  // which decodes to a space
      EXPECT_EQ(tokenizer.decode(ids), text);
    }
  }
  EXPECT_EQ(tokenizer.vocab_size(), 512);
  EXPECT_EQ(load_stop_tokens(directory), (Ids{1, 2}));
}

}  // namespace
}  // namespace rpeg
