#include "rpeg/model/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <set>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/hf/tokenizer.h"

namespace rpeg {
namespace {

constexpr const char* kLanguageHead = "lm_head.weight";
constexpr const char* kScalarHead = "score.weight";

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
std::uint64_t hash_name(const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  }
  return hash;
}

/// Normal numbers `first` … of a stream, by Box and Muller, four from each Philox block.
void fill_normal(std::uint64_t key, double deviation, std::int64_t first, std::span<float> out) {
  std::array<double, 4> block{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t index = static_cast<std::uint64_t>(first) + i;
    const std::uint64_t counter = index / 4;
    if (i == 0 || index % 4 == 0) {
      const auto words = philox(
          key,
          {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), 0U, 0U});
      for (std::size_t n = 0; n < block.size(); ++n) {
        const double radius = std::sqrt(-2.0 * std::log(uniform_open(words[n / 2 * 2])));
        const double angle = 2.0 * std::numbers::pi * uniform_open(words[n / 2 * 2 + 1]);
        block[n] = radius * (n % 2 == 0 ? std::cos(angle) : std::sin(angle));
      }
    }
    out[i] = static_cast<float>(deviation * block[index % 4]);
  }
}

/// A tensor of the directory that the layout may leave out: the other kind of head, or the rotation
/// frequencies that old checkpoints carry though the configuration determines them.
bool may_be_ignored(const std::string& name) {
  return name == kLanguageHead || name == kScalarHead || name.ends_with(".rotary_emb.inv_freq");
}

void check_known(const std::map<std::string, SafetensorsEntry>& entries,
                 const ParameterLayout& layout) {
  std::set<std::string> known;
  for (const ParameterTensor& tensor : layout.tensors) {
    known.insert(tensor.name);
  }
  for (const auto& [name, entry] : entries) {
    if (!known.contains(name) && !may_be_ignored(name)) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' is not part of a Llama model of this configuration; "
                              "RPEG cannot train this checkpoint",
                              name),
                  entry.file.string());
    }
  }
}

/// Copies what tells other tools how to use the model, its stop tokens above all: they may stand in
/// the config.json that is not copied.
void copy_tokenizer(const std::filesystem::path& source, const std::filesystem::path& directory) {
  constexpr const char* kGeneration = "generation_config.json";
  for (const char* name :
       {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", kGeneration}) {
    if (std::filesystem::exists(source / name)) {
      write_file_atomic(directory / name, read_file(source / name));
    }
  }
  const std::vector<std::int32_t> stops = load_stop_tokens(source);
  if (!std::filesystem::exists(source / kGeneration) && !stops.empty()) {
    write_file_atomic(directory / kGeneration,
                      fmt::format("{{\"eos_token_id\": [{}]}}\n", fmt::join(stops, ", ")));
  }
}

}  // namespace

ParameterLayout build_parameter_layout(const ModelSpec& spec, Head head, const ModelShard& shard) {
  if (!spec.gated_ffn) {
    throw Error(
        ErrorKind::kUsage,
        "a feed-forward block of two matrices cannot be trained yet; gated_ffn must be true");
  }
  ParameterLayout layout;
  layout.head = head;
  layout.shard = shard;
  for (ShardTensor& part : shard_tensors(spec, head, shard)) {
    std::vector<std::int64_t> held = part.shape;
    if (part.split_dim >= 0) {
      held[static_cast<std::size_t>(part.split_dim)] = part.end - part.begin;
    }
    const std::int64_t count = part.count;
    layout.tensors.push_back({part.name, std::move(held), layout.total, count, std::move(part)});
    layout.total += count;
  }
  return layout;
}

ParameterLayout build_parameter_layout(const ModelSpec& spec, Head head) {
  return build_parameter_layout(spec, head, whole_model(spec));
}

template <typename T>
void take_shard(const ShardTensor& part, std::span<const T> whole, std::span<T> held) {
  check(static_cast<std::int64_t>(held.size()) == part.count, "take_shard fills the part held");
  const ShardRuns runs = shard_runs(part);
  for (std::int64_t i = 0; i < runs.count; ++i) {
    std::copy_n(
        whole.data() + runs.first + i * runs.stride, runs.length, held.data() + i * runs.length);
  }
}

