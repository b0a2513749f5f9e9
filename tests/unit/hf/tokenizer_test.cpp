#include "rpeg/hf/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;
using testing::HasSubstr;

std::filesystem::path scratch(const std::string& name) { return test::test_directory() / name; }

Tokenizer load_text(const std::string& content) {
  const auto path = scratch(std::to_string(std::hash<std::string>{}(content)) + ".json");
  write_file_atomic(path, content);
  return Tokenizer::load(path);
}

Tokenizer load(const json& document) { return load_text(document.dump()); }

/// a, b, c and what they merge to: "ab" before "bc" before "abc".
json small() {
  return json::parse(R"({
    "added_tokens": [{"id": 9, "content": "<e>", "special": true, "normalized": false}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "fuse_unk": false,
              "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4, "abc": 5},
              "merges": ["a b", "b c", "ab c"]}})");
}

/// One token a character and no merges.
json characters() {
  json document = small();
  document["model"]["vocab"] = {{"S", 0}, {"E", 1}, {"U", 2}, {"1", 3}, {"2", 4}, {",", 5}};
  document["model"]["merges"] = json::array();
  document["model"]["unk_token"] = "U";
  document["added_tokens"] = {{{"id", 0}, {"content", "S"}, {"special", true}},
                              {{"id", 1}, {"content", "E"}, {"special", true}}};
  return document;
}

std::string message_of(const json& document) {
  try {
    (void)load(document);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.where(), HasSubstr(".json"));
    return error.message();
  }
  return "no error";
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  const Tokenizer tokenizer = load(small());
  EXPECT_EQ(tokenizer.encode("abc"), (Ids{5}));  // a b → ab, ab c → abc
  EXPECT_EQ(tokenizer.encode("bc"), (Ids{4}));   // b c
  EXPECT_EQ(tokenizer.encode("bbcab"), (Ids{1, 4, 3}));
  EXPECT_EQ(tokenizer.encode(""), Ids{});
}

TEST(Tokenizer, ReadsMergesAsPairs) {
  json document = small();
  document["model"]["merges"] = json::parse(R"([["a", "b"], ["b", "c"], ["ab", "c"]])");
  EXPECT_EQ(load(document).encode("abcbc"), (Ids{5, 4}));
}

