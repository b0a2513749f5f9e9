#include <algorithm>

#include "model/batch.h"
#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/model/stage.h"

namespace rpeg {
namespace {

/// One layer's buffers serve all layers.
template <typename T>
struct InferenceBuffers {
  T* cosine;
  T* sine;
  LayerActivations<T> layer;  // the residual stream lies in input = middle
  T* partial;                 // see TrunkRows
  T* attention;
};

template <typename T>
InferenceBuffers<T> place_inference(const LocalShape& shape,
                                    const ModelShard& shard,
                                    const PackedBatch& batch,
                                    std::vector<T>& storage) {
  const std::int64_t rows = batch.token_count();
  const std::int64_t angles = longest_sequence(batch) * shape.attention.head_dim / 2;
  const auto place = [&](Arena<T>& arena) {
    InferenceBuffers<T> buffers{};
    buffers.cosine = arena.take(angles);
    buffers.sine = arena.take(angles);
    buffers.layer = place_reused_layer(shape, rows, arena);
    buffers.partial = arena.take(shard.tp > 1 ? rows * shape.hidden : 0);
    buffers.attention = arena.take(cpu::attention_scratch_size(batch.starts));
    return buffers;
  };
  Arena<T> measured;
  place(measured);
  Arena<T> arena(storage, measured);
  return place(arena);
}

}  // namespace

template <typename T>
std::span<const T> stage_infer(const Model<T>& model,
                               const PackedBatch& batch,
                               const T* input,
                               Activations<T>& activations) {
  const ModelSpec& spec = *model.spec;
  const ModelShard& shard = model.layout->shard;
  check_batch(spec, batch);
  check_groups(shard, model.groups);
  check(batch.token_count() == 0 || (input == nullptr) == shard.has_embedding,
        "only the first stage of a pipeline embeds its tokens");
  const LocalShape shape = local_shape(spec, shard);
  const auto buffers = place_inference(shape, shard, batch, activations.storage);
  const LayerActivations<T>& layer = buffers.layer;
  fill_angles(spec, longest_sequence(batch), buffers.cosine, buffers.sine);
  const std::vector<std::int32_t> positions = packed_positions(batch);
  const TrunkRows<T> rows{model, shape, positions, buffers.cosine, buffers.sine, buffers.partial};
  const std::int64_t count = rows.count() * shape.hidden;
  if (shard.has_embedding) {
    embed(model, batch.tokens, layer.input);
  } else {
    std::copy_n(input, count, layer.input);
  }
  for (std::int64_t i = 0; i < shape.layers; ++i) {
    project_qkv(rows, i, layer);
    cpu::attention_forward(shape.attention,
                           std::span(batch.starts),
                           layer.qkv,
                           layer.attention,
                           layer.log_sum_exp,
                           buffers.attention);
    finish_layer(rows, i, layer, layer.middle);
  }
  const T* output = layer.input;
  if (shard.has_head) {
    cpu::rmsnorm_forward({rows.count(), shape.hidden, spec.rms_norm_eps},
                         layer.input,
                         model.weights.data() + final_norm_offset(*model.layout),
                         layer.input_norm,
                         layer.input_rms);
    output = layer.input_norm;
  }
  return {output, static_cast<std::size_t>(count)};
}

template std::span<const float> stage_infer(const Model<float>&,
                                            const PackedBatch&,
                                            const float*,
                                            Activations<float>&);
template std::span<const double> stage_infer(const Model<double>&,
                                             const PackedBatch&,
                                             const double*,
                                             Activations<double>&);

}  // namespace rpeg
