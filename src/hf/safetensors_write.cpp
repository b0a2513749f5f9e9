#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

const char* dtype_name(Dtype dtype) {
  check(dtype != Dtype::kF16, "tensors are written as F32 or BF16");
  return dtype == Dtype::kF32 ? "F32" : "BF16";
}

std::size_t bytes_of(const TensorView& tensor, Dtype dtype) {
  return tensor.data.size() * (dtype == Dtype::kF32 ? 4 : 2);
}

/// The nearest bf16, ties to even; a NaN stays one.
std::uint16_t round_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  }
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16 & 1U)) >> 16);
}

void append_data(const TensorView& tensor, Dtype dtype, std::string& bytes) {
  const std::size_t at = bytes.size();
  bytes.resize(at + bytes_of(tensor, dtype));
  if (dtype == Dtype::kF32 && !tensor.data.empty()) {
    std::memcpy(bytes.data() + at, tensor.data.data(), tensor.data.size_bytes());
  }
  for (std::size_t i = 0; dtype == Dtype::kBf16 && i < tensor.data.size(); ++i) {
    const std::uint16_t half = round_to_bf16(tensor.data[i]);
    std::memcpy(bytes.data() + at + 2 * i, &half, 2);
  }
}

/// Cuts the tensors into files in their order.
std::vector<std::span<const TensorView>> split_files(std::span<const TensorView> tensors,
                                                     Dtype dtype,
                                                     std::int64_t file_bytes) {
  std::vector<std::span<const TensorView>> files;
  std::size_t first = 0;
  std::size_t size = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = bytes_of(tensors[i], dtype);
    if (i > first && size + bytes > static_cast<std::size_t>(file_bytes)) {
      files.push_back(tensors.subspan(first, i - first));
      first = i;
      size = 0;
    }
    size += bytes;
  }
  files.push_back(tensors.subspan(first));
  return files;
}

/// Removes what an earlier save left: a reader must not find two models.
void remove_others(const fs::path& directory, const std::set<std::string>& written) {
  for (const fs::directory_entry& item : fs::directory_iterator(directory)) {
    const std::string name = item.path().filename().string();
    const bool is_part = name.starts_with("model-") && name.ends_with(".safetensors");
    if ((is_part || name == kSingleFile || name == kIndexFile) && !written.contains(name)) {
      std::error_code error;
      if (!fs::remove(item.path(), error) && error) {
        throw Error(ErrorKind::kRuntime,
                    "a file of an earlier save cannot be removed: " + error.message(),
                    item.path().string());
      }
    }
  }
}

}  // namespace

std::string safetensors_bytes(std::span<const TensorView> tensors, Dtype dtype) {
  std::map<std::string, const TensorView*> sorted;
  for (const TensorView& tensor : tensors) {
    check(sorted.emplace(tensor.name, &tensor).second, "a tensor is written twice");
  }
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::size_t data_bytes = 0;
  for (const auto& [name, tensor] : sorted) {
    const std::size_t begin = data_bytes;
    data_bytes += bytes_of(*tensor, dtype);
    header[name] = {{"dtype", dtype_name(dtype)},
                    {"shape", tensor->shape},
                    {"data_offsets", {begin, data_bytes}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes;
  bytes.reserve(8 + text.size() + data_bytes);
  for (int shift = 0; shift < 64; shift += 8) {
    bytes.push_back(static_cast<char>(std::uint64_t{text.size()} >> shift & 0xFFU));
  }
  bytes += text;
  for (const auto& [name, tensor] : sorted) {
    append_data(*tensor, dtype, bytes);
  }
  return bytes;
}

void write_safetensors(const fs::path& directory,
                       std::span<const TensorView> tensors,
                       Dtype dtype,
                       std::int64_t file_bytes) {
  const auto files = split_files(tensors, dtype, file_bytes);
  std::set<std::string> written;
  if (files.size() == 1) {
    write_file_atomic(directory / kSingleFile, safetensors_bytes(tensors, dtype));
    written.insert(kSingleFile);
  } else {
    nlohmann::ordered_json index;
    std::size_t total = 0;
    nlohmann::ordered_json& weight_map = index["weight_map"];
    for (std::size_t i = 0; i < files.size(); ++i) {
      const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, files.size());
      write_file_atomic(directory / name, safetensors_bytes(files[i], dtype));
      written.insert(name);
      for (const TensorView& tensor : files[i]) {
        weight_map[tensor.name] = name;
        total += bytes_of(tensor, dtype);
      }
    }
    index["metadata"] = {{"total_size", total}};
    write_file_atomic(directory / kIndexFile, index.dump(2) + "\n");
    written.insert(kIndexFile);
  }
  remove_others(directory, written);
}

}  // namespace rpeg
