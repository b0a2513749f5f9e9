#include "model/token_draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/arena.h"
#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/sampling.h"
#include "rpeg/kernels/token_scores.h"

namespace rpeg {
namespace {

// Logits formed at a time: a bound on scratch memory.
constexpr std::int64_t kLogitsInBlock = std::int64_t{1} << 18;
constexpr std::int64_t kLeastRowsInBlock = 32;

/// One block of rows; V is the rank's part of the vocabulary.
struct LogitBlock {
  float* logits;   // (rows, V)
  float* maxima;   // (rows)
  float* sum_exp;  // (rows)
};

LogitBlock place_block(std::int64_t rows, std::int64_t vocabulary, std::vector<float>& storage) {
  const auto place = [&](Arena<float>& arena) {
    LogitBlock block{};
    block.logits = arena.take(rows * vocabulary);
    block.maxima = arena.take(rows);
    block.sum_exp = arena.take(rows);
    return block;
  };
  Arena<float> measured;
  place(measured);
  Arena<float> arena(storage, measured);
  return place(arena);
}

class TokenDraw {
 public:
  TokenDraw(const Model<float>& model, const SamplingOptions& options, DrawScratch& scratch)
      : model_(model),
        options_(options),
        shape_(local_shape(*model.spec, model.layout->shard)),
        ranks_(model.layout->shard.tp),
        scratch_(scratch) {}

  /// Rows of a block: the same on all ranks, though their parts of the vocabulary differ by one.
  std::int64_t rows_in_block(std::int64_t rows) const {
    const std::int64_t widest = model_.spec->vocab_size / ranks_ + 1;
    return std::min(rows, std::max(kLeastRowsInBlock, kLogitsInBlock / widest));
  }

  /// Draws for `places`, whose rows count from `first`, given the normed rows from `first` on.
  void draw_block(std::int64_t first,
                  std::int64_t rows,
                  const float* normed,
                  std::span<const DrawPlace> places,
                  std::vector<DrawnToken>& drawn) {
    const LogitBlock block = place_block(rows, shape_.vocabulary, scratch_.storage);
    cpu::linear_forward({rows, shape_.vocabulary, shape_.hidden},
                        normed,
                        model_.weights.data() + language_head_offset(*model_.layout),
                        block.logits);
    const double temperature = options_.greedy ? 1.0 : options_.temperature;
    cpu::logit_maxima({rows, shape_.vocabulary, temperature}, block.logits, block.maxima);
    combine_maxima(rows, block.maxima);
    cpu::relative_logits(
        rows, shape_.vocabulary, temperature, block.maxima, block.logits, block.sum_exp);
    const std::vector<float> log_sums = log_sums_of_vocabulary(rows, block.sum_exp);
    const std::vector<Candidate> best = is_truncated(options_)
                                            ? choose_in_whole(first, block, rows, places)
                                            : choose_in_parts(first, block, places);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const float log_sum = log_sums[static_cast<std::size_t>(places[i].row - first)];
      drawn.push_back({best[i].token, best[i].relative_logit - log_sum});
    }
  }

 private:
  /// What every tensor-parallel rank passes, by rank, end to end.
  template <typename T>
  std::vector<T> gather(std::span<const T> mine) const {
    if (ranks_ == 1) {
      return {mine.begin(), mine.end()};
    }
    std::vector<T> all;
    for (const Bytes& part : model_.groups.tensor->all_gather(std::as_bytes(mine))) {
      const std::size_t before = all.size();
      all.resize(before + part.size() / sizeof(T));
      if (!part.empty()) {
        std::memcpy(all.data() + before, part.data(), part.size());
      }
    }
    return all;
  }

  void combine_maxima(std::int64_t rows, float* maxima) const {
    const auto count = static_cast<std::size_t>(rows);
    const std::vector<float> all = gather(std::span<const float>(maxima, count));
    for (std::size_t i = 0; i < all.size(); ++i) {
      maxima[i % count] = std::max(maxima[i % count], all[i]);
    }
  }

