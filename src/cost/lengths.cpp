#include "cost/lengths.h"

#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/cost/cost_model.h"

namespace rpeg {

std::vector<LengthPiece> length_pieces(const WorkloadSpec& workload, double from, double to) {
  std::vector<LengthPiece> pieces;
  pieces.reserve(workload.gen_quantiles.size() + 1);
  double tokens = 0.0;
  double probability = 0.0;
  const auto add = [&](double next_tokens, double next_probability) {
    const LengthPiece piece{tokens, next_tokens, probability, next_probability};
    tokens = next_tokens;
    probability = next_probability;
    LengthPiece cut = piece;
    if (piece.t0 < from) {
      cut.t0 = from;
      cut.g0 = piece.at(from);
    }
    if (piece.t1 > to) {
      cut.t1 = to;
      cut.g1 = piece.at(to);
    }
    if (cut.t1 > cut.t0) pieces.push_back(cut);
  };
  for (const LengthQuantile& q : workload.gen_quantiles) add(q.tokens, q.probability);
  // Without quantiles nobody ends before the last token.
  if (workload.gen_quantiles.empty()) add(static_cast<double>(workload.generation_length), 0.0);
  return pieces;
}

PartLengths part_lengths(const ResponsePart& part, const WorkloadSpec& workload) {
  const std::vector<LengthQuantile>& quantiles = workload.gen_quantiles;
  const auto longest = static_cast<double>(workload.generation_length);
  if (quantiles.empty()) return {0.0, longest, 0.0, 1.0, longest, longest * longest};
  const auto points = static_cast<std::int32_t>(quantiles.size());
  check(0 <= part.first && part.first < part.last && part.last <= points,
        "cost: a part of the responses is outside gen_quantiles");
  LengthQuantile at{};
  PartLengths lengths;
  double weight = 0.0;
  for (std::int32_t i = 0; i < part.last; ++i) {
    const LengthQuantile& next = quantiles[static_cast<std::size_t>(i)];
    if (i == part.first) {
      lengths.tokens_first = at.tokens;
      lengths.share_first = at.probability;
    }
    if (i >= part.first) {
      const double share = next.probability - at.probability;
      weight += share;
      lengths.mean += share * 0.5 * (at.tokens + next.tokens);
      lengths.mean_square +=
          share * (at.tokens * at.tokens + at.tokens * next.tokens + next.tokens * next.tokens) /
          3.0;
    }
    at = next;
  }
  lengths.tokens_last = at.tokens;
  lengths.share_last = at.probability;
  if (weight > 0.0) {
    lengths.mean /= weight;
    lengths.mean_square /= weight;
  }
  return lengths;
}

std::int64_t units_in_part(const PartLengths& part, std::int64_t units) {
  const auto ended = [units](double share) {
    // A share that is a whole number of units but for rounding is not one unit more.
    return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(units) - 1e-9));
  };
  return ended(part.share_last) - ended(part.share_first);
}

double all_ended_tokens(const LengthPiece& piece, double n) {
  const double rise = piece.g1 - piece.g0;
  // Below this the difference of powers would lose its digits; G is constant then.
  if (rise < 1e-12) return piece.width() * std::pow(piece.g0, n);
  return piece.width() / rise * (std::pow(piece.g1, n + 1.0) - std::pow(piece.g0, n + 1.0)) /
         (n + 1.0);
}

double expected_length(const WorkloadSpec& workload) {
  double sum = 0.0;
  for (const LengthPiece& piece : length_pieces(workload, 0.0)) {
    sum += piece.width() * (1.0 - 0.5 * (piece.g0 + piece.g1));
  }
  return sum;
}

double expected_squared_length(const WorkloadSpec& workload) {
  double sum = 0.0;
  for (const LengthPiece& piece : length_pieces(workload, 0.0)) {
    sum += simpson(piece.t0, piece.t1, [&](double t) { return 2.0 * t * (1.0 - piece.at(t)); });
  }
  return sum;
}

double expected_max_length(const WorkloadSpec& workload, std::int64_t n) {
  double sum = 0.0;
  for (const LengthPiece& piece : length_pieces(workload, 0.0)) {
    sum += piece.width() - all_ended_tokens(piece, static_cast<double>(n));
  }
  return sum;
}

}  // namespace rpeg
