#pragma once

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "rpeg/comm/loopback.h"
#include "rpeg/model/parameters.h"
#include "rpeg/model/transformer.h"

namespace rpeg {

/// Runs `work(comm)` once per rank, each in a thread, and throws what was thrown first: others may
/// only have waited for that rank.
template <typename Work>
void run_ranks(int ranks, Work work) {
  const std::vector<std::unique_ptr<Comm>> comms = make_loopback(ranks);
  std::exception_ptr first;
  std::once_flag is_set;
  {
    std::vector<std::jthread> threads;
    for (const std::unique_ptr<Comm>& comm : comms) {
      threads.emplace_back([&work, &first, &is_set, rank = comm.get()] {
        try {
          rank->set_timeout(20.0);
          work(*rank);
        } catch (...) {
          std::call_once(is_set, [&] { first = std::current_exception(); });
        }
      });
    }
  }
  if (first) {
    std::rethrow_exception(first);
  }
}

/// A rank's part of a model that tp * pp ranks hold, cut from the weights of the whole model.
template <typename T>
struct ModelPart {
  ModelSpec spec;
  ParameterLayout layout;
  std::vector<T> weights;
  std::unique_ptr<Comm> tensor;
  std::unique_ptr<Comm> pipeline;
  std::unique_ptr<Comm> kv_replicas;

  Model<T> model() const {
    return {&spec, &layout, weights, {tensor.get(), pipeline.get(), kv_replicas.get()}};
  }
};

/// The tensor `name` in a flat buffer of a whole model.
template <typename T>
std::span<T> tensor_named(const ParameterLayout& whole,
                          std::span<T> flat,
                          const std::string& name) {
  for (const ParameterTensor& tensor : whole.tensors) {
    if (tensor.name == name) {
      return flat.subspan(static_cast<std::size_t>(tensor.offset),
                          static_cast<std::size_t>(tensor.count));
    }
  }
  return {};
}

/// Stage `stage` of `pp`: layers as evenly as possible.
inline ModelShard shard_of(const ModelSpec& spec, int tp, int pp, int rank) {
  const int stage = rank / tp;
  return {.tp = tp,
          .tp_rank = rank % tp,
          .first_layer = spec.layers * stage / pp,
          .last_layer = spec.layers * (stage + 1) / pp,
          .has_embedding = stage == 0,
          .has_head = stage + 1 == pp};
}

/// The part of rank `world.rank()` (= stage * tp + tp_rank) and its groups; weights are zero.
template <typename T>
ModelPart<T> empty_part(const ModelSpec& spec, Head head, int tp, int pp, Comm& world) {
  ModelPart<T> part;
  part.spec = spec;
  const int stage = world.rank() / tp;
  const int tp_rank = world.rank() % tp;
  part.layout = build_parameter_layout(spec, head, shard_of(spec, tp, pp, world.rank()));
  part.weights.resize(static_cast<std::size_t>(part.layout.total));
  std::vector<int> tensor_ranks;
  for (int t = 0; t < tp; ++t) {
    tensor_ranks.push_back(stage * tp + t);
  }
  std::vector<int> pipeline_ranks;
  for (int s = 0; s < pp; ++s) {
    pipeline_ranks.push_back(s * tp + tp_rank);
  }
  part.tensor = world.subgroup(tensor_ranks);
  part.pipeline = world.subgroup(pipeline_ranks);
  if (tp > spec.num_kv_heads) {
    const int replicas = tp / static_cast<int>(spec.num_kv_heads);
    const int first = tp_rank / replicas * replicas;
    part.kv_replicas = world.subgroup(
        std::vector<int>(tensor_ranks.begin() + first, tensor_ranks.begin() + first + replicas));
  }
  return part;
}

/// The same, with its part of the weights of a whole model.
template <typename T>
ModelPart<T> cut_model(const Model<T>& whole, int tp, int pp, Comm& world) {
  ModelPart<T> part = empty_part<T>(*whole.spec, whole.layout->head, tp, pp, world);
  for (const ParameterTensor& tensor : part.layout.tensors) {
    take_shard<T>(tensor.part,
                  tensor_named(*whole.layout, whole.weights, tensor.name),
                  std::span(part.weights)
                      .subspan(static_cast<std::size_t>(tensor.offset),
                               static_cast<std::size_t>(tensor.count)));
  }
  return part;
}

template <typename T>
void send_values(Comm& comm, int to, int tag, std::span<const T> values) {
  Bytes message;
  append_bytes(message, values);
  comm.send(to, tag, std::move(message));
}

template <typename T>
std::vector<T> receive_values(Comm& comm, int from, int tag) {
  const Bytes message = comm.receive(from, tag);
  std::vector<T> values(message.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), message.data(), message.size());
  }
  return values;
}

}  // namespace rpeg
