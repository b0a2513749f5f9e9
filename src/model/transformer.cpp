#include "rpeg/model/transformer.h"

#include <algorithm>

#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/token_scores.h"

namespace rpeg {
namespace {

// Logits held at a time: enough rows for an efficient product, few enough to stay in cache.
constexpr std::int64_t kLogitsInBlock = std::int64_t{1} << 18;
constexpr std::int64_t kLeastRowsInBlock = 32;

std::int64_t rows_per_block(const ModelSpec& spec, std::int64_t rows) {
  return std::min(rows, std::max(kLeastRowsInBlock, kLogitsInBlock / spec.vocab_size));
}

/// The head's work on one block of predictions.
template <typename T>
struct HeadBlock {
  T* input;      // (rows, h)
  T* d_input;    // (rows, h)
  T* logits;     // (rows, V)
  T* by_row[2];  // (rows) each: log-probability and entropy, or their derivatives
};

template <typename T>
HeadBlock<T> place_head(const ModelSpec& spec, std::int64_t rows, Arena<T>& arena) {
  HeadBlock<T> block{};
  block.input = arena.take(rows * spec.hidden_dim);
  block.d_input = arena.take(rows * spec.hidden_dim);
  block.logits = arena.take(rows * spec.vocab_size);
  block.by_row[0] = arena.take(rows);
  block.by_row[1] = arena.take(rows);
  return block;
}

/// Copies row `from(i)` of `source` (., h) to row `to(i)` of `target` for every i < count.
template <typename T, typename From, typename To>
void move_rows(
    const T* source, T* target, std::int64_t width, std::size_t count, From from, To to) {
  for (std::size_t i = 0; i < count; ++i) {
    std::copy_n(source + from(i) * width, width, target + to(i) * width);
  }
}

std::vector<std::int32_t> targets_of(const PackedBatch& batch,
                                     std::span<const std::int64_t> predictions) {
  std::vector<std::int32_t> targets;
  targets.reserve(predictions.size());
  for (const std::int64_t t : predictions) {
    targets.push_back(batch.tokens[static_cast<std::size_t>(t)]);
  }
  return targets;
}

/// Calls `visit(t)` for every token that has a predecessor in its sequence.
template <typename Visit>
void for_each_prediction(const PackedBatch& batch, Visit visit) {
  for (std::size_t i = 1; i < batch.starts.size(); ++i) {
    for (std::int64_t t = batch.starts[i - 1] + 1; t < batch.starts[i]; ++t) {
      visit(t);
    }
  }
}

/// Calls `work(predictions, targets)` for block after block.
template <typename Work>
void for_each_block(const PackedBatch& batch,
                    std::span<const std::int64_t> predictions,
                    std::int64_t rows,
                    Work work) {
  for (std::size_t first = 0; first < predictions.size();) {
    const std::size_t count = std::min(static_cast<std::size_t>(rows), predictions.size() - first);
    const auto block = predictions.subspan(first, count);
    work(block, targets_of(batch, block));
    first += count;
  }
}

/// Gathers the hidden rows that predict the tokens `predictions` and forms their logits.
template <typename T>
void block_logits(const Model<T>& model,
                  const T* final_norm,
                  std::span<const std::int64_t> predictions,
                  const HeadBlock<T>& block) {
  const ModelSpec& spec = *model.spec;
  move_rows(
      final_norm,
      block.input,
      spec.hidden_dim,
      predictions.size(),
      [&](std::size_t i) { return predictions[i] - 1; },
      [](std::size_t i) { return static_cast<std::int64_t>(i); });
  cpu::linear_forward(
      {static_cast<std::int64_t>(predictions.size()), spec.vocab_size, spec.hidden_dim},
      block.input,
      model.weights.data() + head_offset(*model.layout),
      block.logits);
}

/// Takes one block of predictions from the derivatives in block.by_row to d_final_norm and to the
/// gradient of the head.
template <typename T>
void block_backward(const Model<T>& model,
                    std::span<const std::int64_t> predictions,
                    std::span<const std::int32_t> targets,
                    double temperature,
                    const HeadBlock<T>& block,
                    T* d_final_norm,
                    T* gradient) {
  const ModelSpec& spec = *model.spec;
  const std::int64_t head = head_offset(*model.layout);
  const auto rows = static_cast<std::int64_t>(predictions.size());
  const cpu::LinearShape shape{rows, spec.vocab_size, spec.hidden_dim};
  cpu::token_scores_backward({rows, spec.vocab_size, temperature},
                             targets,
                             block.by_row[0],
                             block.by_row[1],
                             block.logits);
  cpu::linear_backward_weight(shape, block.logits, block.input, gradient + head);
  cpu::linear_backward_input(shape, block.logits, model.weights.data() + head, block.d_input);
  move_rows(
      block.d_input,
      d_final_norm,
      spec.hidden_dim,
      predictions.size(),
      [](std::size_t i) { return static_cast<std::int64_t>(i); },
      [&](std::size_t i) { return predictions[i] - 1; });
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
  const ModelSpec& spec = *model.spec;
  const TrunkActivations<T> trunk = trunk_forward(model, batch, activations);
  scores.logprob.assign(batch.tokens.size(), T(0));
  scores.entropy.assign(batch.tokens.size(), T(0));
  std::vector<std::int64_t> predictions;
  for_each_prediction(batch, [&](std::int64_t t) { predictions.push_back(t); });

  const std::int64_t rows = rows_per_block(spec, static_cast<std::int64_t>(predictions.size()));
  Arena<T> measured;
  place_head(spec, rows, measured);
  Arena<T> arena(activations.scratch, measured);
  const HeadBlock<T> block = place_head(spec, rows, arena);
  for_each_block(batch, predictions, rows, [&](auto chosen, const auto& targets) {
    block_logits(model, trunk.final_norm, chosen, block);
    cpu::token_scores_forward({static_cast<std::int64_t>(chosen.size()),
                               spec.vocab_size,
                               static_cast<double>(temperature)},
                              std::span<const std::int32_t>(targets),
                              block.logits,
                              block.by_row[0],
                              block.by_row[1]);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      scores.logprob[static_cast<std::size_t>(chosen[i])] = block.by_row[0][i];
      scores.entropy[static_cast<std::size_t>(chosen[i])] = block.by_row[1][i];
    }
  });
}

template <typename T>
void backward_scores(const Model<T>& model,
                     const PackedBatch& batch,
                     T temperature,
                     Activations<T>& activations,
                     std::span<const T> d_logprob,
                     std::span<const T> d_entropy,
                     std::span<T> gradient) {
  const ModelSpec& spec = *model.spec;
  const auto tokens = static_cast<std::size_t>(batch.token_count());
  check(d_logprob.size() == tokens && (d_entropy.empty() || d_entropy.size() == tokens),
        "backward_scores needs one derivative per token");
  const auto by_logprob = [&](std::int64_t t) { return d_logprob[static_cast<std::size_t>(t)]; };
  const auto by_entropy = [&](std::int64_t t) {
    return d_entropy.empty() ? T(0) : d_entropy[static_cast<std::size_t>(t)];
  };
  // A token outside the loss (a prompt, a masked response) costs nothing.
  std::vector<std::int64_t> predictions;
  for_each_prediction(batch, [&](std::int64_t t) {
    if (by_logprob(t) != T(0) || by_entropy(t) != T(0)) {
      predictions.push_back(t);
    }
  });

  const std::int64_t rows = rows_per_block(spec, static_cast<std::int64_t>(predictions.size()));
  const std::int64_t hidden = batch.token_count() * spec.hidden_dim;
  const TrunkActivations<T> trunk = place_trunk(spec, batch, activations.storage);
  Arena<T> measured;
  measured.take(hidden);
  place_head(spec, rows, measured);
  place_backward(spec, batch, measured);
  Arena<T> arena(activations.scratch, measured);
  T* d_final_norm = arena.take(hidden);
  const HeadBlock<T> block = place_head(spec, rows, arena);
  const BackwardScratch<T> scratch = place_backward(spec, batch, arena);

  std::fill_n(d_final_norm, hidden, T(0));
  for_each_block(batch, predictions, rows, [&](auto chosen, const auto& targets) {
    block_logits(model, trunk.final_norm, chosen, block);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      block.by_row[0][i] = by_logprob(chosen[i]);
      block.by_row[1][i] = by_entropy(chosen[i]);
    }
    block_backward(model,
                   chosen,
                   targets,
                   static_cast<double>(temperature),
                   block,
                   d_final_norm,
                   gradient.data());
  });
  trunk_backward(model, batch, trunk, scratch, d_final_norm, gradient);
}

