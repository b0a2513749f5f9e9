#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "rpeg/base/text.h"
#include "rpeg/base/units.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

TEST(Philox, MatchesKnownAnswersOfRandom123) {
  // Known-answer vectors of the Random123 distribution (kat_vectors, philox4x32 10).
  EXPECT_EQ(philox(0, {0, 0, 0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(0xffffffffffffffffULL, {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Rng, IsUniformAndReproducible) {
  Rng a(7);
  Rng b(7);
  double sum = 0.0;
  for (int i = 0; i < 10000; ++i) {
    const double x = a.uniform();
    ASSERT_EQ(x, b.uniform());
    sum += x;
  }
  EXPECT_NEAR(sum / 10000.0, 0.5, 0.02);  // standard error 0.29 / 100
}

TEST(Sha256, MatchesFipsExamples) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1000, 'a')),
            "41edece42d63e8d9bf515a9ba6932e1c20cbc9f5a5d134645adb5db1b9737ea3");
}

TEST(WriteFileAtomic, ReplacesContentAndLeavesNoTemporary) {
  const auto directory = test::test_directory();
  std::filesystem::remove_all(directory);
  write_file_atomic(directory / "sub" / "a.txt", "one");
  write_file_atomic(directory / "sub" / "a.txt", "two");
  EXPECT_EQ(read_file(directory / "sub" / "a.txt"), "two");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory / "sub"), {}), 1);
}

TEST(WriteFileAtomic, FollowsASymbolicLink) {
  const std::filesystem::path folder = test::test_directory();
  write_file_atomic(folder / "real", "old");
  std::filesystem::create_symlink("real", folder / "link");
  write_file_atomic(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_file(folder / "real"), "new");
}

TEST(WriteFileAtomic, WritesIntoAPipeInsteadOfReplacingIt) {
  const std::filesystem::path pipe = test::test_directory() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write_file_atomic(pipe, "text");
  std::array<char, 8> buffer{};
  EXPECT_EQ(::read(reader, buffer.data(), buffer.size()), 4);
  ::close(reader);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST(WriteFileAtomic, RefusesADirectoryAsAUsageError) {
  try {
    write_file_atomic(test::test_directory(), "text");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
  }
}

TEST(WriteFileAtomic, NamesTheRegularFileThatIsNotADirectory) {
  const auto file = test::test_directory() / "rpeg_regular_file";
  std::ofstream(file) << "x";
  try {
    write_file_atomic(file / "below" / "a.txt", "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(error.message().find("rpeg_regular_file is a regular file"), std::string::npos);
  }
}

TEST(Nearest, SuggestsSlipsOnly) {
  EXPECT_EQ(nearest("stag_windw", {"t_init", "stag_window"}), "stag_window");
  EXPECT_EQ(nearest("gpro", {"ppo", "grpo", "dpo"}), "grpo");
  EXPECT_EQ(nearest("completely_else", {"t_init", "stag_window"}), "");
}

TEST(Units, PrintThreeDigitsWithPrefix) {
  EXPECT_EQ(format_flop_rate(4.4e14), "440 TFLOP/s");
  EXPECT_EQ(format_bandwidth(1.0 / 4.545e-12), "220 GB/s");
  EXPECT_EQ(format_seconds(7.8e-5), "78 us");
  EXPECT_EQ(format_exact(0.05), "0.05");
}

}  // namespace
}  // namespace rpeg
