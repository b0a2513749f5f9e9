#include "rpeg/hf/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr std::int64_t kLengthBytes = 8;
constexpr std::int64_t kHeaderLimitBytes = 100'000'000;  // that of the format's own library

[[noreturn]] void fail(const fs::path& file, const std::string& message) {
  throw Error(ErrorKind::kUsage, message, file.string());
}

std::int64_t size_of_file(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  if (error) {
    fail(file, "cannot be read: " + error.message());
  }
  return static_cast<std::int64_t>(size);
}

std::string read_range(const fs::path& file, std::int64_t begin, std::int64_t size) {
  std::ifstream stream(file, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(size), '\0');
  if (!stream || !stream.seekg(begin) || !stream.read(bytes.data(), size)) {
    fail(file, fmt::format("cannot read {} bytes at {}", size, begin));
  }
  return bytes;
}

Json parse_object(const fs::path& file, const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    fail(file, "the header is not a JSON object");
  }
  return json;
}

std::optional<Dtype> parse_dtype(const std::string& name) {
  if (name == "F32") {
    return Dtype::kF32;
  }
  if (name == "F16") {
    return Dtype::kF16;
  }
  return name == "BF16" ? std::optional(Dtype::kBf16) : std::nullopt;
}

std::int64_t dtype_bytes(Dtype dtype) { return dtype == Dtype::kF32 ? 4 : 2; }

/// Reads a list of non-negative integers that fit in 63 bits.
std::optional<std::vector<std::int64_t>> parse_sizes(const Json& json) {
  if (!json.is_array()) {
    return std::nullopt;
  }
  std::vector<std::int64_t> sizes;
  for (const Json& item : json) {
    if (!item.is_number_unsigned() ||
        item.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      return std::nullopt;
    }
    sizes.push_back(item.get<std::int64_t>());
  }
  return sizes;
}

/// Product of a shape, or nothing when it would exceed `limit`.
std::optional<std::int64_t> bounded_product(const std::vector<std::int64_t>& shape,
                                            std::int64_t limit) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    return 0;
  }
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) {
    if (extent > limit / product) {
      return std::nullopt;
    }
    product *= extent;
  }
  return product;
}

/// Reads one header field; `data_begin` is where the file's data start.
SafetensorsEntry parse_entry(const fs::path& file,
                             const std::string& name,
                             const Json& field,
                             std::int64_t data_begin) {
  if (!field.is_object() || !field.contains("dtype") || !field["dtype"].is_string()) {
    fail(file, fmt::format("tensor '{}' has no dtype", name));
  }
  SafetensorsEntry entry;
  entry.file = file;
  const std::string dtype_name = field["dtype"].get<std::string>();
  const std::optional<Dtype> dtype = parse_dtype(dtype_name);
  if (!dtype) {
    fail(file,
         fmt::format("tensor '{}' has dtype '{}'; RPEG reads F32, F16 and BF16", name, dtype_name));
  }
  entry.dtype = *dtype;
  const auto shape = parse_sizes(field.value("shape", Json()));
  const auto offsets = parse_sizes(field.value("data_offsets", Json()));
  if (!shape || !offsets || offsets->size() != 2) {
    fail(file,
         fmt::format("tensor '{}' needs a shape and two data_offsets, whole numbers of at least 0",
                     name));
  }
  const std::int64_t begin = (*offsets)[0];
  const std::int64_t end = (*offsets)[1];
  // Such an offset is in no file; below it, sums cannot overflow.
  if (begin > end || end > INT64_MAX - data_begin) {
    fail(file, fmt::format("tensor '{}' has data_offsets [{}, {}]", name, begin, end));
  }
  const std::int64_t size = dtype_bytes(entry.dtype);
  const auto count = bounded_product(*shape, INT64_MAX / size);
  if (!count || *count * size != end - begin) {
    fail(file,
         fmt::format("tensor '{}' has {} bytes of data, which its shape and dtype contradict",
                     name,
                     end - begin));
  }
  entry.shape = *shape;
  entry.begin = data_begin + begin;
  entry.end = data_begin + end;
  return entry;
}

/// Requires the tensors to cover the data from first to last byte without gap or overlap.
void check_coverage(const fs::path& file,
                    const std::map<std::string, SafetensorsEntry>& entries,
                    std::int64_t data_begin,
                    std::int64_t actual_bytes) {
  std::vector<const std::pair<const std::string, SafetensorsEntry>*> order;
  order.reserve(entries.size());
  for (const auto& item : entries) {
    order.push_back(&item);
  }
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::int64_t expected_bytes = data_begin;
  for (const auto* item : order) {
    if (item->second.begin != expected_bytes) {
      fail(file,
           fmt::format("tensor '{}' begins at byte {} where {} was expected",
                       item->first,
                       item->second.begin,
                       expected_bytes));
    }
    expected_bytes = item->second.end;
  }
  if (expected_bytes != actual_bytes) {
    fail(file,
         fmt::format("expected {} bytes by its header, found {}: the file is {}",
                     expected_bytes,
                     actual_bytes,
                     actual_bytes < expected_bytes ? "truncated; copy it again"
                                                   : "longer than its tensors"));
  }
}

