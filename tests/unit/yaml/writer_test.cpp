#include "rpeg/yaml/writer.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "rpeg/base/rng.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {
namespace {

TEST(YamlWriter, WritesMapsSequencesAndComments) {
  YamlWriter writer;
  writer.field("schema", "rpeg-test/1");
  writer.comment("about");
  writer.begin_map("a");
  writer.field("x", 1.5, "why");
  writer.begin_sequence("list");
  writer.begin_item();
  writer.field("id", "one");
  writer.field("count", std::int64_t{3});
  writer.end_item();
  writer.raw_item("{id: two}");
  writer.end_sequence();
  writer.end_map();
  writer.raw("flow", yaml_flow({"1", "2"}));
  writer.field("flag", true);
  EXPECT_EQ(writer.text(),
            "schema: rpeg-test/1\n"
            "# about\n"
            "a:\n"
            "  x: 1.5  # why\n"
            "  list:\n"
            "    - id: one\n"
            "      count: 3\n"
            "    - {id: two}\n"
            "flow: [1, 2]\n"
            "flag: true\n");
  const YamlValue root = parse_yaml(writer.text(), "f");
  EXPECT_EQ(root.find("a")->find("list")->items[1].find("id")->scalar, "two");
}

TEST(YamlWriter, WritesAnEmptySequenceAsOne) {
  YamlWriter writer;
  writer.begin_sequence("none");
  writer.end_sequence();
  writer.begin_sequence("items");
  writer.begin_item();
  writer.begin_sequence("inner");
  writer.end_sequence();
  writer.end_item();
  writer.end_sequence();
  EXPECT_EQ(writer.text(), "none: []\nitems:\n  - inner: []\n");
}

TEST(YamlScalar, QuotesWhatWouldBeReadAsSomethingElse) {
  EXPECT_EQ(yaml_scalar("plans/a_b-1.yaml"), "plans/a_b-1.yaml");
  EXPECT_EQ(yaml_scalar("t_pi->g_pi"), "t_pi->g_pi");
  for (const char* text :
       {"",    "no",  "Yes",        "null", "~",  "5",   "1e3", "a: b", "a #b", "- a", "it's",
        "x,y", "[a]", "2026-01-01", " a",   "a ", "...", "NaN", "*a",   "&a",   "%a"}) {
    EXPECT_EQ(yaml_scalar(text).front(), '"') << text;
  }
}

TEST(YamlScalar, TextReadsBackEqual) {
  const std::string alphabet = "ab1_ .:#-,[]{}'\"\\\n\t~%@&*!|>?=\xc3\xa4";
  Rng rng(3);
  for (int round = 0; round < 5000; ++round) {
    std::string text;
    for (std::int64_t n = rng.below(8); n > 0; --n) {
      const auto at =
          static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(alphabet.size() - 2)));
      text += alphabet[at];
    }
    for (const std::string& document :
         {"k: " + yaml_scalar(text) + "\n", "{k: " + yaml_scalar(text) + "}"}) {
      const YamlValue root = parse_yaml(document, "f");
      ASSERT_EQ(root.find("k")->kind, YamlValue::Kind::kScalar) << document;
      ASSERT_EQ(root.find("k")->scalar, text) << document;
    }
  }
}

TEST(YamlScalar, NumbersReadBackEqual) {
  EXPECT_EQ(yaml_scalar(4.4e14), "4.4e+14");
  EXPECT_EQ(yaml_scalar(1e-8), "1.0e-08");
  EXPECT_EQ(yaml_scalar(0.05), "0.05");
  EXPECT_EQ(yaml_scalar(64.0), "64");
  Rng rng(5);
  Faults faults("f");
  for (int round = 0; round < 20000; ++round) {
    const auto value = std::bit_cast<double>(rng.next());
    if (std::isfinite(value) && std::abs(value) > 1e-300) {
      const YamlValue root = parse_yaml("k: " + yaml_scalar(value), "f");
      ASSERT_EQ(yaml_number(*root.find("k"), "k", faults, {-HUGE_VAL, HUGE_VAL}), value);
    }
  }
  EXPECT_TRUE(faults.empty());
}

TEST(WriteProvenance, IsReadable) {
  YamlWriter writer;
  write_provenance(writer,
                   {"rpeg-x",
                    "0.1.0",
                    "2026-01-01T00:00:00Z",
                    "host",
                    "rpeg-x --a \"b\"",
                    {{"in.yaml", "00ff"}}});
  const YamlValue root = parse_yaml(writer.text(), "f");
  const YamlValue* block = root.find("provenance");
  EXPECT_EQ(block->find("command")->scalar, "rpeg-x --a \"b\"");
  EXPECT_EQ(block->find("inputs")->items[0].find("sha256")->scalar, "00ff");
}

}  // namespace
}  // namespace rpeg
