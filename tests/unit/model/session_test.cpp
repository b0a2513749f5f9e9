// Generation sessions over several ranks (threads), in groups, with few places and in stages,
// against one rank that generates everything at once.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "rpeg/base/error.h"
#include "rpeg/model/generate.h"
#include "support/sharded_model.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

using Results = std::vector<GenerationResult>;

const TinyModel<float>& tiny() {
  static const TinyModel<float> model = [] {
    ModelSpec spec = tiny_spec(false);
    spec.layers = 3;
    spec.ffn_dim = 8;
    return TinyModel<float>(spec, Head::kLanguageModel);
  }();
  return model;
}

std::vector<GenerationRequest> some_requests() {
  return {{{1, 2, 3}, 0, 0},
          {{1, 2, 3}, 0, 1},
          {{4}, 1, 0},
          {{5, 6, 7, 8, 9}, 2, 0},
          {{5, 6, 7, 8, 9}, 2, 1},
          {{5, 6, 7, 8, 9}, 2, 2},
          {{1, 2, 3}, 3, 0},
          {{10, 0}, 4, 0},
          {{4}, 5, 0}};
}

/// Responses of different lengths.
SamplingOptions some_sampling() {
  SamplingOptions sampling;
  sampling.max_new_tokens = 12;
  sampling.stop_tokens = {2, 7};
  sampling.temperature = 0.7;
  sampling.seed = 5;
  sampling.iteration = 2;
  return sampling;
}

std::vector<std::pair<std::string, SamplingOptions>> ways_to_sample() {
  SamplingOptions greedy = some_sampling();
  greedy.greedy = true;
  SamplingOptions top_k = some_sampling();
  top_k.top_k = 4;
  SamplingOptions top_p = some_sampling();
  top_p.top_p = 0.6;
  return {{"plain", some_sampling()}, {"greedy", greedy}, {"top-k", top_k}, {"top-p", top_p}};
}

/// What decides between tokens for place `position` of a sequence that begins with `tokens`.
double score_of(const Model<float>& model,
                const SamplingOptions& sampling,
                const GenerationRequest& request,
                const std::vector<std::int32_t>& tokens,
                std::int32_t token) {
  PackedBatch batch;
  append_sequence(batch, tokens);
  const std::vector<float> logits = forward_logits(model, batch);
  const double logit =
      logits[logits.size() - static_cast<std::size_t>(model.spec->vocab_size - token)];
  return sampling.greedy
             ? logit
             : logit / sampling.temperature +
                   gumbel_noise(sampling, request, static_cast<std::int64_t>(tokens.size()), token);
}

/// Equal tokens and log-probabilities; where rounding decided otherwise, the two tokens must have
/// been as good as equal, and the rest of that response is another story.
void expect_same(const Model<float>& model,
                 const SamplingOptions& sampling,
                 const std::vector<GenerationRequest>& requests,
                 const Results& expected,
                 const Results& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  int rounded = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& a = expected[i].tokens;
    const auto& b = actual[i].tokens;
    std::vector<std::int32_t> tokens = requests[i].prompt;
    std::size_t t = 0;
    for (; t < std::min(a.size(), b.size()) && a[t] == b[t]; ++t) {
      EXPECT_NEAR(actual[i].logprobs[t], expected[i].logprobs[t], 1e-4);
      tokens.push_back(a[t]);
    }
    if (t < a.size() || t < b.size()) {
      ASSERT_TRUE(t < a.size() && t < b.size()) << "request " << i << " ended elsewhere";
      EXPECT_NEAR(score_of(model, sampling, requests[i], tokens, a[t]),
                  score_of(model, sampling, requests[i], tokens, b[t]),
                  1e-4)
          << "request " << i << ", token " << t;
      ++rounded;
    } else {
      EXPECT_EQ(actual[i].stopped, expected[i].stopped);
    }
  }
  EXPECT_LE(rounded, 1);
}

