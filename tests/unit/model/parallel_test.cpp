// A model cut over tensor- and pipeline-parallel ranks (threads) against the same model on one.

#include <gtest/gtest.h>

#include <map>

#include "rpeg/model/stage.h"
#include "support/finite_difference.h"
#include "support/sharded_model.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

using Values = std::vector<double>;

struct Case {
  std::string name;
  int tp = 1;
  int pp = 1;
  std::int64_t kv_heads = 2;
  bool tied = false;
  bool biases = false;
  bool head_norms = false;
  Head head = Head::kLanguageModel;
  Recompute recompute = Recompute::kNone;
};

ModelSpec spec_of(const Case& item) {
  ModelSpec spec = tiny_spec(item.tied);
  spec.layers = 3;
  spec.ffn_dim = 8;
  spec.num_kv_heads = item.kv_heads;
  spec.qkv_bias = item.biases;
  spec.qk_norm = item.head_norms;
  return spec;
}

/// What a rank ends up with: scores and values only on a last stage.
struct Outcome {
  TokenScores<double> scores;
  Values values;
  Values gradient;
};

constexpr double kTemperature = 0.8;
constexpr int kForwardTag = 1;
constexpr int kBackwardTag = 2;

/// The loss of the tests is linear in scores and values.
struct Derivatives {
  Values logprob, entropy, values;
  explicit Derivatives(std::int64_t tokens)
      : logprob(random_values(1, tokens)),
        entropy(random_values(2, tokens)),
        values(random_values(3, tokens)) {}
};

/// The heads of a last stage; returns the derivative by its hidden rows.
Values run_heads(const Model<double>& model,
                 const PackedBatch& batch,
                 std::span<const double> hidden,
                 Outcome& outcome) {
  const Derivatives by(batch.token_count());
  const Head head = model.layout->head;
  Values d_hidden(hidden.size());
  Values scratch;
  if (head != Head::kScalar) {
    head_scores(model, batch, hidden, kTemperature, scratch, outcome.scores);
    head_scores_backward<double>(model,
                                 batch,
                                 hidden,
                                 kTemperature,
                                 by.logprob,
                                 by.entropy,
                                 scratch,
                                 d_hidden,
                                 outcome.gradient);
  }
  if (head != Head::kLanguageModel) {
    head_values(model, hidden, outcome.values);
    head_values_backward<double>(model, hidden, by.values, d_hidden, outcome.gradient);
  }
  return d_hidden;
}

/// One micro-batch through the rank's stage, forward and backward.
Outcome run_stage(const Model<double>& model, const PackedBatch& batch, Recompute recompute) {
  const ModelShard& shard = model.layout->shard;
  Comm* pipeline = model.groups.pipeline;
  Outcome outcome;
  outcome.gradient.resize(model.weights.size());
  Activations<double> activations;
  Values input;
  if (!shard.has_embedding) {
    input = receive_values<double>(*pipeline, pipeline->rank() - 1, kForwardTag);
  }
  const auto hidden = stage_forward<double>(
      model, batch, shard.has_embedding ? nullptr : input.data(), recompute, activations);
  Values d_hidden;
  if (shard.has_head) {
    d_hidden = run_heads(model, batch, hidden, outcome);
  } else {
    send_values(*pipeline, pipeline->rank() + 1, kForwardTag, hidden);
    d_hidden = receive_values<double>(*pipeline, pipeline->rank() + 1, kBackwardTag);
  }
  const auto d_input =
      stage_backward<double>(model, batch, d_hidden, recompute, activations, outcome.gradient);
  EXPECT_EQ(d_input.size(), shard.has_embedding ? 0 : hidden.size());
  if (!shard.has_embedding) {
    send_values(*pipeline, pipeline->rank() - 1, kBackwardTag, d_input);
  }
  sum_shared_gradients<double>(model, outcome.gradient);
  if (pipeline != nullptr) {
    pipeline->flush();
  }
  return outcome;
}

void expect_near(std::span<const double> actual,
                 std::span<const double> expected,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 1e-12 * (1.0 + std::abs(expected[i]))) << what << " " << i;
  }
}

class Parallel : public testing::TestWithParam<Case> {};

