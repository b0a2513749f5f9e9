#include "rpeg/trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

fs::path fresh_directory(const std::string& name) {
  const fs::path path = test::test_directory() / name;
  fs::remove_all(path);
  return path;
}

TraceEvent event(int rank, std::int64_t iteration) {
  const double start_s = 0.25 + static_cast<double>(iteration);
  return {.iteration = iteration,
          .rank = rank,
          .instruction = 3,
          .kind = "send_weights",
          .vertex = "t_pi->g_pi",
          .start_s = start_s,
          .end_s = start_s + 0.5,
          .bytes = 1024,
          .peer = 1 - rank,
          .version = iteration + 1,
          .written = -1,
          .waited_s = 0.125};
}

TracedRollouts rollout(int rank) {
  return {.iteration = 1,
          .rank = rank,
          .instruction = 0,
          .sequences = {{4, 10, 3}, {5, 10, 16}},
          .verifier_s = 0.0625};
}

/// Two ranks with a few events and rollouts each.
fs::path write_two(const std::string& name) {
  const fs::path directory = fresh_directory(name);
  for (const int rank : {1, 0}) {
    TraceWriter writer(directory, {rank, 2, "abc", {}});
    for (int i = 0; i < 4; ++i) {
      writer.add(event(rank, i));
    }
    writer.add(rollout(rank));
    writer.close({.at_s = 5.0, .offset_s = 0.0, .error_s = 1e-5});
  }
  return directory;
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
  }
  return lines;
}

void write_lines(const fs::path& path, const std::vector<std::string>& lines) {
  std::ofstream out(path, std::ios::trunc);
  for (const std::string& line : lines) {
    out << line << '\n';
  }
}

TEST(Trace, ReadsBackWhatItWroteByRankThenFileOrder) {
  const Trace trace = load_trace(write_two("round_trip"));
  EXPECT_TRUE(trace.faults.empty());
  ASSERT_EQ(trace.ranks.size(), 2U);
  for (int rank = 0; rank < 2; ++rank) {
    const RankTrace& mine = trace.ranks[static_cast<std::size_t>(rank)];
    EXPECT_EQ(mine.rank, rank);
    EXPECT_EQ(mine.ranks, 2);
    EXPECT_EQ(mine.plan_digest, "abc");
    EXPECT_TRUE(mine.complete);
    EXPECT_EQ(mine.clock_error_s, 1e-5);
    EXPECT_EQ(
        mine.events,
        (std::vector<TraceEvent>{event(rank, 0), event(rank, 1), event(rank, 2), event(rank, 3)}));
    EXPECT_EQ(mine.rollouts, std::vector<TracedRollouts>{rollout(rank)});
  }
  EXPECT_EQ(all_events(trace).size(), 8U);
  const fs::path copy = fresh_directory("copy");
  save_trace(trace, copy);
  const Trace again = load_trace(copy);
  EXPECT_TRUE(again.faults.empty());
  EXPECT_EQ(all_events(again), all_events(trace));
  EXPECT_EQ(again.ranks[1].rollouts, trace.ranks[1].rollouts);
}

TEST(Trace, EveryLineIsAJsonObject) {
  for (const std::string& line : lines_of(write_two("json") / "rank_0.jsonl")) {
    EXPECT_TRUE(nlohmann::json::parse(line).is_object());
  }
}

/// 10 ms of drift over the 5 s between the two measurements: 2 ms a second.
TEST(Trace, CorrectsTheClockBetweenItsTwoMeasurements) {
  const fs::path directory = fresh_directory("drift");
  TraceWriter writer(directory, {1, 2, "", {.at_s = 0.0, .offset_s = 0.0, .error_s = 2e-5}});
  writer.add(event(1, 2));  // 2.25 to 2.75, reached at 2.125
  writer.close({.at_s = 5.0, .offset_s = 0.010, .error_s = 1e-5});
  const RankTrace rank = load_trace(directory).ranks.at(0);
  EXPECT_NEAR(rank.events[0].start_s, 2.25 + 0.0045, 1e-12);
  EXPECT_NEAR(rank.events[0].end_s, 2.75 + 0.0055, 1e-12);
  EXPECT_NEAR(rank.events[0].waited_s, 0.125 * 1.002, 1e-12);
  EXPECT_EQ(rank.clock_error_s, 2e-5);
}

