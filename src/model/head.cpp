#include <algorithm>
#include <cstring>

#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/add.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/token_scores.h"
#include "rpeg/model/stage.h"

namespace rpeg {
namespace {

// Logits held at a time: enough rows for an efficient product, few enough to stay in cache.
constexpr std::int64_t kLogitsInBlock = std::int64_t{1} << 18;
constexpr std::int64_t kLeastRowsInBlock = 32;

/// The head's work on one block of predictions; V is the rank's part of the vocabulary.
template <typename T>
struct HeadBlock {
  T* input;      // (rows, h)
  T* d_input;    // (rows, h)
  T* logits;     // (rows, V)
  T* maxima;     // (rows)
  T* sums;       // (rows, kTokenSums)
  T* by_row[2];  // (rows) each: log-probability and entropy, or their derivatives
};

template <typename T>
HeadBlock<T> place_head(const LocalShape& shape, std::int64_t rows, std::vector<T>& scratch) {
  const auto place = [&](Arena<T>& arena) {
    HeadBlock<T> block{};
    block.input = arena.take(rows * shape.hidden);
    block.d_input = arena.take(rows * shape.hidden);
    block.logits = arena.take(rows * shape.vocabulary);
    block.maxima = arena.take(rows);
    block.sums = arena.take(rows * cpu::kTokenSums);
    block.by_row[0] = arena.take(rows);
    block.by_row[1] = arena.take(rows);
    return block;
  };
  Arena<T> measured;
  place(measured);
  Arena<T> arena(scratch, measured);
  return place(arena);
}

/// The ranks' largest logit of each row.
template <typename T>
void max_over_tensor(const ShardGroups& groups, std::span<T> maxima) {
  if (groups.tensor == nullptr || groups.tensor->size() == 1) {
    return;
  }
  for (const Bytes& part : groups.tensor->all_gather(std::as_bytes(maxima))) {
    check(part.size() == maxima.size_bytes(), "the ranks of a head have different batches");
    for (std::size_t i = 0; i < maxima.size(); ++i) {
      T other{};
      std::memcpy(&other, part.data() + i * sizeof(T), sizeof(T));
      maxima[i] = std::max(maxima[i], other);
    }
  }
}

/// Walks over the predictions of a batch block by block.
template <typename T>
class HeadWalk {
 public:
  HeadWalk(const Model<T>& model,
           const PackedBatch& batch,
           std::span<const T> hidden,
           double temperature,
           std::vector<std::int64_t> predictions,
           std::vector<T>& scratch)
      : model_(model),
        batch_(batch),
        hidden_(hidden.data()),
        temperature_(temperature),
        shape_(local_shape(*model.spec, model.layout->shard)),
        head_(language_head_offset(*model.layout)),
        predictions_(std::move(predictions)) {
    check(static_cast<std::int64_t>(hidden.size()) == batch.token_count() * shape_.hidden,
          "the head needs one hidden row per token");
    // The same blocks on all ranks, though their parts of the vocabulary differ by a row.
    const std::int64_t vocabulary = model.spec->vocab_size / model.layout->shard.tp + 1;
    block_rows_ = std::min(static_cast<std::int64_t>(predictions_.size()),
                           std::max(kLeastRowsInBlock, kLogitsInBlock / vocabulary));
    block_ = place_head(shape_, block_rows_, scratch);
  }

  /// Calls `use(tokens predicted, shape, targets, block)` with the sums over the whole vocabulary
  /// in block.sums and the rank's z (see token_scores.h) in block.logits.
  template <typename Use>
  void for_each_block(Use use) {
    const std::span<const std::int64_t> all(predictions_);
    for (std::size_t first = 0; first < all.size();) {
      const auto chosen =
          all.subspan(first, std::min(static_cast<std::size_t>(block_rows_), all.size() - first));
      const auto rows = static_cast<std::int64_t>(chosen.size());
      const cpu::ScoreShape scores{rows, shape_.vocabulary, temperature_, shape_.first_token};
      std::vector<std::int32_t> targets;
      targets.reserve(chosen.size());
      for (const std::int64_t t : chosen) {
        targets.push_back(batch_.tokens[static_cast<std::size_t>(t)]);
      }
      form_sums(chosen, scores, targets);
      use(chosen, scores, std::span<const std::int32_t>(targets), block_);
      first += chosen.size();
    }
  }

