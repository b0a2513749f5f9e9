#include "rpeg/yaml/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

std::string parse_error(const std::string& text) {
  return error_of([&] { parse_yaml(text, "f.yaml"); });
}

/// Reads {count: integer 1..10 required, rate: number, name: string, flag: boolean, mode: a|bee}.
std::string read_error(const std::string& text) {
  return error_of([&] {
    Faults faults("f.yaml");
    const YamlValue root = parse_yaml(text, "f.yaml");
    MapReader reader(root, "", faults);
    MapReader top = reader.map("top", true);
    top.integer("count", {1, 10});
    top.number("rate", {0, 1e18}, 1.0);
    top.string("name", "");
    top.boolean("flag", false);
    top.choice("mode", {"alpha", "beta"}, 0);
    top.finish();
    reader.finish();
    faults.throw_if_any();
  });
}

TEST(ParseYaml, KeepsKindsOrderAndPositions) {
  const YamlValue root = parse_yaml("b: 1\na:\n  - \"5\"\n  - {c: ~}\n", "f.yaml");
  ASSERT_EQ(root.fields.size(), 2u);
  EXPECT_EQ(root.fields[0].key, "b");
  const YamlValue* a = root.find("a");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->key_line, 2);
  EXPECT_EQ(a->key_column, 1);
  ASSERT_EQ(a->items.size(), 2u);
  EXPECT_TRUE(a->items[0].quoted);
  EXPECT_EQ(a->items[0].line, 3);
  EXPECT_EQ(a->items[0].column, 5);
  EXPECT_EQ(a->items[1].fields[0].value.kind, YamlValue::Kind::kNull);
}

TEST(ParseYaml, RefusesWhatIsNotStrictYaml) {
  EXPECT_THAT(parse_error("a: [1, 2\n"), HasSubstr("f.yaml:"));
  EXPECT_THAT(parse_error("a: 1\nb: 2\na: 3\n"), HasSubstr("f.yaml:3:1: duplicate key `a`"));
  EXPECT_THAT(parse_error("a: 1\nb: 2\na: 3\n"), HasSubstr("line 1"));
  EXPECT_THAT(parse_error("a:\n\tb: 1\n"), HasSubstr("f.yaml:2:1: a tab in the indentation"));
  EXPECT_THAT(parse_error("a: &x 1\n"), HasSubstr("anchors"));
  EXPECT_THAT(parse_error("a: &x {b: 1}\n"), HasSubstr("anchors"));
  EXPECT_THAT(parse_error("a: 1\n---\nb: 2\n"), HasSubstr("more than one YAML document"));
  EXPECT_THAT(parse_error("[a]: 1\n"), HasSubstr("a key must be a word"));
  EXPECT_THAT(parse_error("a: !!int 1\n"), HasSubstr("tags"));
  EXPECT_THAT(parse_error(std::string("a: 1\n\x04 b: 2\n")), HasSubstr("control character"));
  EXPECT_THAT(parse_error(std::string(5000, '[')), HasSubstr("f.yaml:"));
}

TEST(MapReader, NamesPlaceKeyFoundAndExpected) {
  EXPECT_THAT(read_error("top: {count: 3}\n"), HasSubstr("no error"));
  EXPECT_THAT(read_error("top:\n  count: -3\n"),
              HasSubstr("f.yaml:2:10: `top.count`: expected an integer from 1 to 10, found -3"));
  EXPECT_THAT(read_error("top: {count: 1.5}"), HasSubstr("expected an integer"));
  EXPECT_THAT(read_error("top: {count: \"3\"}"), HasSubstr("found \"3\""));
  EXPECT_THAT(read_error("top: {count: 010}"), HasSubstr("expected an integer"));
  EXPECT_THAT(read_error("top: {count: 99999999999999999999}"), HasSubstr("expected an integer"));
  EXPECT_THAT(read_error("top: {count: 1, rate: fast}"), HasSubstr("expected a number"));
  EXPECT_THAT(read_error("top: {count: 1, rate: nan}"), HasSubstr("expected a number"));
  EXPECT_THAT(read_error("top: {count: 1, rate: 1e999}"), HasSubstr("expected a number"));
  EXPECT_THAT(read_error("top: {count: 1, flag: yes}"), HasSubstr("expected true or false"));
  EXPECT_THAT(read_error("top: {count: 1, name: 5}"), HasSubstr("put it in quotes"));
  EXPECT_THAT(read_error("top: {count: 1, name: [a]}"), HasSubstr("found a sequence"));
  EXPECT_THAT(read_error("top: {count: 1, mode: bet}"),
              HasSubstr("expected one of alpha, beta, found \"bet\"; did you mean `beta`?"));
  EXPECT_THAT(read_error("top: {rate: 1}"), HasSubstr("`top.count`: required key is missing"));
  EXPECT_THAT(read_error("top: {count: }"), HasSubstr("`top.count`: required key is missing"));
}