template <typename T>
void forward_values(const Model<T>& model,
                    const PackedBatch& batch,
                    Activations<T>& activations,
                    std::vector<T>& values) {
  const TrunkActivations<T> trunk = trunk_forward(model, batch, activations);
  values.resize(batch.tokens.size());
  cpu::linear_forward({batch.token_count(), 1, model.spec->hidden_dim},
                      trunk.final_norm,
                      model.weights.data() + head_offset(*model.layout),
                      values.data());
}

template <typename T>
void backward_values(const Model<T>& model,
                     const PackedBatch& batch,
                     Activations<T>& activations,
                     std::span<const T> d_values,
                     std::span<T> gradient) {
  const ModelSpec& spec = *model.spec;
  check(static_cast<std::int64_t>(d_values.size()) == batch.token_count(),
        "backward_values needs one derivative per token");
  const std::int64_t head = head_offset(*model.layout);
  const std::int64_t hidden = batch.token_count() * spec.hidden_dim;
  const TrunkActivations<T> trunk = place_trunk(spec, batch, activations.storage);
  Arena<T> measured;
  measured.take(hidden);
  place_backward(spec, batch, measured);
  Arena<T> arena(activations.scratch, measured);
  T* d_final_norm = arena.take(hidden);
  const BackwardScratch<T> scratch = place_backward(spec, batch, arena);
  const cpu::LinearShape shape{batch.token_count(), 1, spec.hidden_dim};
  cpu::linear_backward_weight(shape, d_values.data(), trunk.final_norm, gradient.data() + head);
  cpu::linear_backward_input(shape, d_values.data(), model.weights.data() + head, d_final_norm);
  trunk_backward(model, batch, trunk, scratch, d_final_norm, gradient);
}

template <typename T>
std::vector<T> forward_logits(const Model<T>& model, const PackedBatch& batch) {
  Activations<T> activations;
  const TrunkActivations<T> trunk = trunk_forward(model, batch, activations);
  std::vector<T> logits(static_cast<std::size_t>(batch.token_count() * model.spec->vocab_size));
  cpu::linear_forward({batch.token_count(), model.spec->vocab_size, model.spec->hidden_dim},
                      trunk.final_norm,
                      model.weights.data() + head_offset(*model.layout),
                      logits.data());
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
