#include "model/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "rpeg/base/rng.h"
#include "rpeg/kernels/sampling.h"

namespace rpeg {
namespace {

// Philox yields four words at a time: those of token ids 4 i to 4 i + 3.
constexpr std::int32_t kIdsPerBlock = 4;

std::uint64_t noise_key(const SamplingOptions& options, const GenerationRequest& request) {
  const std::uint64_t iteration_key =
      derive_seed(options.seed, static_cast<std::uint64_t>(options.iteration));
  return derive_seed(iteration_key, static_cast<std::uint64_t>(request.prompt_index));
}

std::array<std::uint32_t, 4> noise_words(std::uint64_t key,
                                         const GenerationRequest& request,
                                         std::int64_t position,
                                         std::int32_t block) {
  const auto sample = static_cast<std::uint64_t>(request.sample_index);
  return philox(key,
                {static_cast<std::uint32_t>(block),
                 static_cast<std::uint32_t>(position),
                 static_cast<std::uint32_t>(sample),
                 static_cast<std::uint32_t>(sample >> 32)});
}

/// Noise of the tokens from `first_token` on; returns where in scratch.noise the first stands.
std::size_t fill_noise(const SamplingOptions& options,
                       const GenerationRequest& request,
                       std::int64_t position,
                       std::int32_t first_token,
                       std::size_t count,
                       SamplerScratch& scratch) {
  const std::uint64_t key = noise_key(options, request);
  const auto skipped = static_cast<std::size_t>(first_token % kIdsPerBlock);
  const std::int32_t first_block = first_token / kIdsPerBlock;
  const std::size_t blocks = (skipped + count + kIdsPerBlock - 1) / kIdsPerBlock;
  scratch.words.resize(blocks * kIdsPerBlock);
  scratch.noise.resize(blocks * kIdsPerBlock);
  for (std::size_t block = 0; block < blocks; ++block) {
    const auto words =
        noise_words(key, request, position, first_block + static_cast<std::int32_t>(block));
    std::copy(words.begin(), words.end(), scratch.words.data() + block * kIdsPerBlock);
  }
  cpu::gumbel_from_words(scratch.words, scratch.noise.data());
  return skipped;
}

/// Keeps the `top_k` likeliest tokens (lowest id first among equals), then the fewest of them that
/// hold a share `top_p` of their probability.
void choose_candidates(const SamplingOptions& options,
                       std::span<const float> relative_logits,
                       std::vector<std::int32_t>& candidates) {
  const auto value = [&](std::int32_t id) { return relative_logits[static_cast<std::size_t>(id)]; };
  candidates.resize(relative_logits.size());
  std::iota(candidates.begin(), candidates.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return value(a) > value(b) || (value(a) == value(b) && a < b);
  };
  const auto size = static_cast<std::int64_t>(candidates.size());
  const std::int64_t kept = options.top_k > 0 ? std::min(options.top_k, size) : size;
  std::partial_sort(candidates.begin(), candidates.begin() + kept, candidates.end(), likelier);
  candidates.resize(static_cast<std::size_t>(kept));
  if (options.top_p >= 1.0) {
    return;
  }
  double total = 0.0;
  for (const std::int32_t id : candidates) {
    total += std::exp(static_cast<double>(value(id)));
  }
  double mass = 0.0;
  std::size_t count = 0;
  while (count < candidates.size() && (count == 0 || mass < options.top_p * total)) {
    mass += std::exp(static_cast<double>(value(candidates[count])));
    ++count;
  }
  candidates.resize(count);
}

}  // namespace

bool is_truncated(const SamplingOptions& options) {
  return !options.greedy && (options.top_k > 0 || options.top_p < 1.0);
}

Candidate best_candidate(const SamplingOptions& options,
                         const GenerationRequest& request,
                         std::int64_t position,
                         std::int32_t first_token,
                         std::span<const float> relative_logits,
                         SamplerScratch& scratch) {
  const double* noise = nullptr;
  if (!options.greedy) {
    const std::size_t skipped =
        fill_noise(options, request, position, first_token, relative_logits.size(), scratch);
    noise = scratch.noise.data() + skipped;
  }
  Candidate best;
  const auto consider = [&](std::size_t i) {
    const double score =
        static_cast<double>(relative_logits[i]) + (noise == nullptr ? 0.0 : noise[i]);
    const std::int32_t token = first_token + static_cast<std::int32_t>(i);
    // Truncated candidates come in the order of their probability.
    if (score > best.score || (score == best.score && token < best.token)) {
      best = {score, relative_logits[i], token};
    }
  };
  if (is_truncated(options)) {
    choose_candidates(options, relative_logits, scratch.candidates);
    for (const std::int32_t i : scratch.candidates) {
      consider(static_cast<std::size_t>(i));
    }
  } else {
    for (std::size_t i = 0; i < relative_logits.size(); ++i) {
      consider(i);
    }
  }
  return best;
}

double gumbel_noise(const SamplingOptions& options,
                    const GenerationRequest& request,
                    std::int64_t position,
                    std::int32_t token) {
  const auto words =
      noise_words(noise_key(options, request), request, position, token / kIdsPerBlock);
  double noise = 0.0;
  cpu::gumbel_from_words({&words[static_cast<std::size_t>(token % kIdsPerBlock)], 1}, &noise);
  return noise;
}

}  // namespace rpeg
