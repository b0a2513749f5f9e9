#include "cost/shard.h"

#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/cost/cost_model.h"

namespace rpeg {
namespace {

double d(std::int64_t value) { return static_cast<double>(value); }

}  // namespace

ElementBytes element_bytes(TrainDtype dtype) {
  switch (dtype) {
    case TrainDtype::kBf16:
      // Update: master, m and v read and written (24), gradient read (4), weight written (2).
      return {.weight = 2, .activation = 2, .kv = 2, .gradient = 4, .optimizer = 12, .update = 30};
    case TrainDtype::kFp32:
      // The weights are their own master: weight, m and v read and written (24), gradient read (4).
      return {.weight = 4, .activation = 4, .kv = 4, .gradient = 4, .optimizer = 8, .update = 28};
  }
  throw Error(ErrorKind::kInternal, "cost: unknown dtype");
}

Head head_of(const Vertex& vertex) {
  switch (vertex.op) {
    case Op::kInferReward:
    case Op::kInferValue:
      return Head::kScalar;
    case Op::kTrainJoint:
      return Head::kBoth;
    case Op::kTrain:
      return vertex.model == ModelRole::kCritic ? Head::kScalar : Head::kLanguageModel;
    case Op::kGenerate:
    case Op::kInferReference:
    case Op::kInferActor:
      return Head::kLanguageModel;
  }
  throw Error(ErrorKind::kInternal, "cost: unknown op");
}

double padded_vocab(const ModelSpec& spec, int tp) {
  if (tp == 1) return d(spec.vocab_size);
  const double multiple = 128.0 * tp;
  return std::ceil(d(spec.vocab_size) / multiple) * multiple;
}

double local_kv_heads(const ModelSpec& spec, int tp) {
  return std::ceil(d(spec.num_kv_heads) / tp);
}

double layer_matrix_elements(const ModelSpec& spec, int tp) {
  const double query_and_output = 2.0 * d(spec.hidden_dim * spec.num_heads * spec.head_dim) / tp;
  const double key_and_value = 2.0 * d(spec.hidden_dim * spec.head_dim) * local_kv_heads(spec, tp);
  const double ffn = (spec.gated_ffn ? 3.0 : 2.0) * d(spec.hidden_dim * spec.ffn_dim) / tp;
  return query_and_output + key_and_value + ffn;
}

double head_elements(const ModelSpec& spec, Head head, int tp) {
  const double hidden = d(spec.hidden_dim);
  return (has_vocabulary(head) ? padded_vocab(spec, tp) * hidden / tp : 0.0) +
         (has_scalar(head) ? hidden : 0.0);
}

double stage_layer_count(const ModelSpec& spec, int pp, int stage) {
  const auto [first, last] = stage_layers(spec.layers, pp, stage);
  return d(last - first);
}

double stage_elements(const ModelSpec& spec, Head head, const Parallelism& parallelism, int stage) {
  const int tp = parallelism.tp;
  const double hidden = d(spec.hidden_dim);
  const bool is_first = stage == 0;
  const bool is_last = stage == parallelism.pp - 1;
  double elements = stage_layer_count(spec, parallelism.pp, stage) *
                    (layer_matrix_elements(spec, tp) + 2.0 * hidden);
  if (is_first) elements += padded_vocab(spec, tp) * hidden / tp;
  if (is_last) {
    elements += hidden + head_elements(spec, head, tp);  // the final norm, and the heads
    const bool head_is_the_table = is_first && spec.tied_embeddings && has_vocabulary(head);
    if (head_is_the_table) elements -= head_elements(spec, Head::kLanguageModel, tp);
  }
  return elements;
}

double largest_stage_elements(const ModelSpec& spec, Head head, const Parallelism& parallelism) {
  return std::max(stage_elements(spec, head, parallelism, 0),
                  stage_elements(spec, head, parallelism, parallelism.pp - 1));
}

std::int64_t parameter_count(const ModelSpec& spec, bool scalar_head) {
  const std::int64_t h = spec.hidden_dim;
  const std::int64_t attention =
      2 * h * spec.num_heads * spec.head_dim + 2 * h * spec.num_kv_heads * spec.head_dim;
  const std::int64_t ffn = (spec.gated_ffn ? 3 : 2) * h * spec.ffn_dim;
  const std::int64_t trunk = spec.layers * (attention + ffn + 2 * h) + h;
  const std::int64_t table = spec.vocab_size * h;
  if (scalar_head) return trunk + table + h;
  return trunk + table * (spec.tied_embeddings ? 1 : 2);
}

}  // namespace rpeg
