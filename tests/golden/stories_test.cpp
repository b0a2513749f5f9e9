// Published models through the whole forward and backward pass, against float64 values computed
// outside RPEG. The files are found through RPEG_TEST_DATA.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <numeric>

#include "rpeg/base/file.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/model/generate.h"
#include "rpeg/model/optimizer.h"
#include "rpeg/model/parameters.h"
#include "rpeg/model/stage.h"
#include "rpeg/model/transformer.h"
#include "support/sharded_model.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

struct LoadedModel {
  ModelSpec spec;
  ParameterLayout layout;
  std::vector<float> weights;

  Model<float> model() const { return {&spec, &layout, weights}; }
};

LoadedModel load_model(const fs::path& directory) {
  LoadedModel loaded;
  loaded.spec = load_hf_config(directory);
  loaded.layout = build_parameter_layout(loaded.spec, Head::kLanguageModel);
  loaded.weights.resize(static_cast<std::size_t>(loaded.layout.total));
  load_parameters(directory, loaded.layout, loaded.weights);
  return loaded;
}

class Golden : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("RPEG_TEST_DATA");
    if (data == nullptr || !fs::is_directory(fs::path(data) / "stories260k")) {
      GTEST_SKIP() << "set RPEG_TEST_DATA to a directory that holds stories260k and verl_arith";
    }
    root = data;
  }

  static Json read_json(const fs::path& path) { return Json::parse(read_file(path)); }

  fs::path root;
};

Ids join(Ids first, const Ids& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

SamplingOptions greedy_options(std::int64_t new_tokens) {
  SamplingOptions options;
  options.greedy = true;
  options.max_new_tokens = new_tokens;
  return options;
}

void expect_greedy_ids(const LoadedModel& loaded, const Json& cases, std::int64_t new_tokens) {
  std::vector<GenerationRequest> requests;
  for (const Json& item : cases) {
    requests.push_back(
        {item["prompt_ids"].get<Ids>(), static_cast<std::int64_t>(requests.size()), 0});
  }
  const auto results = generate(loaded.model(), requests, greedy_options(new_tokens));
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].tokens, cases[i]["greedy_ids"].get<Ids>()) << cases[i]["prompt"];
    const auto logprobs = cases[i]["greedy_logprobs"].get<std::vector<double>>();
    for (std::size_t t = 0; t < logprobs.size(); ++t) {
      EXPECT_NEAR(results[i].logprobs[t], logprobs[t], 1e-4);
    }
  }
}

using StoriesModel = Golden;
using ArithmeticModel = Golden;

TEST_F(StoriesModel, LogitsMatchFloat64) {
  const LoadedModel loaded = load_model(root / "stories260k");
  const Json golden = read_json(root / "stories260k/golden.json");
  const Json& item = golden["cases"][0];
  PackedBatch batch;
  append_sequence(batch, join(item["prompt_ids"].get<Ids>(), item["greedy_ids"].get<Ids>()));
  const auto logits = forward_logits(loaded.model(), batch);
  double worst = 0.0;
  for (const Json& expected : item["logits"]) {
    const auto position = expected["position"].get<std::size_t>();
    const auto values = expected["float64"].get<std::vector<double>>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      worst = std::max(
          worst, std::abs(static_cast<double>(logits[position * values.size() + i]) - values[i]));
    }
  }
  EXPECT_LT(worst, 5e-5);
}

TEST_F(StoriesModel, GreedyTokensOfAllPromptsMatch) {
  const LoadedModel loaded = load_model(root / "stories260k");
  expect_greedy_ids(loaded, read_json(root / "stories260k/golden.json")["cases"], 64);
}

TEST_F(StoriesModel, GradientsMatchFloat64Autograd) {
  const LoadedModel loaded = load_model(root / "stories260k");
  const Json golden = read_json(root / "stories260k/golden_grads.json");
  PackedBatch batch;
  append_sequence(batch, golden["ids"].get<Ids>());
  Activations<float> activations;
  TokenScores<float> scores;
  forward_scores(loaded.model(), batch, 1.0F, activations, scores);
  const double predictions = static_cast<double>(batch.token_count() - 1);
  double nll = 0.0;
  for (const float logprob : scores.logprob) {
    nll -= static_cast<double>(logprob) / predictions;
  }
  const auto expected_nll = golden["mean_nll"].get<double>();
  EXPECT_NEAR(nll, expected_nll, 1e-4 * expected_nll);

  const std::vector<float> d_logprob(batch.tokens.size(), static_cast<float>(-1.0 / predictions));
  std::vector<float> gradient(loaded.weights.size(), 0.0F);
  backward_scores<float>(loaded.model(), batch, 1.0F, activations, d_logprob, {}, gradient);
  EXPECT_EQ(golden["tensors"].size(), loaded.layout.tensors.size());
  for (const ParameterTensor& tensor : loaded.layout.tensors) {
    const auto expected = golden["tensors"][tensor.name]["l2"].get<double>();
    const double norm = gradient_norm(std::span(gradient).subspan(
        static_cast<std::size_t>(tensor.offset), static_cast<std::size_t>(tensor.count)));
    EXPECT_NEAR(norm, expected, 1e-4 * expected) << tensor.name;
  }
  const auto expected_norm = golden["global_grad_norm"].get<double>();
  EXPECT_NEAR(gradient_norm(gradient), expected_norm, 1e-4 * expected_norm);
}