TEST_P(Parallel, EqualsOneRank) {
  const Case& item = GetParam();
  const TinyModel<double> tiny(spec_of(item), item.head);
  const PackedBatch batch = tiny_batch();
  const Outcome expected = run_stage(tiny.model(), batch, Recompute::kNone);
  const auto ranks = static_cast<std::size_t>(item.tp * item.pp);
  std::vector<Outcome> outcomes(ranks);
  std::vector<ParameterLayout> layouts(ranks);
  run_ranks(item.tp * item.pp, [&](Comm& world) {
    const auto part = cut_model(tiny.model(), item.tp, item.pp, world);
    const auto rank = static_cast<std::size_t>(world.rank());
    outcomes[rank] = run_stage(part.model(), batch, item.recompute);
    layouts[rank] = part.layout;
  });
  std::map<std::string, std::pair<Values, std::int64_t>> first_copies;
  double squares = 0.0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (layouts[rank].shard.has_head) {
      expect_near(outcomes[rank].scores.logprob, expected.scores.logprob, "log-probability");
      expect_near(outcomes[rank].scores.entropy, expected.scores.entropy, "entropy");
      expect_near(outcomes[rank].values, expected.values, "value");
    }
    for (const ParameterTensor& tensor : layouts[rank].tensors) {
      const auto whole =
          tensor_named(tiny.layout, std::span<const double>(expected.gradient), tensor.name);
      Values part(static_cast<std::size_t>(tensor.count));
      take_shard<double>(tensor.part, whole, part);
      const auto begin = outcomes[rank].gradient.begin() + tensor.offset;
      const Values actual(begin, begin + tensor.count);
      expect_near(actual, part, tensor.name);
      // Copies of one block must be updated alike: equal bits.
      const auto key = tensor.name + "/" + std::to_string(tensor.part.begin);
      const auto [copy, is_first] = first_copies.try_emplace(key, actual, 0);
      EXPECT_EQ(copy->second.first, actual) << tensor.name;
      copy->second.second += tensor.part.is_owner ? 1 : 0;
    }
    const std::vector<float> rounded(outcomes[rank].gradient.begin(),
                                     outcomes[rank].gradient.end());
    squares += owned_sum_of_squares(layouts[rank], rounded, 0, layouts[rank].total);
  }
  for (const auto& [key, copy] : first_copies) {
    EXPECT_EQ(copy.second, 1) << key << " needs exactly one owner";
  }
  EXPECT_NEAR(squares, weighted_sum(expected.gradient, expected.gradient), 1e-5 * squares);
}

INSTANTIATE_TEST_SUITE_P(
    Model,
    Parallel,
    testing::Values(
        Case{"tp2", 2},
        Case{"tp2_tied", 2, 1, 2, true},
        Case{"tp4_two_kv_heads", 4, 1, 2, true, true, true},
        Case{"tp4_one_kv_head", 4, 1, 1, false, true, true},
        Case{"tp2_one_kv_head", 2, 1, 1, false, true},
        Case{"tp2_head_norms", 2, 1, 2, false, false, true},
        Case{"pp2", 1, 2},
        Case{"pp2_tied", 1, 2, 2, true, true},
        Case{"pp3_tied", 1, 3, 2, true, false, true},
        Case{"pp3", 1, 3, 2, false, true, true},
        Case{"tp2_pp2", 2, 2, 2, false, true, true},
        Case{"tp2_pp2_tied", 2, 2, 1, true, true, true},
        Case{"tp4_pp3_both", 4, 3, 2, true, true, true, Head::kBoth},
        Case{"tp2_scalar", 2, 1, 2, false, false, false, Head::kScalar},
        Case{"pp2_scalar_tied", 1, 2, 2, true, false, false, Head::kScalar},
        Case{"tp2_pp2_both", 2, 2, 2, false, true, false, Head::kBoth},
        Case{"tp2_both", 2, 1, 1, true, false, true, Head::kBoth},
        Case{"tp2_selective", 2, 1, 2, true, true, true, Head::kBoth, Recompute::kSelective},
        Case{"tp2_pp2_full", 2, 2, 1, false, true, true, Head::kBoth, Recompute::kFull}),
    [](const auto& item) { return item.param.name; });

TEST(Stage, RecomputationKeepsEveryBitOfTheGradient) {
  for (const bool everything : {false, true}) {
    Case item;
    item.biases = item.head_norms = item.tied = everything;
    item.head = Head::kBoth;
    const TinyModel<double> tiny(spec_of(item), item.head);
    const PackedBatch batch = tiny_batch();
    const Values expected = run_stage(tiny.model(), batch, Recompute::kNone).gradient;
    EXPECT_EQ(run_stage(tiny.model(), batch, Recompute::kSelective).gradient, expected);
    EXPECT_EQ(run_stage(tiny.model(), batch, Recompute::kFull).gradient, expected);
  }
}

/// On tp * pp ranks, with the memory of one layer.
TEST(Stage, InferenceGivesTheSameBitsAsTraining) {
  Case item;
  item.biases = item.head_norms = true;
  const TinyModel<double> tiny(spec_of(item), Head::kLanguageModel);
  const PackedBatch batch = tiny_batch();
  run_ranks(4, [&](Comm& world) {
    const auto part = cut_model(tiny.model(), 2, 2, world);
    const Values input = random_values(4, batch.token_count() * tiny.spec.hidden_dim);
    const double* from = part.layout.shard.has_embedding ? nullptr : input.data();
    Activations<double> training;
    Activations<double> inference;
    const auto expected =
        stage_forward<double>(part.model(), batch, from, Recompute::kFull, training);
    const auto actual = stage_infer<double>(part.model(), batch, from, inference);
    EXPECT_EQ(Values(actual.begin(), actual.end()), Values(expected.begin(), expected.end()));
  });
}

