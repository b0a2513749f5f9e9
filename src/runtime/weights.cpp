#include "runtime/weights.h"

#include <fmt/format.h>

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

/// The weights before the first update. Streams of the random initialisation and tensors of a file
/// go by name, so a critic's source may be an actor: it takes the trunk and a zero head.
HeldModel initial_model(const JobConfig& config, ModelRole role) {
  const ModelSource& source = source_of(config, role);
  HeldModel held;
  held.spec = load_hf_config(source.path);
  held.layout = build_parameter_layout(
      held.spec, role == ModelRole::kCritic ? Head::kScalar : Head::kLanguageModel);
  held.weights.resize(static_cast<std::size_t>(held.layout.total));
  if (source.random_init) {
    initialise_parameters(held.spec, held.layout, source.seed, held.weights);
  } else {
    // A critic that starts from an actor finds no head there.
    load_parameters(source.path, held.layout, held.weights, MissingScalarHead::kZero);
  }
  return held;
}

bool is_compute(InstructionKind kind) {
  return kind == InstructionKind::kGenerate || kind == InstructionKind::kInfer ||
         kind == InstructionKind::kTrain;
}

/// Where tensor `tensor` of a transfer stands in the model.
const ParameterTensor& tensor_of(const WeightTransfer& transfer,
                                 const HeldModel& model,
                                 std::int32_t tensor) {
  const auto i = static_cast<std::size_t>(tensor);
  const ParameterTensor& entry = model.layout.tensors.at(i);
  check(transfer.tensors.at(i) == entry.name,
        fmt::format("tensor {} is {} in the transfer and {} in the model",
                    tensor,
                    transfer.tensors.at(i),
                    entry.name));
  return entry;
}

}  // namespace

RankModels build_rank_models(const Job& job, int rank) {
  RankModels models;
  for (const Instruction& instruction : job.ranks.at(static_cast<std::size_t>(rank)).program) {
    if (!is_compute(instruction.kind)) {
      continue;
    }
    const Vertex& vertex = job.graph.vertices[index(instruction.vertex)];
    if (!models.contains(vertex.model)) {
      models.emplace(vertex.model, initial_model(job.config, vertex.model));
    }
    HeldModel& held = models.at(vertex.model);
    if (is_training(vertex.op)) {
      held.training.emplace().gradient.resize(held.weights.size());
    }
  }
  return models;
}

HeldModel& model_for(RankModels& models, ModelRole role, std::int64_t iteration) {
  HeldModel& held = models.at(role);
  check(role == ModelRole::kReference || held.version == iteration,
        fmt::format("iteration {} found version {} of the {}'s weights",
                    iteration,
                    held.version,
                    to_string(role)));
  return held;
}

Bytes encode_weights(const WeightTransfer& transfer,
                     const WeightMessage& message,
                     const HeldModel& model,
                     double now_s) {
  Bytes bytes;
  bytes.reserve(static_cast<std::size_t>(message.bytes) + sizeof(WeightHeader));
  append_value(bytes, WeightHeader{model.version, now_s});
  for (const std::int32_t tensor : message.tensors) {
    const ParameterTensor& entry = tensor_of(transfer, model, tensor);
    append_bytes(bytes,
                 std::span<const float>(model.weights)
                     .subspan(static_cast<std::size_t>(entry.offset),
                              static_cast<std::size_t>(entry.count)));
  }
  return bytes;
}

WeightHeader decode_weights(const WeightTransfer& transfer,
                            const WeightMessage& message,
                            const Bytes& bytes,
                            HeldModel& model) {
  MessageReader reader(bytes);
  const auto header = reader.take<WeightHeader>();
  check(header.version == model.version + 1,
        fmt::format("weights of version {} arrived at version {}", header.version, model.version));
  for (const std::int32_t tensor : message.tensors) {
    const ParameterTensor& entry = tensor_of(transfer, model, tensor);
    reader.take_into(std::span<float>(model.weights)
                         .subspan(static_cast<std::size_t>(entry.offset),
                                  static_cast<std::size_t>(entry.count)));
  }
  check(reader.remaining() == 0, "weights message longer than its tensors");
  model.arrived_tensors += message.tensors.size();
  if (model.arrived_tensors == model.layout.tensors.size()) {
    model.version = header.version;
    model.arrived_tensors = 0;
  }
  return header;
}

}  // namespace rpeg
