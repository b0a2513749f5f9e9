#include "runtime/batches.h"

#include <fmt/format.h>

#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/plan/plan.h"

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

std::vector<std::span<const std::int64_t>> micro_batches(std::span<const std::int64_t> sequences,
                                                         std::int64_t parts) {
  std::vector<std::span<const std::int64_t>> pieces;
  const auto count = static_cast<std::int64_t>(sequences.size());
  for (int i = 0; i < static_cast<int>(parts); ++i) {
    const auto [first, last] = replica_sequences(count, static_cast<int>(parts), i);
    if (first < last) {
      pieces.push_back(sequences.subspan(static_cast<std::size_t>(first),
                                         static_cast<std::size_t>(last - first)));
    }
  }
  return pieces;
}

}  // namespace rpeg
