#include "rpeg/model/stage.h"

#include <algorithm>

#include "model/batch.h"
#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/embedding.h"
#include "rpeg/kernels/rmsnorm.h"

namespace rpeg {
namespace {

/// Everything that a forward pass keeps, in Activations::storage.
template <typename T>
struct KeptBuffers {
  T* cosine;
  T* sine;
  T* output;      // (T, h) residual stream after the last layer
  T* final_norm;  // (T, h), the last stage
  T* final_rms;   // (T)
};

/// What a pass needs only while it runs, in Activations::scratch.
template <typename T>
struct PassingBuffers {
  T* partial;  // (T, h), see TrunkRows
  T* attention;
};

template <typename T>
struct StageBuffers {
  KeptBuffers<T> kept;
  PassingBuffers<T> passing;
  std::vector<LayerActivations<T>> layers;
  BackwardScratch<T> backward;
};

enum class Direction { kForward, kBackward };

/// Finds the buffers of the batch's forward pass, or makes room for them: the same shapes are
/// always placed alike, and neither direction moves what the other has kept.
template <typename T>
StageBuffers<T> place_stage(const Model<T>& model,
                            const PackedBatch& batch,
                            Recompute recompute,
                            Direction direction,
                            Activations<T>& activations) {
  const ModelShard& shard = model.layout->shard;
  const LocalShape shape = local_shape(*model.spec, shard);
  const std::int64_t rows = batch.token_count();
  const std::int64_t angles = longest_sequence(batch) * shape.attention.head_dim / 2;
  const auto place = [&](Arena<T>& kept, Arena<T>& passing) {
    StageBuffers<T> buffers{};
    buffers.kept.cosine = kept.take(angles);
    buffers.kept.sine = kept.take(angles);
    buffers.kept.output = kept.take(rows * shape.hidden);
    if (shard.has_head) {
      buffers.kept.final_norm = kept.take(rows * shape.hidden);
      buffers.kept.final_rms = kept.take(rows);
    }
    buffers.passing.partial = passing.take(shard.tp > 1 ? rows * shape.hidden : 0);
    buffers.passing.attention = passing.take(cpu::attention_scratch_size(batch.starts));
    if (direction == Direction::kBackward) {
      buffers.backward = place_backward(shape, rows, passing);
    }
    Arena<T> behind = passing;
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      Arena<T> dropped = passing;  // one place for what every layer drops
      buffers.layers.push_back(place_layer(shape, rows, recompute, kept, dropped));
      behind = dropped;
    }
    passing = behind;
    return buffers;
  };
  Arena<T> kept_size;
  Arena<T> passing_size;
  place(kept_size, passing_size);
  Arena<T> kept(activations.storage, kept_size);
  Arena<T> passing(activations.scratch, passing_size);
  return place(kept, passing);
}

template <typename T>
TrunkRows<T> stage_rows(const Model<T>& model,
                        std::span<const std::int32_t> positions,
                        const StageBuffers<T>& buffers) {
  return {model,
          local_shape(*model.spec, model.layout->shard),
          positions,
          buffers.kept.cosine,
          buffers.kept.sine,
          buffers.passing.partial};
}

template <typename T>
cpu::RmsNormShape final_norm_shape(const TrunkRows<T>& rows) {
  return {rows.count(), rows.shape.hidden, rows.model.spec->rms_norm_eps};
}

template <typename T>
std::span<const T> hidden_rows(const T* data, const TrunkRows<T>& rows) {
  return {data, static_cast<std::size_t>(rows.count() * rows.shape.hidden)};
}

/// The gradient of the embedding from d_stream, the whole one on every rank.
template <typename T>
void embedding_gradient(const TrunkRows<T>& rows,
                        const PackedBatch& batch,
                        const T* d_stream,
                        T* gradient) {
  cpu::embedding_backward({rows.shape.hidden, rows.shape.first_token, rows.shape.vocabulary},
                          std::span<const std::int32_t>(batch.tokens),
                          d_stream,
                          gradient);
}

}  // namespace