  cpu::LinearShape linear(std::int64_t rows) const {
    return {rows, shape_.vocabulary, shape_.hidden};
  }
  std::int64_t hidden_dim() const { return shape_.hidden; }
  std::int64_t head() const { return head_; }

 private:
  void form_sums(std::span<const std::int64_t> chosen,
                 const cpu::ScoreShape& scores,
                 std::span<const std::int32_t> targets) {
    const std::int64_t h = shape_.hidden;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      std::copy_n(
          hidden_ + (chosen[i] - 1) * h, h, block_.input + static_cast<std::int64_t>(i) * h);
    }
    cpu::linear_forward(
        linear(scores.rows), block_.input, model_.weights.data() + head_, block_.logits);
    cpu::logit_maxima(scores, block_.logits, block_.maxima);
    max_over_tensor(model_.groups, std::span<T>(block_.maxima, chosen.size()));
    cpu::token_sums(scores, targets, block_.maxima, block_.logits, block_.sums);
    sum_over_tensor(model_.groups, block_.sums, scores.rows * cpu::kTokenSums);
  }

  const Model<T>& model_;
  const PackedBatch& batch_;
  const T* hidden_;
  double temperature_;
  LocalShape shape_;
  std::int64_t head_;
  std::vector<std::int64_t> predictions_;
  std::int64_t block_rows_ = 0;
  HeadBlock<T> block_{};
};

/// The tokens that have a predecessor in their sequence and satisfy `is_needed(t)`.
template <typename Needed>
std::vector<std::int64_t> predicted_tokens(const PackedBatch& batch, Needed is_needed) {
  std::vector<std::int64_t> predictions;
  for (std::size_t i = 1; i < batch.starts.size(); ++i) {
    for (std::int64_t t = batch.starts[i - 1] + 1; t < batch.starts[i]; ++t) {
      if (is_needed(t)) {
        predictions.push_back(t);
      }
    }
  }
  return predictions;
}

}  // namespace

template <typename T>
void head_scores(const Model<T>& model,
                 const PackedBatch& batch,
                 std::span<const T> hidden,
                 T temperature,
                 std::vector<T>& scratch,
                 TokenScores<T>& scores) {
  scores.logprob.assign(batch.tokens.size(), T(0));
  scores.entropy.assign(batch.tokens.size(), T(0));
  HeadWalk<T> walk(model,
                   batch,
                   hidden,
                   static_cast<double>(temperature),
                   predicted_tokens(batch, [](std::int64_t) { return true; }),
                   scratch);
  walk.for_each_block(
      [&](auto chosen, const cpu::ScoreShape& shape, auto, const HeadBlock<T>& block) {
        cpu::token_scores(shape.rows, block.sums, block.by_row[0], block.by_row[1]);
        for (std::size_t i = 0; i < chosen.size(); ++i) {
          scores.logprob[static_cast<std::size_t>(chosen[i])] = block.by_row[0][i];
          scores.entropy[static_cast<std::size_t>(chosen[i])] = block.by_row[1][i];
        }
      });
}