/// Log-probabilities and gradient of the golden sequence on tp * pp ranks, each from its part of
/// the files.
TEST_F(StoriesModel, LossAndGradientNormMatchOnSeveralRanks) {
  const Json golden = read_json(root / "stories260k/golden_grads.json");
  const ModelSpec spec = load_hf_config(root / "stories260k");
  PackedBatch batch;
  append_sequence(batch, golden["ids"].get<Ids>());
  const double predictions = static_cast<double>(batch.token_count() - 1);
  const std::vector<float> d_logprob(batch.tokens.size(), static_cast<float>(-1.0 / predictions));
  for (const auto& [tp, pp] : {std::pair(2, 1), std::pair(4, 1), std::pair(1, 2)}) {
    std::vector<double> squares(static_cast<std::size_t>(tp * pp));
    run_ranks(tp * pp, [&, tp = tp, pp = pp](Comm& world) {
      ModelPart<float> part = empty_part<float>(spec, Head::kLanguageModel, tp, pp, world);
      load_parameters(root / "stories260k", part.layout, part.weights);
      const Model<float> model = part.model();
      std::vector<float> gradient(part.weights.size());
      Activations<float> activations;
      std::vector<float> input;
      const bool is_first = part.layout.shard.has_embedding;
      if (!is_first) {
        input = receive_values<float>(*part.pipeline, 0, 1);
      }
      const auto hidden = stage_forward<float>(
          model, batch, is_first ? nullptr : input.data(), Recompute::kFull, activations);
      std::vector<float> d_hidden(hidden.size());
      if (part.layout.shard.has_head) {
        TokenScores<float> scores;
        std::vector<float> scratch;
        head_scores(model, batch, hidden, 1.0F, scratch, scores);
        double nll = 0.0;
        for (const float logprob : scores.logprob) {
          nll -= static_cast<double>(logprob) / predictions;
        }
        const auto expected = golden["mean_nll"].get<double>();
        EXPECT_NEAR(nll, expected, 1e-4 * expected);
        head_scores_backward<float>(
            model, batch, hidden, 1.0F, d_logprob, {}, scratch, d_hidden, gradient);
      } else {
        send_values<float>(*part.pipeline, 1, 1, hidden);
        d_hidden = receive_values<float>(*part.pipeline, 1, 2);
      }
      const auto d_input =
          stage_backward<float>(model, batch, d_hidden, Recompute::kFull, activations, gradient);
      if (!is_first) {
        send_values<float>(*part.pipeline, 0, 2, d_input);
      }
      sum_shared_gradients<float>(model, gradient);
      squares[static_cast<std::size_t>(world.rank())] =
          owned_sum_of_squares(part.layout, gradient, 0, part.layout.total);
    });
    const auto expected_norm = golden["global_grad_norm"].get<double>();
    EXPECT_NEAR(std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0)),
                expected_norm,
                1e-4 * expected_norm);
  }
}

TEST_F(StoriesModel, Bf16ShardsLoadToTheNearestBf16) {
  const LoadedModel single = load_model(root / "stories260k");
  const LoadedModel sharded = load_model(root / "stories260k/bf16_sharded");
  ASSERT_EQ(single.layout.total, sharded.layout.total);
  for (std::size_t i = 0; i < single.weights.size(); ++i) {
    // bf16 has 8 significant bits: half a unit in the last place is at most 2^-8 of the value.
    ASSERT_NEAR(sharded.weights[i], single.weights[i], std::abs(single.weights[i]) * 0x1p-8F) << i;
  }
}

TEST_F(ArithmeticModel, GreedyTokensAndLogitsMatchFloat64) {
  const LoadedModel loaded = load_model(root / "verl_arith");
  const Json golden = read_json(root / "verl_arith/golden.json");
  expect_greedy_ids(loaded, golden["cases"], 32);
  for (const Json& item : golden["cases"]) {
    PackedBatch batch;
    append_sequence(batch, item["prompt_ids"].get<Ids>());
    const auto logits = forward_logits(loaded.model(), batch);
    const auto expected = item["logits_last_prompt_position_float64"].get<std::vector<double>>();
    const std::size_t row = logits.size() - expected.size();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(logits[row + i], expected[i], 5e-6);
    }
  }
}

}  // namespace
}  // namespace rpeg
