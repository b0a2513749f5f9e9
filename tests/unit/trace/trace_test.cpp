#include "rpeg/trace/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "rpeg/base/error.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

fs::path fresh_directory(const std::string& name) {
  const fs::path path = test::test_directory() / name;
  fs::remove_all(path);
  return path;
}

TraceEvent event(int rank, std::int64_t iteration) {
  return {.iteration = iteration,
          .rank = rank,
          .instruction = 3,
          .kind = "send_weights",
          .vertex = "t_pi",
          .start_s = 0.25,
          .end_s = 0.5,
          .bytes = 1024,
          .peer = 1 - rank,
          .version = iteration + 1};
}

TEST(Trace, ReadsBackWhatItWroteByRankThenFileOrder) {
  const fs::path directory = fresh_directory("round_trip");
  TraceWriter second(directory, 1);
  TraceWriter first(directory, 0);
  second.add(event(1, 0));
  first.add(event(0, 0));
  first.add(event(0, 1));
  first.close();
  second.close();
  EXPECT_EQ(load_trace(directory),
            (std::vector<TraceEvent>{event(0, 0), event(0, 1), event(1, 0)}));
}

TEST(Trace, NamesTheBrokenLine) {
  const fs::path directory = fresh_directory("broken");
  TraceWriter writer(directory, 0);
  writer.add(event(0, 0));
  writer.close();
  std::ofstream(directory / "rank_0.jsonl", std::ios::app) << "{\"iteration\": 1}\n";
  try {
    load_trace(directory);
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kTrace);
    EXPECT_NE(error.where().find("rank_0.jsonl:2"), std::string::npos);
  }
}

TEST(Trace, RefusesADirectoryWithoutTraces) {
  EXPECT_THROW(load_trace(fresh_directory("absent")), Error);
}

TEST(Trace, ReportsAFullDisk) {
  const fs::path directory = fresh_directory("full");
  fs::create_directories(directory);
  fs::create_symlink("/dev/full", directory / "rank_0.jsonl");
  TraceWriter writer(directory, 0);
  writer.add(event(0, 0));
  try {
    writer.close();
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
  }
}

}  // namespace
}  // namespace rpeg
