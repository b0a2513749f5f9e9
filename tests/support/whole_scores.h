#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "rpeg/kernels/token_scores.h"

namespace rpeg::cpu {

/// The steps of token_scores.h for one rank with the whole vocabulary.
struct WholeScores {
  std::vector<double> z;
  std::vector<double> sums;
  std::vector<double> logprob;
  std::vector<double> entropy;

  WholeScores(const ScoreShape& shape,
              std::span<const std::int32_t> targets,
              std::vector<double> logits)
      : z(std::move(logits)),
        sums(targets.size() * kTokenSums),
        logprob(targets.size()),
        entropy(targets.size()) {
    std::vector<double> maxima(targets.size());
    logit_maxima(shape, z.data(), maxima.data());
    token_sums(shape, targets, maxima.data(), z.data(), sums.data());
    token_scores(shape.rows, sums.data(), logprob.data(), entropy.data());
  }
};

}  // namespace rpeg::cpu
