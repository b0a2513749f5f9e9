#include "runtime/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "runtime/message.h"

namespace rpeg {
namespace {

const ModelSource& source_of(const JobConfig& config, ModelRole role) {
  const auto& own = config.models[static_cast<std::size_t>(role)];
  // Without a source of its own the reference is the actor before training.
  if (!own.has_value() && role == ModelRole::kReference) {
    return source_of(config, ModelRole::kActor);
  }
  check(own.has_value(), fmt::format("the job has no source of the {}", to_string(role)));
  return own->init_from.has_value() ? source_of(config, *own->init_from) : *own;
}

/// Of a trunk that actor and critic share, the scalar head of the critic's own source: it may go on
/// from a critic that was trained on such a trunk.
void load_shared_head(const Job& job, HeldModel& held) {
  const auto& critic = job.config.models[static_cast<std::size_t>(ModelRole::kCritic)];
  const bool has_own = critic.has_value() && !critic->init_from.has_value();
  if (!has_own || critic->random_init || !held.layout.shard.has_head) {
    return;
  }
  const ParameterLayout layout =
      build_parameter_layout(held.spec, Head::kScalar, held.layout.shard);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  load_parameters(critic->path, layout, weights, MissingScalarHead::kZero);
  const auto is_head = [](const ParameterTensor& tensor) { return tensor.name == "score.weight"; };
  const auto from = std::ranges::find_if(layout.tensors, is_head);
  const auto to = std::ranges::find_if(held.layout.tensors, is_head);
  check(from != layout.tensors.end() && to != held.layout.tensors.end(),
        "a last stage without a scalar head");
  std::copy_n(weights.begin() + from->offset, from->count, held.weights.begin() + to->offset);
}

/// The weights before the first update. Streams of the random initialisation and tensors of a file
/// go by name, so a critic's source may be an actor: it takes the trunk and a zero head.
HeldModel initial_model(const Job& job, const WeightCopy& copy, int rank) {
  const ModelSource& source = source_of(job.config, copy.model);
  const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
  HeldModel held;
  held.spec = load_hf_config(source.path);
  held.layout = build_parameter_layout(
      held.spec, copy.head, shard_at(held.spec, block, place_in_block(block, rank).value()));
  held.weights.resize(static_cast<std::size_t>(held.layout.total));
  if (source.random_init) {
    initialise_parameters(held.spec, held.layout, source.seed, held.weights);
  } else {
    // A reward model without its head would reward at random.
    const auto missing =
        copy.model == ModelRole::kReward ? MissingScalarHead::kError : MissingScalarHead::kZero;
    load_parameters(source.path, held.layout, held.weights, missing);
  }
  if (copy.head == Head::kBoth) {
    load_shared_head(job, held);
  }
  return held;
}

bool is_compute(InstructionKind kind) {
  return kind == InstructionKind::kGenerate || kind == InstructionKind::kInfer ||
         kind == InstructionKind::kTrain;
}

/// A slice in a shard's flat buffer: `rows` stretches of `width` elements, `stride` apart.
struct Stretch {
  std::size_t first = 0;
  std::size_t rows = 0;
  std::size_t width = 0;
  std::size_t stride = 0;
};

Stretch stretch_of(const WeightTransfer& transfer,
                   const WeightSlice& slice,
                   const HeldModel& model) {
  const TransferTensor& tensor = transfer.tensors.at(static_cast<std::size_t>(slice.tensor));
  const auto& held = model.layout.tensors;
  const auto found = std::find_if(held.begin(), held.end(), [&](const ParameterTensor& entry) {
    return entry.name == tensor.name;
  });
  check(found != held.end(), fmt::format("{} is not part of this rank's shard", tensor.name));
  const std::int64_t begin = found->part.split_dim < 0 ? 0 : found->part.begin;
  const std::int64_t extent = found->shape[static_cast<std::size_t>(tensor.dim)];
  check(slice.begin >= begin && slice.end <= begin + extent,
        fmt::format("a slice of {} is not part of this rank's shard", tensor.name));
  const std::int64_t inner = tensor.dim == 0 ? found->count / extent : 1;
  const std::int64_t rows = tensor.dim == 0 ? 1 : found->shape[0];
  return {.first = static_cast<std::size_t>(found->offset + (slice.begin - begin) * inner),
          .rows = static_cast<std::size_t>(rows),
          .width = static_cast<std::size_t>((slice.end - slice.begin) * inner),
          .stride = static_cast<std::size_t>(found->count / rows)};
}

/// What travels is what the compiler counted, and the header.
void check_compiled_bytes(const WeightMessage& message, const Bytes& bytes) {
  const auto compiled = static_cast<std::size_t>(message.bytes) + sizeof(WeightHeader);
  check(bytes.size() == compiled,
        fmt::format("a weights message from rank {} to rank {} has {} bytes, compiled were {}",
                    message.from,
                    message.to,
                    bytes.size(),
                    compiled));
}

}  // namespace

RankModels build_rank_models(const Job& job, int rank) {
  RankModels models;
  for (const Instruction& instruction : job.ranks.at(static_cast<std::size_t>(rank)).program) {
    if (!is_compute(instruction.kind)) {
      continue;
    }
    const Vertex& vertex = job.graph.vertices[index(instruction.vertex)];
    const int copy = job.vertex_copy[index(instruction.vertex)];
    if (!models.contains(copy)) {
      models.emplace(copy, initial_model(job, job.copies[static_cast<std::size_t>(copy)], rank));
    }
    HeldModel& held = models.at(copy);
    if (is_training(vertex.op)) {
      held.training.emplace().gradient.resize(held.weights.size());
    }
  }
  return models;
}

HeldModel& model_for(const Job& job, RankModels& models, VertexId vertex, std::int64_t iteration) {
  const WeightCopy& copy = copy_of(job, vertex);
  HeldModel& held = models.at(job.vertex_copy[index(vertex)]);
  const std::int64_t wanted = copy.is_frozen ? 0 : std::max<std::int64_t>(0, iteration - copy.tau);
  check(held.version == wanted,
        fmt::format("iteration {} needs version {} of the {}'s weights and found {}",
                    iteration,
                    wanted,
                    to_string(copy.model),
                    held.version));
  return held;
}

Bytes encode_weights(const WeightTransfer& transfer,
                     const WeightMessage& message,
                     const HeldModel& model,
                     double now_s) {
  Bytes bytes;
  bytes.reserve(static_cast<std::size_t>(message.bytes) + sizeof(WeightHeader));
  append_value(bytes, WeightHeader{model.version, now_s});
  for (const WeightSlice& slice : message.slices) {
    const Stretch stretch = stretch_of(transfer, slice, model);
    for (std::size_t row = 0; row < stretch.rows; ++row) {
      append_bytes(bytes,
                   std::span<const float>(model.weights)
                       .subspan(stretch.first + row * stretch.stride, stretch.width));
    }
  }
  check_compiled_bytes(message, bytes);
  return bytes;
}

WeightHeader decode_weights(const WeightTransfer& transfer,
                            const WeightMessage& message,
                            const Bytes& bytes,
                            std::size_t expected,
                            HeldModel& model) {
  check_compiled_bytes(message, bytes);
  MessageReader reader(bytes);
  const auto header = reader.take<WeightHeader>();
  check(header.version == model.version + 1,
        fmt::format("weights of version {} arrived at version {}", header.version, model.version));
  for (const WeightSlice& slice : message.slices) {
    const Stretch stretch = stretch_of(transfer, slice, model);
    for (std::size_t row = 0; row < stretch.rows; ++row) {
      reader.take_into(std::span<float>(model.weights)
                           .subspan(stretch.first + row * stretch.stride, stretch.width));
    }
  }
  check(reader.remaining() == 0, "weights message longer than its slices");
  if (++model.arrived_messages == expected) {
    model.version = header.version;
    model.arrived_messages = 0;
  }
  return header;
}

}  // namespace rpeg