/// Runs the session to its end on tp * pp ranks; all must get the same bits.
Results generate_on_ranks(const Model<float>& model,
                          int tp,
                          int pp,
                          const std::vector<GenerationRequest>& requests,
                          const SamplingOptions& sampling,
                          const SessionOptions& options) {
  std::vector<Results> by_rank(static_cast<std::size_t>(tp * pp), Results(requests.size()));
  run_ranks(tp * pp, [&](Comm& world) {
    const ModelPart<float> part = cut_model(model, tp, pp, world);
    GenerationSession session(part.model(), requests, sampling, options);
    for (auto& finished : session.advance(static_cast<std::int64_t>(requests.size()))) {
      by_rank[static_cast<std::size_t>(world.rank())][finished.request] =
          std::move(finished.result);
    }
  });
  for (const Results& other : by_rank) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(other[i].tokens, by_rank[0][i].tokens);
      EXPECT_EQ(other[i].logprobs, by_rank[0][i].logprobs);
      EXPECT_EQ(other[i].stopped, by_rank[0][i].stopped);
    }
  }
  return by_rank[0];
}

TEST(Session, RanksDrawWhatOneRankWouldDraw) {
  const auto requests = some_requests();
  for (const auto& [name, sampling] : ways_to_sample()) {
    const Results expected = generate(tiny().model(), requests, sampling);
    // 2 key-value heads: 4 ranks share them in pairs; 11 tokens: parts of 2 and 3.
    for (const auto& [tp, pp] :
         std::vector<std::pair<int, int>>{{2, 1}, {4, 1}, {1, 2}, {1, 3}, {2, 2}, {4, 3}}) {
      SCOPED_TRACE(testing::Message() << name << ", tp " << tp << ", pp " << pp);
      expect_same(tiny().model(),
                  sampling,
                  requests,
                  expected,
                  generate_on_ranks(tiny().model(), tp, pp, requests, sampling, {}));
    }
  }
}

TEST(Session, RanksDrawTheSameFromTiedAndBiasedModels) {
  const auto requests = some_requests();
  ModelSpec spec = tiny_spec(true);
  spec.ffn_dim = 8;
  spec.qkv_bias = true;
  spec.qk_norm = true;
  const TinyModel<float> tied(spec, Head::kLanguageModel);
  const Results expected = generate(tied.model(), requests, some_sampling());
  for (const auto& [tp, pp] : std::vector<std::pair<int, int>>{{2, 1}, {1, 2}, {4, 2}}) {
    SCOPED_TRACE(testing::Message() << "tp " << tp << ", pp " << pp);
    expect_same(tied.model(),
                some_sampling(),
                requests,
                expected,
                generate_on_ranks(tied.model(), tp, pp, requests, some_sampling(), {}));
  }
}

TEST(Session, TokensDoNotDependOnPlacesAndGroups) {
  const auto requests = some_requests();
  const Results expected = generate(tiny().model(), requests, some_sampling());
  for (const std::int64_t max_live : {0, 1, 2, 5, 100}) {
    for (const std::int64_t groups : {1, 2, 4, 50}) {
      for (const auto& [tp, pp] : std::vector<std::pair<int, int>>{{1, 1}, {1, 3}, {2, 2}}) {
        SCOPED_TRACE(testing::Message() << "max_live " << max_live << ", groups " << groups
                                        << ", tp " << tp << ", pp " << pp);
        expect_same(tiny().model(),
                    some_sampling(),
                    requests,
                    expected,
                    generate_on_ranks(
                        tiny().model(), tp, pp, requests, some_sampling(), {groups, max_live}));
      }
    }
  }
}

/// Requests by (response length, prompt, sample).
std::vector<std::size_t> order_of_ends(const std::vector<GenerationRequest>& requests,
                                       const Results& results) {
  std::vector<std::size_t> order(requests.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  const auto key = [&](std::size_t i) {
    return std::tuple(results[i].tokens.size(), requests[i].prompt_index, requests[i].sample_index);
  };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return key(a) < key(b); });
  return order;
}

