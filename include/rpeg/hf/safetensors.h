#pragma once

/// Module `hf`: the Hugging Face files that hold a model besides config.json: tensors
/// (safetensors.h) and the tokenizer (tokenizer.h). Parsers trust nothing in a file.

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "rpeg/spec/model_shard.h"

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

/// Reads `runs` of a tensor, the part that a shard holds, as fp32 into `out` (runs.count *
/// runs.length elements); no other byte of the file is read.
void read_tensor_part(const SafetensorsEntry& entry, const ShardRuns& runs, std::span<float> out);

/// A tensor to write.
struct TensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> data;
};

/// Returns the bytes of a safetensors file (F32, or BF16 rounded to nearest even; names sorted,
/// header padded to 8, metadata format=pt).
std::string safetensors_bytes(std::span<const TensorView> tensors, Dtype dtype = Dtype::kF32);

/// Writes tensors to a directory: `model.safetensors`, or when that would exceed `file_bytes` of
/// data several `model-0000i-of-0000n.safetensors` with their index, each at most that large unless
/// one tensor is. Every file is written atomically, the index last; files of an earlier save that
/// are not part of this one are removed after it.
void write_safetensors(const std::filesystem::path& directory,
                       std::span<const TensorView> tensors,
                       Dtype dtype,
                       std::int64_t file_bytes);

}  // namespace rpeg
