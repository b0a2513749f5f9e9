#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/data/verifier.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A command that runs a script of the shell: the test's own program, not how commands are run.
VerifierSpec script(const std::string& text, double timeout_s = 20.0) {
  return {VerifierKind::kCommand, "", {"/bin/sh", "-c", text}, timeout_s};
}

std::vector<double> run(const VerifierSpec& spec, std::size_t count, std::string_view response) {
  return verify_batch(spec, std::vector<VerifierInput>(count, {"p", response, "a", true}));
}

std::string error_of(const VerifierSpec& spec, std::size_t count = 2) {
  try {
    run(spec, count, "r");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
    return error.what();
  }
  return "no error";
}

TEST(RewardCommand, ReadsOneObjectAndWritesOneNumberALine) {
  const auto copy = test::test_directory() / "seen.jsonl";
  const std::vector<VerifierInput> inputs = {{"2+2=", "it's \"4\"\n", "4", true},
                                             {"p", "b\xff", "", false}};
  EXPECT_EQ(verify_batch(script("cat > " + copy.string() + "; printf '1\\n -0.25\\r\\n'"), inputs),
            (std::vector<double>{1.0, -0.25}));
  EXPECT_EQ(read_file(copy),
            "{\"prompt\":\"2+2=\",\"response\":\"it's \\\"4\\\"\\n\",\"answer\":\"4\"}\n"
            "{\"prompt\":\"p\",\"response\":\"b\xEF\xBF\xBD\",\"answer\":\"\"}\n");
}

TEST(RewardCommand, RunsOnceABatchAndNotForNone) {
  const auto log = test::test_directory() / "runs";
  std::filesystem::remove(log);
  const VerifierSpec spec = script("echo run >> " + log.string() + "; sed 's/.*/1e-3/'");
  EXPECT_TRUE(run(spec, 0, "r").empty());
  EXPECT_FALSE(std::filesystem::exists(log));
  EXPECT_EQ(run(spec, 3, "r"), std::vector<double>(3, 1e-3));
  EXPECT_EQ(read_file(log), "run\n");
  EXPECT_EQ(verify(spec, {"p", "r", "a", true}), 1e-3);
}

TEST(RewardCommand, ArgumentsAreNotSeenByAShell) {
  const VerifierSpec spec{VerifierKind::kCommand, "", {"printf", "%s\\n", "$(echo 1)"}};
  EXPECT_THAT(error_of(spec, 1), HasSubstr("wrote \"$(echo 1)\" as line 1"));
}

TEST(RewardCommand, LargeBatchesDoNotBlock) {
  // Far more than the 64 kB that a pipe holds, in both directions.
  const std::string response(20000, 'x');
  EXPECT_EQ(run(script("while read -r line; do echo 0.5; done"), 5, response),
            std::vector<double>(5, 0.5));
  EXPECT_EQ(run(script("sed 's/.*/2/'"), 200, response), std::vector<double>(200, 2.0));
  const std::string digits(100, '0');
  EXPECT_EQ(run(script("sed 's/.*/3." + digits + "/'"), 3000, "r"), std::vector<double>(3000, 3.0));
}

TEST(RewardCommand, AProgramNeedNotReadItsInput) {
  const std::string response(1000000, 'x');
  EXPECT_EQ(run(script("exec 0<&-; echo 1; echo 2"), 2, response), (std::vector<double>{1.0, 2.0}));
  // The signal of the broken pipe reached nobody.
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
}

TEST(RewardCommand, FailuresNameCommandAndLine) {
  EXPECT_THAT(error_of(script("cat >/dev/null; exit 3")),
              AllOf(HasSubstr("/bin/sh -c cat"), HasSubstr("ended with exit code 3")));
  EXPECT_THAT(error_of(script("kill -TERM $$")), HasSubstr("killed by signal 15"));
  EXPECT_THAT(error_of(script("echo 1")), HasSubstr("wrote no line 2: 1 lines for 2 responses"));
  EXPECT_THAT(error_of(script("echo 1; echo one")), HasSubstr("wrote \"one\" as line 2"));
  EXPECT_THAT(error_of(script("echo 1; echo")), HasSubstr("wrote \"\" as line 2"));
  EXPECT_THAT(error_of(script("echo 1; echo nan")), HasSubstr("wrote \"nan\" as line 2"));
  EXPECT_THAT(error_of(script("echo inf; echo 1")), HasSubstr("wrote \"inf\" as line 1"));
  EXPECT_THAT(error_of(script("echo 1 2; echo 1")), HasSubstr("wrote \"1 2\" as line 1"));
  EXPECT_THAT(error_of(script("echo 1; echo 2; echo 3")), HasSubstr("wrote a line 3 after the 2"));
  EXPECT_THAT(error_of(script("exec yes 1")), HasSubstr("far more than one number"));
  EXPECT_THAT(error_of({VerifierKind::kCommand, "", {"/nonexistent/score"}}),
              AllOf(HasSubstr("cannot start /nonexistent/score"), HasSubstr("No such file")));
}

TEST(RewardCommand, SlowProgramsAreKilledWithTheirChildren) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of(script("sleep 30; echo 1", 0.2)), HasSubstr("did not end within 0.2 s"));
  EXPECT_THAT(error_of(script("sleep 30 & exec 0<&- 1>&-; sleep 30", 0.2)),
              HasSubstr("did not end within 0.2 s"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
}

TEST(RewardCommand, LeavesNoDescriptorsBehind) {
  const auto open_files = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  run(script("sed 's/.*/1/'"), 2, "r");
  const auto before = open_files();
  run(script("sed 's/.*/1/'"), 2, "r");
  (void)error_of(script("exit 1"));
  (void)error_of({VerifierKind::kCommand, "", {"/nonexistent/score"}});
  EXPECT_EQ(open_files(), before);
}

}  // namespace
}  // namespace rpeg