template <typename T>
void head_scores_backward(const Model<T>& model,
                          const PackedBatch& batch,
                          std::span<const T> hidden,
                          T temperature,
                          std::span<const T> d_logprob,
                          std::span<const T> d_entropy,
                          std::vector<T>& scratch,
                          std::span<T> d_hidden,
                          std::span<T> gradient) {
  const std::size_t tokens = batch.tokens.size();
  check(d_logprob.size() == tokens && (d_entropy.empty() || d_entropy.size() == tokens),
        "head_scores_backward needs one derivative per token");
  check(d_hidden.size() == hidden.size(), "d_hidden has the size of hidden");
  const auto by_logprob = [&](std::int64_t t) { return d_logprob[static_cast<std::size_t>(t)]; };
  const auto by_entropy = [&](std::int64_t t) {
    return d_entropy.empty() ? T(0) : d_entropy[static_cast<std::size_t>(t)];
  };
  // A token outside the loss (a prompt, a masked response) costs nothing.
  HeadWalk<T> walk(
      model,
      batch,
      hidden,
      static_cast<double>(temperature),
      predicted_tokens(
          batch, [&](std::int64_t t) { return by_logprob(t) != T(0) || by_entropy(t) != T(0); }),
      scratch);
  const std::int64_t h = walk.hidden_dim();
  walk.for_each_block([&](auto chosen,
                          const cpu::ScoreShape& shape,
                          std::span<const std::int32_t> targets,
                          const HeadBlock<T>& block) {
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      block.by_row[0][i] = by_logprob(chosen[i]);
      block.by_row[1][i] = by_entropy(chosen[i]);
    }
    cpu::token_scores_backward(
        shape, targets, block.sums, block.by_row[0], block.by_row[1], block.logits);
    const cpu::LinearShape linear = walk.linear(shape.rows);
    cpu::linear_backward_weight(linear, block.logits, block.input, gradient.data() + walk.head());
    cpu::linear_backward_input(
        linear, block.logits, model.weights.data() + walk.head(), block.d_input);
    sum_over_tensor(model.groups, block.d_input, shape.rows * h);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      cpu::add(h,
               block.d_input + static_cast<std::int64_t>(i) * h,
               d_hidden.data() + (chosen[i] - 1) * h);
    }
  });
}

template <typename T>
void head_values(const Model<T>& model, std::span<const T> hidden, std::vector<T>& values) {
  const std::int64_t h = model.spec->hidden_dim;
  const std::int64_t rows = static_cast<std::int64_t>(hidden.size()) / h;
  values.resize(static_cast<std::size_t>(rows));
  cpu::linear_forward({rows, 1, h},
                      hidden.data(),
                      model.weights.data() + scalar_head_offset(*model.layout),
                      values.data());
}

template <typename T>
void head_values_backward(const Model<T>& model,
                          std::span<const T> hidden,
                          std::span<const T> d_values,
                          std::span<T> d_hidden,
                          std::span<T> gradient) {
  const std::int64_t h = model.spec->hidden_dim;
  const std::int64_t rows = static_cast<std::int64_t>(hidden.size()) / h;
  check(static_cast<std::int64_t>(d_values.size()) == rows && d_hidden.size() == hidden.size(),
        "head_values_backward needs one derivative per token");
  const std::int64_t head = scalar_head_offset(*model.layout);
  cpu::linear_backward_weight({rows, 1, h}, d_values.data(), hidden.data(), gradient.data() + head);
  cpu::add_scaled_rows(rows, h, d_values.data(), model.weights.data() + head, d_hidden.data());
}

template void head_scores(const Model<float>&,
                          const PackedBatch&,
                          std::span<const float>,
                          float,
                          std::vector<float>&,
                          TokenScores<float>&);
template void head_scores(const Model<double>&,
                          const PackedBatch&,
                          std::span<const double>,
                          double,
                          std::vector<double>&,
                          TokenScores<double>&);
template void head_scores_backward(const Model<float>&,
                                   const PackedBatch&,
                                   std::span<const float>,
                                   float,
                                   std::span<const float>,
                                   std::span<const float>,
                                   std::vector<float>&,
                                   std::span<float>,
                                   std::span<float>);
template void head_scores_backward(const Model<double>&,
                                   const PackedBatch&,
                                   std::span<const double>,
                                   double,
                                   std::span<const double>,
                                   std::span<const double>,
                                   std::vector<double>&,
                                   std::span<double>,
                                   std::span<double>);
template void head_values(const Model<float>&, std::span<const float>, std::vector<float>&);
template void head_values(const Model<double>&, std::span<const double>, std::vector<double>&);
template void head_values_backward(const Model<float>&,
                                   std::span<const float>,
                                   std::span<const float>,
                                   std::span<float>,
                                   std::span<float>);
template void head_values_backward(const Model<double>&,
                                   std::span<const double>,
                                   std::span<const double>,
                                   std::span<double>,
                                   std::span<double>);

}  // namespace rpeg