std::map<std::string, SafetensorsEntry> read_file_header(const fs::path& file) {
  const std::int64_t actual_bytes = size_of_file(file);
  if (actual_bytes < kLengthBytes) {
    fail(file,
         fmt::format("expected at least 8 bytes, found {}: not a safetensors file", actual_bytes));
  }
  std::uint64_t header_bytes = 0;
  const std::string length = read_range(file, 0, kLengthBytes);
  for (std::size_t i = length.size(); i-- > 0;) {
    header_bytes = header_bytes << 8 | static_cast<unsigned char>(length[i]);
  }
  if (header_bytes > static_cast<std::uint64_t>(kHeaderLimitBytes)) {
    fail(file, fmt::format("claims a header of {} bytes: not a safetensors file", header_bytes));
  }
  const std::int64_t data_begin = kLengthBytes + static_cast<std::int64_t>(header_bytes);
  if (data_begin > actual_bytes) {
    fail(file,
         fmt::format("expected at least {} bytes by its header, found {}: the file is truncated; "
                     "copy it again",
                     data_begin,
                     actual_bytes));
  }
  const Json header =
      parse_object(file, read_range(file, kLengthBytes, static_cast<std::int64_t>(header_bytes)));
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [name, field] : header.items()) {
    if (name != "__metadata__") {
      entries.emplace(name, parse_entry(file, name, field, data_begin));
    }
  }
  check_coverage(file, entries, data_begin, actual_bytes);
  return entries;
}

/// Reads the index: shard file name by tensor name.
std::map<std::string, std::string> read_index(const fs::path& index) {
  const Json json = parse_object(index, read_file(index));
  const auto weight_map = json.find("weight_map");
  if (weight_map == json.end() || !weight_map->is_object() || weight_map->empty()) {
    fail(index, "has no weight_map");
  }
  std::map<std::string, std::string> shards;
  for (const auto& [name, shard] : weight_map->items()) {
    // A shard lies beside its index: a name that leads elsewhere is not followed.
    const std::string file = shard.is_string() ? shard.get<std::string>() : "";
    if (file.empty() || file == "." || file == ".." || fs::path(file).filename() != file) {
      fail(index, fmt::format("tensor '{}' does not name a file of this directory", name));
    }
    shards.emplace(name, file);
  }
  return shards;
}

float widen_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// IEEE 754 binary16 to binary32.
float widen_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1FU;
  const std::uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) | sign);
  }
  const std::uint32_t wide = exponent == 0x1FU ? 0xFFU : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void widen(Dtype dtype, const std::string& bytes, std::span<float> out) {
  static_assert(std::endian::native == std::endian::little, "safetensors data are little-endian");
  if (dtype == Dtype::kF32) {
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return;
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t half = 0;
    std::memcpy(&half, bytes.data() + 2 * i, 2);
    out[i] = dtype == Dtype::kBf16 ? widen_bf16(half) : widen_f16(half);
  }
}

}  // namespace

std::map<std::string, SafetensorsEntry> read_safetensors_headers(const fs::path& directory) {
  const fs::path single = directory / "model.safetensors";
  if (fs::exists(single)) {
    return read_file_header(single);
  }
  const fs::path index = directory / "model.safetensors.index.json";
  if (!fs::exists(index)) {
    fail(directory, "holds neither model.safetensors nor model.safetensors.index.json");
  }
  const std::map<std::string, std::string> shards = read_index(index);
  std::map<std::string, std::map<std::string, SafetensorsEntry>> headers;
  for (const auto& [name, shard] : shards) {
    if (!headers.contains(shard)) {
      headers.emplace(shard, read_file_header(directory / shard));
    }
  }
  std::map<std::string, SafetensorsEntry> entries;
  for (const auto& [shard, header] : headers) {
    for (const auto& [name, entry] : header) {
      const auto listed = shards.find(name);
      if (listed == shards.end() || listed->second != shard) {
        fail(index, fmt::format("does not list tensor '{}' of {}", name, shard));
      }
      entries.emplace(name, entry);
    }
  }
  for (const auto& [name, shard] : shards) {
    if (!entries.contains(name)) {
      fail(directory / shard, fmt::format("lacks tensor '{}', which the index lists", name));
    }
  }
  return entries;
}

void read_tensor(const SafetensorsEntry& entry, std::span<float> out) {
  const auto count = static_cast<std::int64_t>(out.size());
  check(entry.end - entry.begin == count * dtype_bytes(entry.dtype),
        "read_tensor needs a buffer of the tensor's size");
  read_tensor_part(entry, {.count = 1, .length = count, .first = 0, .stride = count}, out);
}

void read_tensor_part(const SafetensorsEntry& entry, const ShardRuns& runs, std::span<float> out) {
  const std::int64_t size = dtype_bytes(entry.dtype);
  const std::int64_t last = runs.first + (runs.count - 1) * runs.stride + runs.length;
  check(static_cast<std::int64_t>(out.size()) == runs.count * runs.length,
        "read_tensor_part needs a buffer of the part's size");
  if (out.empty()) {
    return;
  }
  check(entry.begin + last * size <= entry.end, "the part lies outside the tensor");
  std::ifstream stream(entry.file, std::ios::binary);
  std::string bytes(static_cast<std::size_t>(runs.length * size), '\0');
  for (std::int64_t i = 0; i < runs.count; ++i) {
    const std::int64_t begin = entry.begin + (runs.first + i * runs.stride) * size;
    if (!stream || !stream.seekg(begin) ||
        !stream.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
      fail(entry.file, fmt::format("cannot read {} bytes at {}", bytes.size(), begin));
    }
    widen(entry.dtype,
          bytes,
          out.subspan(static_cast<std::size_t>(i * runs.length),
                      static_cast<std::size_t>(runs.length)));
  }
}

}  // namespace rpeg