TEST(Tokenizer, IgnoreMergesTakesAWholeWordFirst) {
  json document = small();
  document["model"]["merges"] = {"b c"};
  EXPECT_EQ(load(document).encode("abc"), (Ids{0, 4}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(load(document).encode("abc"), (Ids{5}));
}

TEST(Tokenizer, CharacterVocabularyNeedsNoMerges) {
  const Tokenizer tokenizer = load(characters());
  EXPECT_EQ(tokenizer.encode("1,2S"), (Ids{3, 5, 4, 0}));
  EXPECT_EQ(tokenizer.encode("1xy2"), (Ids{3, 2, 2, 4}));  // each unknown character is one U
  EXPECT_EQ(tokenizer.decode(Ids{3, 5, 4, 1}), "1,2");
  EXPECT_EQ(tokenizer.decode(Ids{3, 5, 4, 1}, false), "1,2E");
}

TEST(Tokenizer, CharactersWithoutTokenAreLeftOutWhereThereIsNoUnknown) {
  EXPECT_EQ(load(small()).encode("axb"), (Ids{3}));
}

TEST(Tokenizer, AnswersQuestionsAboutItsVocabulary) {
  const Tokenizer tokenizer = load(small());
  EXPECT_EQ(tokenizer.vocab_size(), 10);  // ids 6 to 8 have no token
  EXPECT_EQ(tokenizer.token_id("<e>"), 9);
  EXPECT_EQ(tokenizer.token_id("abc"), 5);
  EXPECT_EQ(tokenizer.token_id("x"), -1);
  EXPECT_EQ(tokenizer.decode(Ids{0, 7, 5000, -1, 1}), "ab");  // ids without token are left out
}

TEST(Tokenizer, TakesTheLongestAddedToken) {
  json document = small();
  document["added_tokens"].push_back({{"id", 10}, {"content", "<e><e>"}, {"special", true}});
  EXPECT_EQ(load(document).encode("<e><e><e>a"), (Ids{10, 9, 0}));
}

TEST(Tokenizer, DirectoryMeansTheFileInIt) {
  write_file_atomic(scratch("model") / "tokenizer.json", small().dump());
  EXPECT_EQ(Tokenizer::load(scratch("model")).vocab_size(), 10);
}

TEST(Tokenizer, LongTextsTakeAlmostLinearTime) {
  json document = small();
  document["model"]["vocab"] = {{"a", 0}};
  std::string token = "a";
  for (int id = 1; id <= 16; ++id) {  // a, aa, aaaa, … 65,536 times a
    document["model"]["merges"][static_cast<std::size_t>(id - 1)] = json::array({token, token});
    token += token;
    document["model"]["vocab"][token] = id + 10;
  }
  const Tokenizer tokenizer = load(document);
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = tokenizer.encode(std::string((1U << 18) + 1, 'a'));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(ids, (Ids{26, 26, 26, 26, 0}));
  EXPECT_LT(taken.count(), 20.0);  // a quadratic algorithm needs minutes
}

TEST(Tokenizer, RefusesByNameWhatItDoesNotSupport) {
  const auto changed = [](const std::string& pointer, const json& value) {
    json document = small();
    document[json::json_pointer(pointer)] = value;
    return message_of(document);
  };
  EXPECT_THAT(changed("/model/type", "Unigram"), HasSubstr("model.type: model Unigram is not"));
  EXPECT_THAT(changed("/model/dropout", 0.1), HasSubstr("model.dropout"));
  EXPECT_THAT(changed("/model/end_of_word_suffix", "</w>"), HasSubstr("end_of_word_suffix"));
  EXPECT_THAT(changed("/normalizer", {{"type", "NFKC"}}), HasSubstr("normalizer NFKC"));
  EXPECT_THAT(changed("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
              HasSubstr("pre-tokenizer BertPreTokenizer"));
  EXPECT_THAT(changed("/decoder", {{"type", "WordPiece"}}), HasSubstr("decoder WordPiece"));
  EXPECT_THAT(changed("/post_processor", {{"type", "BertProcessing"}}),
              HasSubstr("post-processor BertProcessing"));
  EXPECT_THAT(changed("/added_tokens/0/single_word", true), HasSubstr("single_word"));
}

TEST(Tokenizer, ErrorsNameThePart) {
  const auto changed = [](const std::string& pointer, const json& value) {
    json document = small();
    document[json::json_pointer(pointer)] = value;
    return message_of(document);
  };
  EXPECT_THAT(changed("/model/merges/1", "b z"), HasSubstr("model.merges[1]: token 'z' is not in"));
  EXPECT_THAT(changed("/model/merges/1", "c a"), HasSubstr("token 'ca' is not in"));
  EXPECT_THAT(changed("/model/merges/1", "abc"), HasSubstr("model.merges[1]"));
  EXPECT_THAT(changed("/model/vocab/b", "1"), HasSubstr("model.vocab.b: an integer"));
  EXPECT_THAT(changed("/model/vocab/b", -1), HasSubstr("-1 is not a token id"));
  EXPECT_THAT(changed("/model/vocab/b", 0), HasSubstr("'a' has id 0 already"));
  EXPECT_THAT(changed("/added_tokens/0/id", 3), HasSubstr("'ab' has id 3 already"));
  EXPECT_THAT(changed("/model/unk_token", "U"), HasSubstr("model.unk_token: token 'U'"));
  EXPECT_THAT(changed("/model/byte_fallback", 1), HasSubstr("model.byte_fallback: true or false"));
  EXPECT_THAT(
      changed("/pre_tokenizer",
              {{"type", "Split"}, {"pattern", {{"Regex", "a("}}}, {"behavior", "Isolated"}}),
      HasSubstr("pre_tokenizer.pattern.Regex: regular expression 'a('"));
}

TEST(Tokenizer, BytesOfFallbackMustBeComplete) {
  json document = small();
  document["model"]["byte_fallback"] = true;
  document["model"]["vocab"]["<0x41>"] = 7;
  EXPECT_THAT(message_of(document), HasSubstr("of which 1 are there"));
}

TEST(Tokenizer, BrokenJsonIsAnErrorOfTheFile) {
  try {
    (void)load_text("{\"model\": {");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.message(), HasSubstr("line 1"));
  }
}

/// A file with every supported part, for the fuzz tests.
json everything() {
  json document = characters();
  document["normalizer"] = json::parse(
      R"({"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Prepend", "prepend": "_"},
          {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]})");
  document["pre_tokenizer"] = json::parse(
      R"({"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": true},
          {"type": "Split", "pattern": {"Regex": "\\s+|1"}, "behavior": "Isolated", "invert": false},
          {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first", "split": true},
          {"type": "ByteLevel", "add_prefix_space": true, "use_regex": true}]})");
  document["post_processor"] = json::parse(
      R"({"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "S"}}, {"Sequence": {"id": "A"}}],
          "special_tokens": {"S": {"id": "S", "ids": [0], "tokens": ["S"]}}})");
  document["decoder"] = json::parse(
      R"({"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "ByteLevel"},
          {"type": "Strip", "content": " ", "start": 1, "stop": 0},
          {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first"}, {"type": "Fuse"}]})");
  document["model"]["vocab"]["12"] = 6;
  document["model"]["merges"] = {"1 2"};
  return document;
}

