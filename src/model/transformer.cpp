#include "rpeg/model/transformer.h"

#include <algorithm>
#include <cstring>

#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/model/stage.h"

namespace rpeg {
namespace {

template <typename T>
std::span<const T> forward_hidden(const Model<T>& model,
                                  const PackedBatch& batch,
                                  Activations<T>& activations) {
  const ModelShard& shard = model.layout->shard;
  check(shard.has_embedding && shard.has_head, "a pipeline runs stage by stage (stage.h)");
  return stage_forward<T>(model, batch, nullptr, Recompute::kNone, activations);
}

}  // namespace

void append_sequence(PackedBatch& batch, std::span<const std::int32_t> tokens) {
  batch.tokens.insert(batch.tokens.end(), tokens.begin(), tokens.end());
  batch.starts.push_back(batch.token_count());
}

template <typename T>
void forward_scores(const Model<T>& model,
                    const PackedBatch& batch,
                    T temperature,
                    Activations<T>& activations,
                    TokenScores<T>& scores) {
  const std::span<const T> hidden = forward_hidden(model, batch, activations);
  head_scores(model, batch, hidden, temperature, activations.scratch, scores);
}

template <typename T>
void backward_scores(const Model<T>& model,
                     const PackedBatch& batch,
                     T temperature,
                     Activations<T>& activations,
                     std::span<const T> d_logprob,
                     std::span<const T> d_entropy,
                     std::span<T> gradient) {
  const std::span<const T> hidden = stage_output(model, batch, Recompute::kNone, activations);
  activations.d_hidden.assign(hidden.size(), T(0));
  head_scores_backward(model,
                       batch,
                       hidden,
                       temperature,
                       d_logprob,
                       d_entropy,
                       activations.scratch,
                       std::span<T>(activations.d_hidden),
                       gradient);
  stage_backward<T>(model, batch, activations.d_hidden, Recompute::kNone, activations, gradient);
}

template <typename T>
void forward_values(const Model<T>& model,
                    const PackedBatch& batch,
                    Activations<T>& activations,
                    std::vector<T>& values) {
  head_values(model, forward_hidden(model, batch, activations), values);
}

template <typename T>
void backward_values(const Model<T>& model,
                     const PackedBatch& batch,
                     Activations<T>& activations,
                     std::span<const T> d_values,
                     std::span<T> gradient) {
  const std::span<const T> hidden = stage_output(model, batch, Recompute::kNone, activations);
  activations.d_hidden.assign(hidden.size(), T(0));
  head_values_backward(model, hidden, d_values, std::span<T>(activations.d_hidden), gradient);
  stage_backward<T>(model, batch, activations.d_hidden, Recompute::kNone, activations, gradient);
}

template <typename T>
std::vector<T> forward_logits(const Model<T>& model, const PackedBatch& batch) {
  Activations<T> activations;
  const std::span<const T> hidden = forward_hidden(model, batch, activations);
  const ModelShard& shard = model.layout->shard;
  const LocalShape shape = local_shape(*model.spec, shard);
  std::vector<T> mine(static_cast<std::size_t>(batch.token_count() * shape.vocabulary));
  cpu::linear_forward({batch.token_count(), shape.vocabulary, shape.hidden},
                      hidden.data(),
                      model.weights.data() + language_head_offset(*model.layout),
                      mine.data());
  if (shard.tp == 1) {
    return mine;
  }
  const std::vector<Bytes> parts = model.groups.tensor->all_gather(std::as_bytes(std::span(mine)));
  const std::int64_t width = model.spec->vocab_size;
  std::vector<T> logits(static_cast<std::size_t>(batch.token_count() * width));
  for (int rank = 0; rank < shard.tp; ++rank) {
    const auto [first, last] = vocabulary_rows(*model.spec, shard.tp, rank);
    const std::size_t bytes = static_cast<std::size_t>(last - first) * sizeof(T);
    const std::byte* from = parts[static_cast<std::size_t>(rank)].data();
    for (std::int64_t t = 0; t < batch.token_count() && bytes > 0; ++t, from += bytes) {
      std::memcpy(logits.data() + t * width + first, from, bytes);
    }
  }
  return logits;
}

template void forward_scores(
    const Model<float>&, const PackedBatch&, float, Activations<float>&, TokenScores<float>&);
template void forward_scores(
    const Model<double>&, const PackedBatch&, double, Activations<double>&, TokenScores<double>&);
template void backward_scores(const Model<float>&,
                              const PackedBatch&,
                              float,
                              Activations<float>&,
                              std::span<const float>,
                              std::span<const float>,
                              std::span<float>);
template void backward_scores(const Model<double>&,
                              const PackedBatch&,
                              double,
                              Activations<double>&,
                              std::span<const double>,
                              std::span<const double>,
                              std::span<double>);
template void forward_values(const Model<float>&,
                             const PackedBatch&,
                             Activations<float>&,
                             std::vector<float>&);
template void forward_values(const Model<double>&,
                             const PackedBatch&,
                             Activations<double>&,
                             std::vector<double>&);
template void backward_values(const Model<float>&,
                              const PackedBatch&,
                              Activations<float>&,
                              std::span<const float>,
                              std::span<float>);
template void backward_values(const Model<double>&,
                              const PackedBatch&,
                              Activations<double>&,
                              std::span<const double>,
                              std::span<double>);
template std::vector<float> forward_logits(const Model<float>&, const PackedBatch&);
template std::vector<double> forward_logits(const Model<double>&, const PackedBatch&);

}  // namespace rpeg
