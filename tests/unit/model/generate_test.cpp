#include "rpeg/model/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "rpeg/base/error.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

using Ids = std::vector<std::int32_t>;

const TinyModel<float>& tiny() {
  static const TinyModel<float> model(Head::kLanguageModel, false);
  return model;
}

SamplingOptions options_for(std::int64_t new_tokens) {
  SamplingOptions options;
  options.max_new_tokens = new_tokens;
  options.seed = 5;
  options.iteration = 2;
  return options;
}

/// Logits of the token that follows `tokens`.
std::vector<float> next_logits(const Ids& tokens) {
  PackedBatch batch;
  append_sequence(batch, tokens);
  const std::vector<float> logits = forward_logits(tiny().model(), batch);
  return {logits.end() - tiny().spec.vocab_size, logits.end()};
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> p;
  double sum = 0.0;
  for (const float logit : logits) {
    p.push_back(std::exp((static_cast<double>(logit) - largest) / temperature));
    sum += p.back();
  }
  for (double& value : p) {
    value /= sum;
  }
  return p;
}

std::vector<GenerationRequest> some_requests() {
  return {{{1, 2, 3}, 0, 0},
          {{1, 2, 3}, 0, 1},
          {{4}, 1, 0},
          {{5, 6, 7, 8, 9}, 2, 0},
          {{5, 6, 7, 8, 9}, 2, 1},
          {{5, 6, 7, 8, 9}, 2, 2},
          {{1, 2, 3}, 3, 0}};
}

TEST(Generate, GreedyIsTheArgmaxOfTheLogits) {
  SamplingOptions options = options_for(6);
  options.greedy = true;
  const auto requests = some_requests();
  const auto results = generate(tiny().model(), requests, options);
  ASSERT_EQ(results.size(), requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Ids tokens = requests[i].prompt;
    for (int step = 0; step < 6; ++step) {
      const std::vector<float> logits = next_logits(tokens);
      tokens.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) -
                                                 logits.begin()));
    }
    EXPECT_EQ(results[i].tokens, Ids(tokens.end() - 6, tokens.end()));
    EXPECT_FALSE(results[i].stopped);
  }
}

TEST(Generate, LogprobsAreThoseOfTheTrainingForwardPass) {
  SamplingOptions options = options_for(8);
  options.temperature = 0.7;
  options.top_k = 5;  // the behaviour log-probability is of the whole distribution all the same
  const auto requests = some_requests();
  const auto results = generate(tiny().model(), requests, options);
  PackedBatch batch;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Ids tokens = requests[i].prompt;
    tokens.insert(tokens.end(), results[i].tokens.begin(), results[i].tokens.end());
    append_sequence(batch, tokens);
  }
  Activations<float> activations;
  TokenScores<float> scores;
  forward_scores(tiny().model(), batch, 0.7F, activations, scores);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto end = static_cast<std::size_t>(batch.starts[i + 1]);
    for (std::size_t t = 0; t < 8; ++t) {
      EXPECT_NEAR(results[i].logprobs[t], scores.logprob[end - 8 + t], 1e-4);
    }
  }
}

TEST(Generate, TokensDoNotDependOnTheBatch) {
  const SamplingOptions options = options_for(10);
  const auto requests = some_requests();
  const auto together = generate(tiny().model(), requests, options);
  auto reversed = requests;
  std::reverse(reversed.begin(), reversed.end());
  const auto backwards = generate(tiny().model(), reversed, options);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto alone = generate(tiny().model(), std::span(requests).subspan(i, 1), options);
    EXPECT_EQ(alone[0].tokens, together[i].tokens);
    EXPECT_EQ(backwards[requests.size() - 1 - i].tokens, together[i].tokens);
  }
}

TEST(Generate, SamplesOfAPromptDifferAndRepeatForTheSameSeed) {
  std::vector<GenerationRequest> requests;
  for (std::int64_t sample = 0; sample < 20; ++sample) {
    requests.push_back({{1, 2}, 0, sample});
  }
  SamplingOptions options = options_for(8);
  const auto distinct = [&] {
    std::set<Ids> sequences;
    for (const auto& result : generate(tiny().model(), requests, options)) {
      sequences.insert(result.tokens);
    }
    return sequences;
  };
  const std::set<Ids> first = distinct();
  EXPECT_GT(first.size(), 10U);
  EXPECT_EQ(distinct(), first);
  options.iteration = 3;
  EXPECT_NE(distinct(), first);
  options.iteration = 2;
  options.seed = 6;
  EXPECT_NE(distinct(), first);
}

/// Counts of the first token over `samples` samples of one prompt.
std::vector<double> first_token_counts(const SamplingOptions& options, std::int64_t samples) {
  std::vector<GenerationRequest> requests;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    requests.push_back({{3, 8, 1}, 4, sample});
  }
  std::vector<double> counts(static_cast<std::size_t>(tiny().spec.vocab_size));
  for (const auto& result : generate(tiny().model(), requests, options)) {
    counts[static_cast<std::size_t>(result.tokens[0])] += 1.0;
  }
  return counts;
}

