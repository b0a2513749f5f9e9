#include "cost/lengths.h"

#include <algorithm>
#include <cmath>

#include "rpeg/cost/cost_model.h"

namespace rpeg {

std::vector<LengthPiece> length_pieces(const WorkloadSpec& workload, double from) {
  std::vector<LengthPiece> pieces;
  pieces.reserve(workload.gen_quantiles.size() + 1);
  double tokens = 0.0;
  double probability = 0.0;
  const auto add = [&](double next_tokens, double next_probability) {
    LengthPiece piece{tokens, next_tokens, probability, next_probability};
    tokens = next_tokens;
    probability = next_probability;
    if (piece.t1 <= std::max(piece.t0, from)) return;
    if (piece.t0 < from) {
      piece.g0 = piece.at(from);
      piece.t0 = from;
    }
    pieces.push_back(piece);
  };
  for (const LengthQuantile& q : workload.gen_quantiles) add(q.tokens, q.probability);
  // Without quantiles nobody ends before the last token.
  if (pieces.empty() && workload.gen_quantiles.empty()) {
    add(static_cast<double>(workload.generation_length), 0.0);
  }
  return pieces;
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
