#include "runtime/batches.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Calls `visit(position in the batch, index of the response token)` for every response token.
template <typename Visit>
void for_each_response_token(const PackedSequences& packed, Anchor anchor, const Visit& visit) {
  const std::int64_t shift = anchor == Anchor::kPredecessor ? 1 : 0;
  for (std::size_t i = 0; i < packed.first.size(); ++i) {
    for (std::int64_t r = packed.starts[i]; r < packed.starts[i + 1]; ++r) {
      const std::int64_t position = packed.first[i] + (r - packed.starts[i]) - shift;
      visit(static_cast<std::size_t>(position), static_cast<std::size_t>(r));
    }
  }
}

}  // namespace

void check_finite(double value, const std::string& what, const std::string& where) {
  if (!std::isfinite(value)) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("{}: {} is {}; the run cannot go on: try a lower learning rate or a "
                            "gradient clip, and check that the weights the run started from are "
                            "finite",
                            where,
                            what,
                            std::isnan(value) ? "nan" : "inf"));
  }
}

PackedSequences pack_sequences(const RankContext& context,
                               const IterationData& data,
                               std::span<const std::int64_t> sequences) {
  PackedSequences packed;
  for (const std::int64_t s : sequences) {
    const Prompt& prompt = context.prompt(data, s);
    const Rollout& rollout = rollout_of(data, s);
    std::vector<std::int32_t> tokens = prompt.tokens;
    tokens.insert(tokens.end(), rollout.tokens.begin(), rollout.tokens.end());
    packed.first.push_back(packed.batch.token_count() +
                           static_cast<std::int64_t>(prompt.tokens.size()));
    packed.starts.push_back(packed.starts.back() +
                            static_cast<std::int64_t>(rollout.tokens.size()));
    append_sequence(packed.batch, tokens);
  }
  return packed;
}

std::vector<double> gather_response(const PackedSequences& packed,
                                    std::span<const float> per_token,
                                    Anchor anchor) {
  std::vector<double> out(static_cast<std::size_t>(packed.response_tokens()));
  for_each_response_token(packed, anchor, [&](std::size_t position, std::size_t r) {
    out[r] = static_cast<double>(per_token[position]);
  });
  return out;
}

std::vector<float> scatter_response(const PackedSequences& packed,
                                    std::span<const double> per_response_token,
                                    Anchor anchor) {
  std::vector<float> out(packed.batch.tokens.size());
  for_each_response_token(packed, anchor, [&](std::size_t position, std::size_t r) {
    out[position] = static_cast<float>(per_response_token[r]);
  });
  return out;
}

std::int64_t sequence_tokens(const RankContext& context,
                             const IterationData& data,
                             std::int64_t sequence) {
  return static_cast<std::int64_t>(context.prompt(data, sequence).tokens.size() +
                                   rollout_of(data, sequence).tokens.size());
}

std::vector<std::vector<std::size_t>> balance_units(std::span<const std::int64_t> tokens,
                                                    std::int64_t parts) {
  std::vector<std::size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tokens[a] > tokens[b];
  });
  const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(parts));
  std::vector<std::vector<std::size_t>> pieces(count);
  std::vector<std::int64_t> load(count);
  for (const std::size_t unit : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += tokens[unit];
    pieces[static_cast<std::size_t>(least - load.begin())].push_back(unit);
  }
  for (std::vector<std::size_t>& piece : pieces) {
    std::sort(piece.begin(), piece.end());
  }
  return pieces;
}

std::vector<std::vector<std::int64_t>> micro_batches(const RankContext& context,
                                                     const IterationData& data,
                                                     std::span<const std::int64_t> sequences,
                                                     std::int64_t parts) {
  std::vector<std::int64_t> tokens;
  for (const std::int64_t s : sequences) {
    tokens.push_back(sequence_tokens(context, data, s));
  }
  std::vector<std::vector<std::int64_t>> pieces;
  for (const std::vector<std::size_t>& piece : balance_units(tokens, parts)) {
    std::vector<std::int64_t>& list = pieces.emplace_back();
    for (const std::size_t unit : piece) {
      list.push_back(sequences[unit]);
    }
  }
  return pieces;
}

std::vector<PackedSequences> pack_micro_batches(
    const RankContext& context,
    const IterationData& data,
    std::span<const std::vector<std::int64_t>> micro_batches) {
  std::vector<PackedSequences> packed;
  for (const std::vector<std::int64_t>& sequences : micro_batches) {
    packed.push_back(pack_sequences(context, data, sequences));
  }
  return packed;
}

std::vector<const PackedBatch*> batches_of(std::span<const PackedSequences> packed) {
  std::vector<const PackedBatch*> batches;
  for (const PackedSequences& sequences : packed) {
    batches.push_back(&sequences.batch);
  }
  return batches;
}

}  // namespace rpeg