TEST(Trace, NamesTheLineThatIsMissingMovedOrAltered) {
  const fs::path path = write_two("lines") / "rank_0.jsonl";
  const std::vector<std::string> good = lines_of(path);
  ASSERT_EQ(good.size(), 7U);
  const auto faults = [&](const std::vector<std::string>& lines) {
    write_lines(path, lines);
    std::string text;
    for (const TraceViolation& fault : load_trace(path.parent_path()).faults) {
      EXPECT_EQ(fault.rule, "file");
      text += fault.message + "\n";
    }
    return text;
  };
  EXPECT_EQ(faults(good), "");
  std::vector<std::string> lines = good;
  lines.erase(lines.begin() + 2);
  EXPECT_THAT(faults(lines), HasSubstr("rank_0.jsonl:3: line number 3 where 2 was due"));
  lines = good;
  std::swap(lines[2], lines[3]);
  EXPECT_THAT(faults(lines), HasSubstr("rank_0.jsonl:3: line number 3 where 2 was due"));
  lines = good;
  lines[4].replace(lines[4].find("1024"), 4, "1025");
  EXPECT_THAT(faults(lines),
              HasSubstr("rank_0.jsonl:5: the line or the one before it was altered"));
  lines = good;
  lines[1] = "{\"iteration\": 1}";
  EXPECT_THAT(faults(lines), HasSubstr("rank_0.jsonl:2: no line of a trace"));
  lines = good;
  lines.pop_back();
  EXPECT_THAT(faults(lines), HasSubstr("the trace of rank 0 is not complete"));
  lines = good;
  lines.push_back(good[2]);
  EXPECT_THAT(faults(lines), HasSubstr("a record behind the end record"));
}

TEST(Trace, ToleratesARankThatWasKilledWhileItWrote) {
  const fs::path path = write_two("killed") / "rank_1.jsonl";
  const std::string whole = read_file(path);
  for (std::size_t size = 0; size < whole.size(); size += 5) {
    std::ofstream(path, std::ios::trunc | std::ios::binary) << whole.substr(0, size);
    const Trace trace = load_trace(path.parent_path());
    ASSERT_EQ(trace.faults.size(), 1U) << size;
    EXPECT_THAT(trace.faults[0].message, HasSubstr("the trace of rank 1 is not complete"));
  }
}

TEST(Trace, FindsEveryChangedByte) {
  const fs::path path = write_two("bytes") / "rank_1.jsonl";
  const std::string whole = read_file(path);
  Rng rng(5);
  for (int i = 0; i < 300; ++i) {
    std::string changed = whole;
    const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(whole.size())));
    changed[at] = static_cast<char>(changed[at] ^ (1 << rng.below(7)));
    std::ofstream(path, std::ios::trunc | std::ios::binary) << changed;
    EXPECT_FALSE(load_trace(path.parent_path()).faults.empty()) << "byte " << at;
  }
}

TEST(Trace, RefusesADirectoryWithoutTraces) {
  EXPECT_THROW(load_trace(fresh_directory("absent")), Error);
}

TEST(Trace, ReportsAFullDiskWhenItIsFull) {
  // Not at the end of a run of many hours: the start record is the first write that fails.
  const fs::path directory = fresh_directory("full");
  fs::create_directories(directory);
  fs::create_symlink("/dev/full", directory / "rank_0.jsonl");
  try {
    TraceWriter writer(directory, {});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    EXPECT_THAT(error.what(), HasSubstr("rank_0.jsonl: is the disk full?"));
  }
}

}  // namespace
}  // namespace rpeg
