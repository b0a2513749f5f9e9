#include "rpeg/hf/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"
#include "support/test_directory.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

/// A safetensors file with this header and this many bytes of data (0, 1, 2 …).
std::string file_bytes(const std::string& header, std::size_t data_bytes) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>(std::uint64_t{header.size()} >> shift & 0xFFU));
  }
  bytes += header;
  for (std::size_t i = 0; i < data_bytes; ++i) {
    bytes.push_back(static_cast<char>(i));
  }
  return bytes;
}

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    directory = test::test_directory();
    fs::remove_all(directory);
    fs::create_directories(directory);
  }
  void TearDown() override { fs::remove_all(directory); }

  void write(const std::string& bytes, const std::string& name = "model.safetensors") const {
    fs::remove(directory / name);  // some file systems flush a file that replaces itself
    std::ofstream(directory / name, std::ios::binary) << bytes;
  }

  std::string header_error() const {
    try {
      read_safetensors_headers(directory);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage);
      return error.what();
    }
    return "no error";
  }

  std::vector<float> read(const std::string& name) const {
    const auto entry = read_safetensors_headers(directory).at(name);
    std::int64_t count = 1;
    for (const std::int64_t extent : entry.shape) {
      count *= extent;
    }
    std::vector<float> values(static_cast<std::size_t>(count));
    read_tensor(entry, values);
    return values;
  }

  fs::path directory;
};

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text << "\nlacks\n" << part;
}

TEST_F(Safetensors, WrittenBytesAreTheFormat) {
  const std::vector<float> b = {1.0F, -2.0F};
  const std::vector<float> a = {0.5F};
  const std::vector<TensorView> tensors = {{"b", {1, 2}, b}, {"a", {1}, a}};
  const std::string bytes = safetensors_bytes(tensors);
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  ASSERT_EQ(bytes.size(), 8 + padded + 12);
  EXPECT_EQ(static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])), padded);
  EXPECT_EQ(bytes.substr(8, header.size()), header);
  write(bytes);
  EXPECT_EQ(read("a"), a);
  EXPECT_EQ(read("b"), b);
}

TEST_F(Safetensors, HalfTypesWidenExactly) {
  const std::string header = R"({"h":{"dtype":"F16","shape":[2,4],"data_offsets":[0,16]},)"
                             R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[16,24]}})";
  std::string bytes = file_bytes(header, 0);
  // binary16: 1, -2, largest 65504, smallest subnormal, largest subnormal, -0, infinity, 1/3
  // rounded.
  for (const int bits : {0x3C00,
                         0xC000,
                         0x7BFF,
                         0x0001,
                         0x03FF,
                         0x8000,
                         0x7C00,
                         0x3555,
                         // bfloat16: 1, -2.5, smallest subnormal, infinity.
                         0x3F80,
                         0xC020,
                         0x0001,
                         0x7F80}) {
    bytes.push_back(static_cast<char>(bits & 0xFF));
    bytes.push_back(static_cast<char>(bits >> 8));
  }
  write(bytes);
  const auto h = read("h");
  EXPECT_EQ(
      h,
      (std::vector<float>{
          1.0F, -2.0F, 65504.0F, 0x1p-24F, 1023.0F * 0x1p-24F, -0.0F, INFINITY, 0.333251953125F}));
  EXPECT_TRUE(std::signbit(h[5]));
  EXPECT_EQ(read("b"), (std::vector<float>{1.0F, -2.5F, 0x1p-133F, INFINITY}));
}

TEST_F(Safetensors, PartsAreReadByRowsAndByColumns) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const std::vector<TensorView> tensors = {{"a", {1}, std::span(values).first(1)},
                                           {"w", {3, 4}, values}};
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    write(safetensors_bytes(tensors, dtype));
    const auto entry = read_safetensors_headers(directory).at("w");
    std::vector<float> rows(8);
    read_tensor_part(entry, {.count = 1, .length = 8, .first = 4, .stride = 12}, rows);
    EXPECT_EQ(rows, (std::vector<float>{4, 5, 6, 7, 8, 9, 10, 11}));
    std::vector<float> columns(6);
    read_tensor_part(entry, {.count = 3, .length = 2, .first = 1, .stride = 4}, columns);
    EXPECT_EQ(columns, (std::vector<float>{1, 2, 5, 6, 9, 10}));
    EXPECT_THROW(
        read_tensor_part(entry, {.count = 3, .length = 2, .first = 3, .stride = 4}, columns),
        Error);
    read_tensor_part(entry, {.count = 3, .length = 0, .first = 0, .stride = 4}, {});
  }
}

