#include "runtime/save.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "runtime/message.h"

namespace rpeg {
namespace {

constexpr int kShardTag = 30100;  ///< in the replica's group; below the least limit of MPI

const ParameterTensor* find_tensor(const ParameterLayout& layout, const std::string& name) {
  const auto found = std::ranges::find(layout.tensors, name, &ParameterTensor::name);
  return found == layout.tensors.end() ? nullptr : &*found;
}

std::span<const float> values_of(std::span<const float> weights, const ParameterTensor& tensor) {
  return weights.subspan(static_cast<std::size_t>(tensor.offset),
                         static_cast<std::size_t>(tensor.count));
}

/// Puts the tensors of a shard into those of the whole model. Equal copies have equal bits: it does
/// not matter whose comes last.
void place(const ParameterLayout& shard,
           std::span<const float> held,
           const ParameterLayout& whole,
           std::span<float> weights) {
  for (const ParameterTensor& tensor : shard.tensors) {
    const ParameterTensor* target = find_tensor(whole, tensor.name);
    check(target != nullptr, fmt::format("{} is no tensor of the whole model", tensor.name));
    place_shard<float>(tensor.part,
                       values_of(held, tensor),
                       weights.subspan(static_cast<std::size_t>(target->offset),
                                       static_cast<std::size_t>(target->count)));
  }
}

/// The whole model from the shards of a replica, on its leader.
std::vector<float> gather_model(const Job& job,
                                const WeightCopy& copy,
                                const HeldModel& model,
                                Comm& replica,
                                const ParameterLayout& whole) {
  const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
  std::vector<float> weights(static_cast<std::size_t>(whole.total));
  for (int i = 0; i < replica.size(); ++i) {
    const int tp = block.parallelism.tp;
    const BlockPlace place_of{.dp = 0, .pp = i / tp, .tp = i % tp};
    const ParameterLayout shard =
        build_parameter_layout(model.spec, copy.head, shard_at(model.spec, block, place_of));
    if (i == 0) {
      place(shard, model.weights, whole, weights);
      continue;
    }
    const Bytes message = replica.receive(i, kShardTag);
    MessageReader reader(message);
    const auto held = reader.take_vector<float>(static_cast<std::size_t>(shard.total));
    check(reader.remaining() == 0, "a shard of another size");
    place(shard, held, whole, weights);
  }
  return weights;
}

/// Writes the part of a whole model that belongs to one head.
void write_head(const RankContext& context,
                ModelRole role,
                Head head,
                const ModelSpec& spec,
                const ParameterLayout& whole,
                std::span<const float> weights) {
  const JobConfig& config = context.job.config;
  const ParameterLayout layout = build_parameter_layout(spec, head);
  std::vector<float> part(static_cast<std::size_t>(layout.total));
  copy_parameters(whole, weights, layout, part);
  save_hf_directory(config.runtime.save_dir / to_string(role),
                    spec,
                    layout,
                    part,
                    config.models[static_cast<std::size_t>(ModelRole::kActor)]->path);
}

}  // namespace

void save_models(const RankContext& context) {
  const Job& job = context.job;
  if (job.config.runtime.save_dir.empty()) {
    return;
  }
  for (std::size_t i = 0; i < job.copies.size(); ++i) {
    const WeightCopy& copy = job.copies[i];
    const auto groups = context.groups.find(copy.block);
    if (!copy.is_trained || groups == context.groups.end() || groups->second.place.dp != 0) {
      continue;
    }
    const HeldModel& model = context.models.at(static_cast<int>(i));
    Comm& replica = *groups->second.replica;
    if (!groups->second.is_leader()) {
      Bytes shard;
      append_bytes(shard, std::span<const float>(model.weights));
      replica.send(0, kShardTag, std::move(shard));
      continue;
    }
    const ParameterLayout whole = build_parameter_layout(model.spec, copy.head);
    const std::vector<float> weights = gather_model(job, copy, model, replica, whole);
    if (copy.head != Head::kScalar) {
      write_head(context, copy.model, Head::kLanguageModel, model.spec, whole, weights);
    }
    if (copy.head != Head::kLanguageModel) {
      write_head(context, ModelRole::kCritic, Head::kScalar, model.spec, whole, weights);
    }
  }
}

}  // namespace rpeg