  std::vector<float> log_sums_of_vocabulary(std::int64_t rows, const float* sum_exp) const {
    const auto count = static_cast<std::size_t>(rows);
    const std::vector<float> all = gather(std::span<const float>(sum_exp, count));
    std::vector<float> sums(count);
    for (std::size_t i = 0; i < all.size(); ++i) {
      sums[i % count] += all[i];
    }
    for (float& sum : sums) {
      sum = std::log(sum);
      if (!std::isfinite(sum)) {
        throw Error(
            ErrorKind::kRuntime,
            fmt::format("the model's logits are not finite (iteration {})", options_.iteration));
      }
    }
    return sums;
  }

  /// Each rank chooses among its tokens, then all take the best of the ranks' choices.
  std::vector<Candidate> choose_in_parts(std::int64_t first,
                                         const LogitBlock& block,
                                         std::span<const DrawPlace> places) {
    std::vector<Candidate> mine;
    for (const DrawPlace& place : places) {
      const float* row = block.logits + (place.row - first) * shape_.vocabulary;
      mine.push_back(best_candidate(options_,
                                    *place.request,
                                    place.position,
                                    static_cast<std::int32_t>(shape_.first_token),
                                    {row, static_cast<std::size_t>(shape_.vocabulary)},
                                    scratch_.sampler));
    }
    const std::vector<Candidate> all = gather(std::span<const Candidate>(mine));
    std::vector<Candidate> best(mine.size());
    // Token ids ascend with the ranks: the first of equal scores has the lowest.
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].score > best[i % mine.size()].score) {
        best[i % mine.size()] = all[i];
      }
    }
    return best;
  }

  /// Every rank chooses among all tokens.
  std::vector<Candidate> choose_in_whole(std::int64_t first,
                                         const LogitBlock& block,
                                         std::int64_t rows,
                                         std::span<const DrawPlace> places) {
    const std::int64_t vocabulary = model_.spec->vocab_size;
    const float* whole = block.logits;
    if (ranks_ > 1) {
      gather_rows(block, rows);
      whole = scratch_.whole_rows.data();
    }
    std::vector<Candidate> best;
    for (const DrawPlace& place : places) {
      best.push_back(best_candidate(
          options_,
          *place.request,
          place.position,
          0,
          {whole + (place.row - first) * vocabulary, static_cast<std::size_t>(vocabulary)},
          scratch_.sampler));
    }
    return best;
  }

  void gather_rows(const LogitBlock& block, std::int64_t rows) {
    const std::int64_t vocabulary = model_.spec->vocab_size;
    const std::vector<float> all = gather(
        std::span<const float>(block.logits, static_cast<std::size_t>(rows * shape_.vocabulary)));
    scratch_.whole_rows.resize(static_cast<std::size_t>(rows * vocabulary));
    const float* part = all.data();
    for (int rank = 0; rank < ranks_; ++rank) {
      const auto [begin, end] = vocabulary_rows(*model_.spec, ranks_, rank);
      for (std::int64_t row = 0; row < rows; ++row) {
        std::copy_n(part, end - begin, scratch_.whole_rows.data() + row * vocabulary + begin);
        part += end - begin;
      }
    }
  }

  const Model<float>& model_;
  const SamplingOptions& options_;
  LocalShape shape_;
  int ranks_;
  DrawScratch& scratch_;
};

}  // namespace

void draw_tokens(const Model<float>& model,
                 const SamplingOptions& options,
                 std::int64_t rows,
                 const float* normed,
                 std::span<const DrawPlace> places,
                 DrawScratch& scratch,
                 std::vector<DrawnToken>& drawn) {
  TokenDraw draw(model, options, scratch);
  const std::int64_t block_rows = draw.rows_in_block(rows);
  std::size_t next = 0;
  for (std::int64_t first = 0; first < rows; first += block_rows) {
    const std::int64_t count = std::min(block_rows, rows - first);
    std::size_t end = next;
    while (end < places.size() && places[end].row < first + count) {
      ++end;
    }
    draw.draw_block(first,
                    count,
                    normed + first * model.spec->hidden_dim,
                    places.subspan(next, end - next),
                    drawn);
    next = end;
  }
  check(next == places.size(), "the places of a draw ascend by row");
}

}  // namespace rpeg