template <typename T>
std::span<const T> stage_forward(const Model<T>& model,
                                 const PackedBatch& batch,
                                 const T* input,
                                 Recompute recompute,
                                 Activations<T>& activations) {
  const ModelSpec& spec = *model.spec;
  const ModelShard& shard = model.layout->shard;
  check_batch(spec, batch);
  check_groups(shard, model.groups);
  check(batch.token_count() == 0 || (input == nullptr) == shard.has_embedding,
        "only the first stage of a pipeline embeds its tokens");
  const StageBuffers<T> buffers =
      place_stage(model, batch, recompute, Direction::kForward, activations);
  fill_angles(spec, longest_sequence(batch), buffers.kept.cosine, buffers.kept.sine);
  const std::vector<std::int32_t> positions = packed_positions(batch);
  const TrunkRows<T> rows = stage_rows(model, positions, buffers);
  T* stream = buffers.layers.empty() ? buffers.kept.output : buffers.layers.front().input;
  if (shard.has_embedding) {
    embed(model, batch.tokens, stream);
  } else {
    std::copy_n(input, rows.count() * rows.shape.hidden, stream);
  }
  for (std::int64_t i = 0; i < rows.shape.layers; ++i) {
    const LayerActivations<T>& layer = buffers.layers[static_cast<std::size_t>(i)];
    project_qkv(rows, i, layer);
    cpu::attention_forward(rows.shape.attention,
                           std::span(batch.starts),
                           layer.qkv,
                           layer.attention,
                           layer.log_sum_exp,
                           buffers.passing.attention);
    const bool last = i + 1 == rows.shape.layers;
    finish_layer(
        rows,
        i,
        layer,
        last ? buffers.kept.output : buffers.layers[static_cast<std::size_t>(i) + 1].input);
  }
  if (!shard.has_head) {
    return hidden_rows<T>(buffers.kept.output, rows);
  }
  cpu::rmsnorm_forward(final_norm_shape(rows),
                       buffers.kept.output,
                       model.weights.data() + final_norm_offset(*model.layout),
                       buffers.kept.final_norm,
                       buffers.kept.final_rms);
  return hidden_rows<T>(buffers.kept.final_norm, rows);
}

template <typename T>
std::span<const T> stage_backward(const Model<T>& model,
                                  const PackedBatch& batch,
                                  std::span<const T> d_output,
                                  Recompute recompute,
                                  Activations<T>& activations,
                                  std::span<T> gradient) {
  const ModelShard& shard = model.layout->shard;
  const StageBuffers<T> buffers =
      place_stage(model, batch, recompute, Direction::kBackward, activations);
  const std::vector<std::int32_t> positions = packed_positions(batch);
  const TrunkRows<T> rows = stage_rows(model, positions, buffers);
  T* d_stream = buffers.backward.d_stream;
  const std::int64_t count = rows.count() * rows.shape.hidden;
  check(static_cast<std::int64_t>(d_output.size()) == count,
        "stage_backward needs one derivative per element of the stage's output");
  if (shard.has_head) {
    const std::int64_t norm = final_norm_offset(*model.layout);
    std::fill_n(d_stream, count, T(0));
    cpu::rmsnorm_backward(final_norm_shape(rows),
                          buffers.kept.output,
                          model.weights.data() + norm,
                          buffers.kept.final_rms,
                          d_output.data(),
                          d_stream,
                          gradient.data() + norm);
  } else {
    std::copy_n(d_output.data(), count, d_stream);
  }
  for (std::int64_t i = rows.shape.layers - 1; i >= 0; --i) {
    const LayerActivations<T>& layer = buffers.layers[static_cast<std::size_t>(i)];
    const std::span<const std::int64_t> starts(batch.starts);
    recompute_layer(rows, starts, i, recompute, layer, buffers.passing.attention);
    layer_backward(
        rows, starts, i, layer, buffers.backward, buffers.passing.attention, gradient.data());
  }
  if (!shard.has_embedding) {
    return hidden_rows<T>(d_stream, rows);
  }
  embedding_gradient(rows, batch, static_cast<const T*>(d_stream), gradient.data());
  return {};
}

template <typename T>
std::span<const T> stage_output(const Model<T>& model,
                                const PackedBatch& batch,
                                Recompute recompute,
                                Activations<T>& activations) {
  const StageBuffers<T> buffers =
      place_stage(model, batch, recompute, Direction::kForward, activations);
  const T* output = model.layout->shard.has_head ? buffers.kept.final_norm : buffers.kept.output;
  return {output, static_cast<std::size_t>(batch.token_count() * model.spec->hidden_dim)};
}

template std::span<const float> stage_forward(
    const Model<float>&, const PackedBatch&, const float*, Recompute, Activations<float>&);
template std::span<const double> stage_forward(
    const Model<double>&, const PackedBatch&, const double*, Recompute, Activations<double>&);
template std::span<const float> stage_backward(const Model<float>&,
                                               const PackedBatch&,
                                               std::span<const float>,
                                               Recompute,
                                               Activations<float>&,
                                               std::span<float>);
template std::span<const double> stage_backward(const Model<double>&,
                                                const PackedBatch&,
                                                std::span<const double>,
                                                Recompute,
                                                Activations<double>&,
                                                std::span<double>);
template std::span<const float> stage_output(const Model<float>&,
                                             const PackedBatch&,
                                             Recompute,
                                             Activations<float>&);
template std::span<const double> stage_output(const Model<double>&,
                                              const PackedBatch&,
                                              Recompute,
                                              Activations<double>&);

}  // namespace rpeg