TEST(MapReader, SuggestsTheNearestKeyAtTheKeysPlace) {
  EXPECT_THAT(read_error("top:\n  count: 1\n  namee: x\n"),
              HasSubstr("f.yaml:3:3: unknown key `top.namee`; did you mean `name`?"));
  EXPECT_THAT(read_error("top: {count: 1}\nsomething:\n  - 1\n"),
              HasSubstr("f.yaml:2:1: unknown key `something`"));
}

TEST(MapReader, ReportsAllFaultsButNotTheConsequencesOfOne) {
  const std::string all = read_error("top: {count: 0, rate: x, extra: 1}");
  EXPECT_THAT(all, HasSubstr("3 faults"));
  EXPECT_THAT(all, HasSubstr("top.count"));
  EXPECT_THAT(all, HasSubstr("top.rate"));
  EXPECT_THAT(all, HasSubstr("top.extra"));
  EXPECT_EQ(read_error("top: 5"), "f.yaml:1:6: `top`: expected a map of keys and values, found 5");
  EXPECT_EQ(read_error("{}"), "f.yaml:1:1: `top`: required key is missing");
}

TEST(MapReader, ShowsAHundredFaultsAndCountsTheOthers) {
  std::string text;
  for (int i = 0; i < 250; ++i) text += "key" + std::to_string(i) + ": 1\n";
  Faults faults("f.yaml");
  const YamlValue root = parse_yaml(text, "f.yaml");
  MapReader reader(root, "", faults);
  reader.finish();
  try {
    faults.throw_if_any();
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr("250 faults:"));
    EXPECT_THAT(error.message(), HasSubstr("unknown key `key99`"));
    EXPECT_THAT(error.message(), HasSubstr("\n... and 150 more"));
  }
}

TEST(MapReader, AcceptsEverySpellingOfANumber) {
  Faults faults("f");
  const YamlValue root = parse_yaml("{a: 1e3, b: 1.0e-08, c: +5, d: .5, e: -0, f: 2.}", "f");
  MapReader reader(root, "", faults);
  const Bounds any{-1e300, 1e300};
  EXPECT_EQ(reader.number("a", any), 1000.0);
  EXPECT_EQ(reader.number("b", any), 1e-8);
  EXPECT_EQ(reader.integer("c", any), 5);
  EXPECT_EQ(reader.number("d", any), 0.5);
  EXPECT_EQ(reader.integer("e", any), 0);
  EXPECT_EQ(reader.number("f", any), 2.0);
  reader.finish();
  EXPECT_TRUE(faults.empty());
}

TEST(ParseYaml, NeverCrashesOnMutatedText) {
  const std::string seed_text =
      "a:\n  - {b: [1, 2], \"c\": 'd'}\n  - |\n    text\ne: >\n  f\n? g\n: h\n";
  const std::string alphabet = "{}[]:,-#&*!|>'\"%@` \n\t?~a1\\\x01\x7f\xff";
  Rng rng(11);
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed_text;
    for (std::int64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
      text[at] =
          alphabet[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(alphabet.size())))];
    }
    try {
      parse_yaml(text, "f");
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUsage) << text;
    }
  }
}

}  // namespace
}  // namespace rpeg