/// Loads what may be broken; uses it when it is not.
void try_to_use(const std::string& content) {
  const auto path = scratch("fuzz.json");
  // Thousands of times, so without fsync, and not over an old file, which ext4 flushes as well.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << content;
  try {
    const Tokenizer tokenizer = Tokenizer::load(path);
    const Ids ids = tokenizer.encode("S 12\xff é😀,1");
    (void)tokenizer.decode(ids);
    (void)tokenizer.vocab_size();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
  }
}

TEST(TokenizerFuzz, ChangedBytesNeverCrash) {
  const std::string good = everything().dump();
  ASSERT_NO_THROW((void)load_text(good));
  Rng rng(11);
  for (int round = 0; round < 1500; ++round) {
    std::string bad = good;
    for (std::int64_t change = rng.below(4) + 1; change > 0; --change) {
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(bad.size())));
      bad[at] = rng.below(2) == 0 ? static_cast<char>(rng.below(256)) : "{}[]\",:0-"[rng.below(9)];
    }
    try_to_use(rng.below(8) == 0 ? bad.substr(0, static_cast<std::size_t>(rng.below(500))) : bad);
  }
}

TEST(TokenizerFuzz, ChangedValuesNeverCrash) {
  const json good = everything();
  const std::vector<json> values = {nullptr,
                                    true,
                                    -1,
                                    3,
                                    1e300,
                                    std::uint64_t{1} << 63,
                                    2147483647,
                                    "",
                                    "Sequence",
                                    "▁",
                                    json::array(),
                                    json::array({json::array()}),
                                    json::object(),
                                    good["normalizer"],
                                    good["model"]};
  const json leaves = good.flatten();
  for (const auto& [pointer, leaf] : leaves.items()) {
    // Replaces the leaf and each part that holds it.
    for (auto at = json::json_pointer(pointer); !at.empty(); at = at.parent_pointer()) {
      for (const json& value : values) {
        json bad = good;
        bad[at] = value;
        try_to_use(bad.dump());
      }
    }
  }
}

/// The document `small` with `value` (JSON text) in place of what `key` holds.
std::string small_with(const std::string& key, const std::string& value) {
  const std::string document = small().dump();
  const std::string null_part = "\"" + key + "\":null";
  const std::size_t at = document.find(null_part);
  return document.substr(0, at) + "\"" + key + "\":" + value +
         document.substr(at + null_part.size());
}

void expect_refused(const std::string& content, const std::string& complaint) {
  try {
    (void)load_text(content);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_THAT(error.message(), HasSubstr(complaint));
  }
}

TEST(TokenizerFuzz, DeepNestingIsRefused) {
  std::string sequences = R"({"type":"NFC"})";
  for (int depth = 0; depth < 2000; ++depth) {
    sequences = R"({"type":"Sequence","normalizers":[)" + sequences + "]}";
  }
  expect_refused(small_with("normalizer", sequences), "nested too deeply");
  const std::string arrays = std::string(300'000, '[') + std::string(300'000, ']');
  expect_refused(small_with("normalizer", arrays), "normalizer: an object was expected");
  const std::string split =
      R"({"type":"Split","pattern":{"String":" "},"behavior":)" + arrays + "}";
  expect_refused(small_with("pre_tokenizer", split), "pre_tokenizer.behavior: a string");
  expect_refused(small_with("dropout", arrays), "model.dropout");
  const auto directory = scratch("deep");
  write_file_atomic(directory / "config.json", R"({"eos_token_id": [)" + arrays + "]}");
  EXPECT_THROW((void)load_stop_tokens(directory), Error);
}

TEST(StopTokens, ComeFromTheGenerationConfigFirst) {
  const auto directory = scratch("stop");
  std::filesystem::remove_all(directory);
  EXPECT_EQ(load_stop_tokens(directory), Ids{});
  write_file_atomic(directory / "config.json", R"({"eos_token_id": 2})");
  EXPECT_EQ(load_stop_tokens(directory), (Ids{2}));
  write_file_atomic(directory / "generation_config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_EQ(load_stop_tokens(directory), (Ids{1, 2}));
  write_file_atomic(directory / "generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(load_stop_tokens(directory), (Ids{2}));
  write_file_atomic(directory / "generation_config.json", R"({"eos_token_id": "x"})");
  EXPECT_THROW((void)load_stop_tokens(directory), Error);
}

}  // namespace
}  // namespace rpeg