TEST_F(Safetensors, Bf16IsTheNearestWithTiesToEven) {
  // One unit in the last place of a bf16 near 1 is 2^-7.
  const std::vector<float> values = {1.0F + 0x1p-8F,
                                     1.0F + 0x3p-8F,
                                     1.0F + 0x1.02p-8F,
                                     -1.0F - 0x1.02p-8F,
                                     3.4028235e38F,
                                     NAN,
                                     -0.0F};
  const std::vector<TensorView> tensors = {{"w", {7}, values}};
  write(safetensors_bytes(tensors, Dtype::kBf16));
  const auto read_back = read("w");
  EXPECT_EQ(read_back[0], 1.0F);
  EXPECT_EQ(read_back[1], 1.0F + 0x1p-6F);
  EXPECT_EQ(read_back[2], 1.0F + 0x1p-7F);
  EXPECT_EQ(read_back[3], -1.0F - 0x1p-7F);
  EXPECT_EQ(read_back[4], INFINITY);
  EXPECT_TRUE(std::isnan(read_back[5]));
  EXPECT_TRUE(std::signbit(read_back[6]));
}

TEST_F(Safetensors, LargeModelsAreSplitAndEarlierFilesRemoved) {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto part = [&](std::size_t first, std::size_t count) {
    return std::span(values).subspan(first, count);
  };
  const std::vector<TensorView> tensors = {{"a", {1}, part(0, 1)},
                                           {"b", {2}, part(1, 2)},
                                           {"c", {6}, part(3, 6)},
                                           {"d", {1}, part(9, 1)}};
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& item : fs::directory_iterator(directory)) {
      found.push_back(item.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  const auto expect_readable = [&] {
    for (const TensorView& tensor : tensors) {
      EXPECT_EQ(read(tensor.name), std::vector<float>(tensor.data.begin(), tensor.data.end()));
    }
  };
  write_safetensors(directory, tensors, Dtype::kF32, 1000);
  EXPECT_EQ(names(), (std::vector<std::string>{"model.safetensors"}));
  expect_readable();
  // 12 bytes hold a and b; c alone is larger; d begins a third file.
  write_safetensors(directory, tensors, Dtype::kF32, 12);
  EXPECT_EQ(names(),
            (std::vector<std::string>{"model-00001-of-00003.safetensors",
                                      "model-00002-of-00003.safetensors",
                                      "model-00003-of-00003.safetensors",
                                      "model.safetensors.index.json"}));
  expect_readable();
  write_safetensors(directory, tensors, Dtype::kBf16, 1000);
  EXPECT_EQ(names(), (std::vector<std::string>{"model.safetensors"}));
  expect_readable();
}

TEST_F(Safetensors, TruncatedFileNamesBothSizes) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}})";
  const std::string bytes = file_bytes(header, 16);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    write(bytes.substr(0, size));
    const std::string error = header_error();
    expect_contains(error, "model.safetensors");
    expect_contains(error, "found " + std::to_string(size));
    if (size >= 8 + header.size()) {
      expect_contains(error, "expected " + std::to_string(bytes.size()));
      expect_contains(error, "truncated");
    }
  }
  write(bytes + "x");
  expect_contains(header_error(), "longer than its tensors");
}

