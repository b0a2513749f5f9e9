// Tiny random models of every family that the transformers package saved, against the scores that
// it computed in float64 (scripts/make_model_golden.py); on one rank, on tensor-parallel ranks and
// on pipeline stages.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "rpeg/base/file.h"
#include "rpeg/model/stage.h"
#include "support/sharded_model.h"

namespace rpeg {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

const fs::path kModels = RPEG_SOURCE_DIR "/tests/golden/data/models";
constexpr double kTolerance = 1e-5;

struct Golden {
  fs::path directory;
  ModelSpec spec;
  Head head = Head::kLanguageModel;
  Json expected;
  PackedBatch batch;
  float temperature = 1.0F;

  explicit Golden(const std::string& name) : directory(kModels / name) {
    spec = load_hf_config(directory);
    expected = Json::parse(read_file(directory / "golden.json"));
    head = expected.contains("values") ? Head::kScalar : Head::kLanguageModel;
    append_sequence(batch, expected["ids"].get<std::vector<std::int32_t>>());
    temperature = expected["temperature"].get<float>();
  }

  /// The shard's part of the files, without the groups.
  ModelPart<float> load(const ModelShard& shard) const {
    ModelPart<float> part;
    part.spec = spec;
    part.layout = build_parameter_layout(spec, head, shard);
    part.weights.resize(static_cast<std::size_t>(part.layout.total));
    load_parameters(directory, part.layout, part.weights);
    return part;
  }

  void expect(const std::vector<float>& actual, const char* key) const {
    const auto values = expected[key].get<std::vector<double>>();
    ASSERT_EQ(actual.size(), values.size()) << key;
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(actual[i], values[i], kTolerance * (1.0 + std::abs(values[i])))
          << key << " " << i;
    }
  }

  /// What the heads make of the last stage's output.
  void expect_heads(const Model<float>& model, std::span<const float> hidden) const {
    std::vector<float> scratch;
    if (head == Head::kScalar) {
      std::vector<float> values;
      head_values(model, hidden, values);
      expect(values, "values");
      return;
    }
    TokenScores<float> scores;
    head_scores(model, batch, hidden, temperature, scratch, scores);
    expect(scores.logprob, "logprobs");
    expect(scores.entropy, "entropies");
  }
};

class GoldenModel : public testing::TestWithParam<const char*> {};

TEST_P(GoldenModel, ScoresMatchTransformers) {
  const Golden golden(GetParam());
  const ModelPart<float> part = golden.load(whole_model(golden.spec));
  Activations<float> activations;
  const auto hidden = stage_infer<float>(part.model(), golden.batch, nullptr, activations);
  golden.expect_heads(part.model(), hidden);
  if (golden.head == Head::kLanguageModel) {
    const auto logits = forward_logits(part.model(), golden.batch);
    golden.expect({logits.end() - golden.spec.vocab_size, logits.end()}, "last_logits");
  }
}

TEST_P(GoldenModel, ScoresMatchOnTensorParallelRanks) {
  const Golden golden(GetParam());
  for (const int tp : {2, 4}) {
    run_ranks(tp, [&](Comm& world) {
      const ModelPart<float> part = golden.load(shard_of(golden.spec, tp, 1, world.rank()));
      Model<float> model = part.model();
      model.groups.tensor = &world;
      Activations<float> activations;
      const auto hidden =
          stage_forward<float>(model, golden.batch, nullptr, Recompute::kNone, activations);
      golden.expect_heads(model, hidden);
    });
  }
}

TEST_P(GoldenModel, ScoresMatchOnPipelineStages) {
  const Golden golden(GetParam());
  Activations<float> first;
  Activations<float> second;
  const ModelPart<float> front = golden.load(shard_of(golden.spec, 1, 2, 0));
  const ModelPart<float> back = golden.load(shard_of(golden.spec, 1, 2, 1));
  const auto middle =
      stage_forward<float>(front.model(), golden.batch, nullptr, Recompute::kNone, first);
  const auto hidden =
      stage_forward<float>(back.model(), golden.batch, middle.data(), Recompute::kNone, second);
  golden.expect_heads(back.model(), hidden);
}

INSTANTIATE_TEST_SUITE_P(Families,
                         GoldenModel,
                         testing::Values("llama3_scaling",
                                         "linear_scaling",
                                         "qwen2",
                                         "qwen3",
                                         "mistral_bf16_shards",
                                         "qwen2_classifier"));

TEST(GoldenConfig, ASlidingWindowLimitsThePositions) {
  EXPECT_EQ(Golden("mistral_bf16_shards").spec.max_positions, 48);
}

}  // namespace
}  // namespace rpeg