/// Pearson's statistic over the outcomes of positive probability; the others must not occur.
double chi_square(const std::vector<double>& counts,
                  const std::vector<double>& probabilities,
                  double samples) {
  double statistic = 0.0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * samples;
    if (expected == 0.0) {
      EXPECT_EQ(counts[i], 0.0) << "token " << i << " was cut off";
    } else {
      statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
  }
  return statistic;
}

// The 0.9999 quantile of chi-square with 10 degrees of freedom: 11 tokens less one.
constexpr double kChiSquareLimit = 35.6;

TEST(Sampling, FrequenciesAreTheSoftmaxAtTheTemperature) {
  SamplingOptions options = options_for(1);
  for (const double temperature : {0.6, 1.0, 2.0}) {
    options.temperature = temperature;
    const auto p = softmax(next_logits({3, 8, 1}), temperature);
    EXPECT_LT(chi_square(first_token_counts(options, 20000), p, 20000.0), kChiSquareLimit);
  }
}

/// Keeps the `count` largest of `p` and scales them to sum to 1.
std::vector<double> keep_largest(std::vector<double> p, std::size_t count) {
  std::vector<double> sorted = p;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  double sum = 0.0;
  for (double& value : p) {
    value = value >= sorted[count - 1] ? value : 0.0;
    sum += value;
  }
  for (double& value : p) {
    value /= sum;
  }
  return p;
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  SamplingOptions options = options_for(1);
  options.top_k = 3;
  const auto p = keep_largest(softmax(next_logits({3, 8, 1}), 1.0), 3);
  EXPECT_LT(chi_square(first_token_counts(options, 20000), p, 20000.0), kChiSquareLimit);
}

TEST(Sampling, TopPKeepsTheFewestThatHoldTheShare) {
  SamplingOptions options = options_for(1);
  const auto p = softmax(next_logits({3, 8, 1}), 1.0);
  std::vector<double> sorted = p;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  // A share just above that of the first two needs the third.
  options.top_p = sorted[0] + sorted[1] + 0.5 * sorted[2];
  ASSERT_LT(options.top_p, 1.0);
  EXPECT_LT(chi_square(first_token_counts(options, 20000), keep_largest(p, 3), 20000.0),
            kChiSquareLimit);
  options.top_p = 1e-6;
  const auto counts = first_token_counts(options, 100);
  EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), 100.0);
}

TEST(Sampling, MaximisesLogitsPlusPublishedNoise) {
  const SamplingOptions options = options_for(1);
  for (std::int64_t sample = 0; sample < 50; ++sample) {
    const GenerationRequest request{{3, 8, 1}, 4, sample};
    const std::vector<float> logits = next_logits(request.prompt);
    std::int32_t best = 0;
    double best_score = -1e300;
    for (std::int32_t id = 0; id < 11; ++id) {
      // The drawn token will be number 3 of the sequence.
      const double score = static_cast<double>(logits[static_cast<std::size_t>(id)]) +
                           gumbel_noise(options, request, 3, id);
      if (score > best_score) {
        best_score = score;
        best = id;
      }
    }
    EXPECT_EQ(generate(tiny().model(), std::span(&request, 1), options)[0].tokens, Ids{best});
  }
}

TEST(Generate, EndsWithAndIncludesTheFirstStopToken) {
  SamplingOptions options = options_for(12);
  const auto requests = some_requests();
  const auto free_running = generate(tiny().model(), requests, options);
  options.stop_tokens = {2, 7};
  const auto stopped = generate(tiny().model(), requests, options);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Ids expected = free_running[i].tokens;
    const auto stop = std::find_if(
        expected.begin(), expected.end(), [](std::int32_t id) { return id == 2 || id == 7; });
    const bool stops = stop != expected.end();
    if (stops) {
      expected.erase(stop + 1, expected.end());
    }
    EXPECT_EQ(stopped[i].tokens, expected);
    EXPECT_EQ(stopped[i].stopped, stops);
    EXPECT_EQ(stopped[i].logprobs.size(), expected.size());
  }
}

TEST(Generate, RefusesMoreTokensThanPositions) {
  const std::vector<GenerationRequest> requests = {{{1, 2, 3, 4}, 9, 0}};
  EXPECT_NO_THROW(generate(tiny().model(), requests, options_for(60)));
  try {
    generate(tiny().model(), requests, options_for(61));
    FAIL() << "accepted 65 positions of 64";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    EXPECT_NE(error.message().find("prompt 9"), std::string::npos) << error.message();
  }
}

TEST(Generate, ReportsLogitsThatAreNotFinite) {
  TinyModel<float> broken(Head::kLanguageModel, false);
  broken.weights.back() = std::nanf("");
  const std::vector<GenerationRequest> requests = {{{1}, 0, 0}};
  try {
    generate(broken.model(), requests, options_for(1));
    FAIL() << "sampled from NaN";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
  }
}

TEST(Generate, OfNoRequestsIsEmpty) {
  EXPECT_TRUE(generate(tiny().model(), {}, options_for(3)).empty());
}

}  // namespace
}  // namespace rpeg