TEST(Stage, KeepsWhatRecomputationNeedsAndNoMore) {
  const TinyModel<double> tiny(Head::kLanguageModel, false);
  PackedBatch batch;
  append_sequence(batch, std::vector<std::int32_t>(64, 3));
  const auto kept = [&](Recompute recompute) {
    Activations<double> activations;
    stage_forward<double>(tiny.model(), batch, nullptr, recompute, activations);
    return static_cast<std::int64_t>(activations.storage.size());
  };
  // Elements a token, 64 tokens. Beside the layers: residual stream and final norm 2 * 12, its
  // scale 1, angles 2 * 2. Every layer: input 12; selective adds qkv 32, attention 16, its sums 4,
  // the stream behind it 12; none adds norms 2 * 12, their scales 2, gate and up 20, gated 10.
  const std::int64_t beside = 64 * (24 + 1 + 4);
  const std::int64_t slack = 8;  // up to the next 64-byte boundary
  EXPECT_EQ(kept(Recompute::kFull), beside + 2 * 64 * 12 + slack);
  EXPECT_EQ(kept(Recompute::kSelective), beside + 2 * 64 * (12 + 64) + slack);
  EXPECT_EQ(kept(Recompute::kNone), beside + 2 * 64 * (12 + 64 + 56) + slack);
}

TEST(Stage, GradientOfAJointLossMatchesFiniteDifferences) {
  Case item;
  item.biases = item.head_norms = item.tied = true;
  item.head = Head::kBoth;
  const TinyModel<double> tiny(spec_of(item), item.head);
  const PackedBatch batch = tiny_batch();
  const Derivatives by(batch.token_count());
  const Values gradient = run_stage(tiny.model(), batch, Recompute::kNone).gradient;
  const auto loss = [&](const Values& weights) {
    const Model<double> model = tiny.with_weights(weights);
    Activations<double> activations;
    TokenScores<double> scores;
    Values values;
    forward_scores(model, batch, kTemperature, activations, scores);
    forward_values(model, batch, activations, values);
    return weighted_sum(by.logprob, scores.logprob) + weighted_sum(by.entropy, scores.entropy) +
           weighted_sum(by.values, values);
  };
  expect_gradient(tiny.weights, gradient, loss, 7, 1e-7);
}

TEST(Stage, LogitsAreWholeOnEveryRank) {
  const TinyModel<double> tiny(spec_of({.name = "", .kv_heads = 1}), Head::kLanguageModel);
  const PackedBatch batch = tiny_batch();
  const Values expected = forward_logits(tiny.model(), batch);
  run_ranks(4, [&](Comm& world) {
    const auto part = cut_model(tiny.model(), 4, 1, world);
    expect_near(forward_logits(part.model(), batch), expected, "logit");
  });
}

TEST(Stage, TakesAnEmptyBatchOnEveryRank) {
  const TinyModel<double> tiny(spec_of({}), Head::kBoth);
  run_ranks(4, [&](Comm& world) {
    const auto part = cut_model(tiny.model(), 2, 2, world);
    const Outcome outcome = run_stage(part.model(), {}, Recompute::kFull);
    EXPECT_EQ(outcome.gradient, Values(part.weights.size()));
  });
}

TEST(Initialise, GivesAShardItsPartOfTheWholeModel) {
  const TinyModel<float> tiny(spec_of({.name = "", .biases = true, .head_norms = true}),
                              Head::kBoth);
  std::vector<float> whole(static_cast<std::size_t>(tiny.layout.total));
  initialise_parameters(tiny.spec, tiny.layout, 3, whole);
  for (int rank = 0; rank < 8; ++rank) {
    const auto layout =
        build_parameter_layout(tiny.spec, Head::kBoth, shard_of(tiny.spec, 4, 2, rank));
    std::vector<float> weights(static_cast<std::size_t>(layout.total));
    initialise_parameters(tiny.spec, layout, 3, weights);
    for (const ParameterTensor& tensor : layout.tensors) {
      std::vector<float> expected(static_cast<std::size_t>(tensor.count));
      take_shard<float>(tensor.part,
                        tensor_named(tiny.layout, std::span<const float>(whole), tensor.name),
                        expected);
      const auto begin = weights.begin() + tensor.offset;
      EXPECT_EQ(std::vector<float>(begin, begin + tensor.count), expected) << tensor.name;
    }
  }
}

}  // namespace
}  // namespace rpeg
