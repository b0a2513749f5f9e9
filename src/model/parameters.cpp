#include "rpeg/model/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>

#include "rpeg/base/error.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

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
  layout.model_layers = spec.layers;
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

void copy_parameters(const ParameterLayout& from,
                     std::span<const float> source,
                     const ParameterLayout& to,
                     std::span<float> target) {
  check(from.shard == to.shard, "copy_parameters needs two layouts of one shard");
  std::map<std::string, const ParameterTensor*> by_name;
  for (const ParameterTensor& tensor : from.tensors) {
    by_name.emplace(tensor.name, &tensor);
  }
  bool copied = false;
  for (const ParameterTensor& tensor : to.tensors) {
    const auto found = by_name.find(tensor.name);
    if (found != by_name.end()) {
      check(found->second->shape == tensor.shape, tensor.name + " has two shapes");
      std::copy_n(
          source.data() + found->second->offset, tensor.count, target.data() + tensor.offset);
      copied = true;
    }
  }
  check(copied, "copy_parameters found nothing in common");
}

}  // namespace rpeg