TEST_F(Safetensors, BadHeadersAreNamed) {
  const auto error_of = [&](const std::string& header, std::size_t data_bytes) {
    write(file_bytes(header, data_bytes));
    return header_error();
  };
  const auto field =
      [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
        return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
               offsets + "}}";
      };
  expect_contains(error_of("[]", 0), "not a JSON object");
  expect_contains(error_of("{\"a\":", 0), "not a JSON object");
  expect_contains(error_of("{\"a\":3}", 0), "'a' has no dtype");
  expect_contains(error_of(field("I64", "[1]", "[0,8]"), 8), "dtype 'I64'");
  expect_contains(error_of(field("F32", "[-1]", "[0,4]"), 4), "whole numbers");
  expect_contains(error_of(field("F32", "[1.5]", "[0,4]"), 4), "whole numbers");
  expect_contains(error_of(field("F32", "3", "[0,4]"), 4), "whole numbers");
  expect_contains(error_of(field("F32", "[1]", "[0]"), 4), "two data_offsets");
  expect_contains(error_of(field("F32", "[1]", "[4,0]"), 4), "data_offsets [4, 0]");
  expect_contains(error_of(field("F32", "[2]", "[0,4]"), 4), "contradict");
  expect_contains(error_of(field("F32", "[1]", "[4,8]"), 8), "begins at byte");
  expect_contains(error_of(field("F32", "[4294967296,4294967296]", "[0,0]"), 0), "contradict");
  expect_contains(error_of(field("F32", "[1]", "[0,9223372036854775807]"), 4), "data_offsets");
  expect_contains(error_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                           R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                           8),
                  "'b' begins at byte");
  write(std::string(8, '\xFF'));
  expect_contains(header_error(), "not a safetensors file");
}

TEST_F(Safetensors, ShardsFollowTheirIndex) {
  const std::string a = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  const std::string b = R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  write(file_bytes(a, 4), "one.safetensors");
  write(file_bytes(b, 8), "two.safetensors");
  const auto index = [&](const std::string& map) {
    write(R"({"weight_map":)" + map + "}", "model.safetensors.index.json");
  };
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const auto entries = read_safetensors_headers(directory);
  EXPECT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries.at("b").file.filename(), "two.safetensors");
  EXPECT_EQ(read("b").size(), 2U);

  index(R"({"a":"one.safetensors","b":"one.safetensors"})");
  expect_contains(header_error(), "lacks tensor 'b'");
  index(R"({"a":"one.safetensors","c":"two.safetensors"})");
  expect_contains(header_error(), "does not list tensor 'b'");
  index(R"({"a":"three.safetensors"})");
  expect_contains(header_error(), "three.safetensors");
  index(R"({"a":"../one.safetensors"})");
  expect_contains(header_error(), "does not name a file of this directory");
  index("{}");
  expect_contains(header_error(), "weight_map");
}

TEST_F(Safetensors, EmptyDirectorySaysWhatIsMissing) {
  expect_contains(header_error(), "neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(Safetensors, MutatedFilesNeverDoWorseThanAUsageError) {
  const std::vector<float> values(24, 1.5F);
  const std::vector<TensorView> tensors = {{"a", {2, 3}, std::span(values).first(6)},
                                           {"b", {18}, std::span(values).last(18)}};
  const std::string good = safetensors_bytes(tensors);
  Rng rng(1);
  int accepted = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    const std::int64_t edits = 1 + rng.below(4);
    for (std::int64_t edit = 0; edit < edits; ++edit) {
      // Most edits hit the header; digits are the likeliest to stay valid JSON.
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(good.size())));
      const char digit = static_cast<char>('0' + rng.below(10));
      bytes[at] = rng.below(2) == 0 ? digit : static_cast<char>(rng.below(256));
    }
    if (rng.below(8) == 0) {
      bytes.resize(static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(good.size()))));
    }
    write(bytes);
    try {
      for (const auto& [name, entry] : read_safetensors_headers(directory)) {
        // Accepted entries lie inside the file, so this cannot fail.
        std::vector<float> out(static_cast<std::size_t>(entry.end - entry.begin) /
                               (entry.dtype == Dtype::kF32 ? 4 : 2));
        read_tensor(entry, out);
      }
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    }
  }
  EXPECT_GT(accepted, 20);
  EXPECT_LT(accepted, 1900);
}

}  // namespace
}  // namespace rpeg