TEST(Session, ShortestResponsesLeaveFirst) {
  auto requests = some_requests();
  std::reverse(requests.begin(), requests.end());  // ties go by prompt, not by request
  const Results expected = generate(tiny().model(), requests, some_sampling());
  const std::vector<std::size_t> order = order_of_ends(requests, expected);
  ASSERT_EQ(expected[order[1]].tokens.size(), expected[order[2]].tokens.size())
      << "the cut at 2 is to fall between sequences that end in one step";
  for (const std::int64_t groups : {1, 2, 3}) {
    for (const auto& [tp, pp] : std::vector<std::pair<int, int>>{{1, 1}, {1, 2}, {2, 3}}) {
      run_ranks(tp * pp, [&, tp = tp, pp = pp](Comm& world) {
        const ModelPart<float> part = cut_model(tiny().model(), tp, pp, world);
        GenerationSession session(part.model(), requests, some_sampling(), {groups, 0});
        std::size_t returned = 0;
        for (const std::size_t count : {0U, 2U, 3U, 3U, 7U, 9U, 12U}) {
          for (const auto& finished : session.advance(static_cast<std::int64_t>(count))) {
            ASSERT_LT(returned, order.size());
            EXPECT_EQ(finished.request, order[returned]);
            EXPECT_EQ(finished.result.tokens, expected[order[returned]].tokens);
            ++returned;
          }
          EXPECT_EQ(returned, std::min(count, order.size()));
        }
      });
    }
  }
}

TEST(Session, ReturnsEverySequenceOnceWhenPlacesAreFew) {
  const auto requests = some_requests();
  const Results expected = generate(tiny().model(), requests, some_sampling());
  run_ranks(2, [&](Comm& world) {
    const ModelPart<float> part = cut_model(tiny().model(), 1, 2, world);
    GenerationSession session(part.model(), requests, some_sampling(), {2, 3});
    std::vector<int> times(requests.size());
    for (std::size_t count = 1; count <= requests.size(); ++count) {
      const auto finished = session.advance(static_cast<std::int64_t>(count));
      ASSERT_EQ(finished.size(), 1U);
      ++times[finished[0].request];
      EXPECT_EQ(finished[0].result.tokens, expected[finished[0].request].tokens);
    }
    EXPECT_EQ(times, std::vector<int>(requests.size(), 1));
  });
}

TEST(Session, OfNoRequestsHasNothingToReturn) {
  GenerationSession session(tiny().model(), {}, some_sampling(), {});
  EXPECT_TRUE(session.advance(0).empty());
  EXPECT_TRUE(session.advance(3).empty());
}

TEST(Session, EveryTensorParallelRankReportsLogitsThatAreNotFinite) {
  TinyModel<float> broken(tiny().spec, Head::kLanguageModel);
  broken.weights.back() = std::nanf("");  // in the last rank's part of the head
  run_ranks(2, [&](Comm& world) {
    const ModelPart<float> part = cut_model(broken.model(), 2, 1, world);
    GenerationSession session(part.model(), some_requests(), some_sampling(), {});
    try {
      session.advance(1);
      ADD_FAILURE() << "sampled from NaN";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
      EXPECT_NE(error.message().find("iteration 2"), std::string::npos) << error.message();
    }
  });
}

TEST(Session, RefusesAShardWithoutItsGroups) {
  const ParameterLayout half =
      build_parameter_layout(tiny().spec, Head::kLanguageModel, shard_of(tiny().spec, 2, 1, 0));
  const std::vector<float> weights(static_cast<std::size_t>(half.total));
  const Model<float> model{&tiny().spec, &half, weights};
  EXPECT_THROW(GenerationSession(model, some_requests(), some_sampling(), {}), Error);
}

}  // namespace
}  // namespace rpeg
