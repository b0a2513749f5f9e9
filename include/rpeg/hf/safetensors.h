#pragma once

/// Module `hf`: the Hugging Face files that hold a model besides config.json: tensors
/// (safetensors.h) and the tokenizer (tokenizer.h). Parsers trust nothing in a file.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace rpeg {

enum class Dtype { kF32, kF16, kBf16 };

/// One tensor of a safetensors file.
struct SafetensorsEntry {
  Dtype dtype = Dtype::kF32;
  std::vector<std::int64_t> shape;
  std::filesystem::path file;
  std::int64_t begin = 0;  ///< byte range in the file
  std::int64_t end = 0;
};

/// Reads the headers of all tensors of a model directory: `model.safetensors`, or the shards that
/// `model.safetensors.index.json` names. Every field is bound-checked against the file's size.
/// Throws kUsage naming the file for a truncated, inconsistent or missing one.
std::map<std::string, SafetensorsEntry> read_safetensors_headers(
    const std::filesystem::path& directory);

/// Reads one tensor as fp32 (bf16 and fp16 widened exactly) into `out`, whose size must be the
/// product of the shape.
void read_tensor(const SafetensorsEntry& entry, std::span<float> out);

/// A tensor to write.
struct TensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> data;
};

/// Returns the bytes of a safetensors file (F32, names sorted, header padded to 8, metadata
/// format=pt).
std::string safetensors_bytes(std::span<const TensorView> tensors);

}  // namespace rpeg