template <typename T>
void place_shard(const ShardTensor& part, std::span<const T> held, std::span<T> whole) {
  check(static_cast<std::int64_t>(held.size()) == part.count, "place_shard takes the part held");
  const ShardRuns runs = shard_runs(part);
  for (std::int64_t i = 0; i < runs.count; ++i) {
    std::copy_n(
        held.data() + i * runs.length, runs.length, whole.data() + runs.first + i * runs.stride);
  }
}

template void take_shard(const ShardTensor&, std::span<const float>, std::span<float>);
template void take_shard(const ShardTensor&, std::span<const double>, std::span<double>);
template void place_shard(const ShardTensor&, std::span<const float>, std::span<float>);
template void place_shard(const ShardTensor&, std::span<const double>, std::span<double>);

void initialise_parameters(const ModelSpec& spec,
                           const ParameterLayout& layout,
                           std::uint64_t seed,
                           std::span<float> weights) {
  check(static_cast<std::int64_t>(weights.size()) == layout.total,
        "initialise_parameters needs a buffer of the layout's size");
  for (const ParameterTensor& tensor : layout.tensors) {
    const auto out = weights.subspan(static_cast<std::size_t>(tensor.offset),
                                     static_cast<std::size_t>(tensor.count));
    if (tensor.name == kScalarHead || tensor.name.ends_with(".bias")) {
      std::fill(out.begin(), out.end(), 0.0F);
    } else if (tensor.shape.size() == 1) {
      std::fill(out.begin(), out.end(), 1.0F);
    } else {
      const std::uint64_t key = derive_seed(seed, hash_name(tensor.name));
      const ShardRuns runs = shard_runs(tensor.part);
      for (std::int64_t i = 0; i < runs.count; ++i) {
        fill_normal(key,
                    spec.initializer_range,
                    runs.first + i * runs.stride,
                    out.subspan(static_cast<std::size_t>(i * runs.length),
                                static_cast<std::size_t>(runs.length)));
      }
    }
  }
}

void load_parameters(const std::filesystem::path& directory,
                     const ParameterLayout& layout,
                     std::span<float> weights) {
  check(static_cast<std::int64_t>(weights.size()) == layout.total,
        "load_parameters needs a buffer of the layout's size");
  const std::map<std::string, SafetensorsEntry> entries = read_safetensors_headers(directory);
  check_known(entries, layout);
  for (const ParameterTensor& tensor : layout.tensors) {
    const auto out = weights.subspan(static_cast<std::size_t>(tensor.offset),
                                     static_cast<std::size_t>(tensor.count));
    const auto found = entries.find(tensor.name);
    if (found == entries.end()) {
      if (tensor.name != kScalarHead) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("tensor '{}' is missing from the safetensors files", tensor.name),
                    directory.string());
      }
      std::fill(out.begin(), out.end(), 0.0F);
      continue;
    }
    if (found->second.shape != tensor.shape) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' has shape [{}], but config.json implies [{}]",
                              tensor.name,
                              fmt::join(found->second.shape, ", "),
                              fmt::join(tensor.shape, ", ")),
                  found->second.file.string());
    }
    read_tensor(found->second, out);
  }
}

void save_hf_directory(const std::filesystem::path& directory,
                       const ModelSpec& spec,
                       const ParameterLayout& layout,
                       std::span<const float> weights,
                       const std::filesystem::path& tokenizer_source) {
  check(static_cast<std::int64_t>(weights.size()) == layout.total,
        "save_hf_directory needs a buffer of the layout's size");
  ensure_directory(directory);
  if (!tokenizer_source.empty()) {
    copy_tokenizer(tokenizer_source, directory);
  }
  const bool scalar_head = layout.tensors.back().name == kScalarHead;
  write_file_atomic(directory / "config.json",
                    hf_config_text(spec, {.scalar_head = scalar_head, .bf16 = false}));
  std::vector<TensorView> tensors;
  tensors.reserve(layout.tensors.size());
  for (const ParameterTensor& tensor : layout.tensors) {
    tensors.push_back({tensor.name,
                       tensor.shape,
                       weights.subspan(static_cast<std::size_t>(tensor.offset),
                                       static_cast<std::size_t>(tensor.count))});
  }
  write_file_atomic(directory / "model.safetensors", safetensors_bytes(tensors));
}

}  // namespace rpeg
