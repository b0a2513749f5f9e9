// One training step and one round of generation of the demo's model: 64 prompts x 8 samples, three
// new tokens, 2 layers x 64 wide.

#include <benchmark/benchmark.h>

#include "rpeg/model/generate.h"
#include "rpeg/model/optimizer.h"
#include "rpeg/model/parameters.h"
#include "rpeg/model/transformer.h"

namespace rpeg {
namespace {

struct Demo {
  ModelSpec spec;
  ParameterLayout layout;
  std::vector<float> weights;

  explicit Demo(std::int64_t vocabulary) {
    spec.layers = 2;
    spec.hidden_dim = 64;
    spec.ffn_dim = 172;
    spec.vocab_size = vocabulary;
    spec.head_dim = 16;
    spec.num_heads = 4;
    spec.num_kv_heads = 4;
    layout = build_parameter_layout(spec, Head::kLanguageModel);
    weights.resize(static_cast<std::size_t>(layout.total));
    initialise_parameters(spec, layout, 1, weights);
  }
  Model<float> model() const { return {&spec, &layout, weights}; }
};

std::vector<GenerationRequest> demo_requests() {
  std::vector<GenerationRequest> requests;
  for (std::int32_t prompt = 0; prompt < 64; ++prompt) {
    for (std::int64_t sample = 0; sample < 8; ++sample) {
      requests.push_back({{prompt % 10, prompt / 7, prompt % 5, 3}, prompt, sample});
    }
  }
  return requests;
}

void generate_demo(benchmark::State& state) {
  const Demo demo(state.range(0));
  const auto requests = demo_requests();
  SamplingOptions options;
  options.max_new_tokens = state.range(1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(generate(demo.model(), requests, options));
  }
}

/// 512 sequences of 7 tokens; the last three of each in the loss.
void train_demo(benchmark::State& state) {
  Demo demo(state.range(0));
  PackedBatch batch;
  std::vector<float> d_logprob;
  for (const GenerationRequest& request : demo_requests()) {
    std::vector<std::int32_t> tokens = request.prompt;
    tokens.insert(tokens.end(), {1, 2, 3});
    append_sequence(batch, tokens);
    d_logprob.insert(d_logprob.end(), {0.0F, 0.0F, 0.0F, 0.0F, 0.1F, -0.2F, 0.3F});
  }
  Activations<float> activations;
  TokenScores<float> scores;
  AdamWState optimizer;
  std::vector<float> gradient(demo.weights.size());
  for (auto _ : state) {
    std::fill(gradient.begin(), gradient.end(), 0.0F);
    forward_scores(demo.model(), batch, 1.0F, activations, scores);
    backward_scores<float>(demo.model(), batch, 1.0F, activations, d_logprob, {}, gradient);
    adamw_update(
        {.learning_rate = 1e-4}, gradient, 1.0 / gradient_norm(gradient), optimizer, demo.weights);
  }
}

void score_demo(benchmark::State& state) {
  const Demo demo(state.range(0));
  PackedBatch batch;
  for (const GenerationRequest& request : demo_requests()) {
    std::vector<std::int32_t> tokens = request.prompt;
    tokens.insert(tokens.end(), {1, 2, 3});
    append_sequence(batch, tokens);
  }
  Activations<float> activations;
  TokenScores<float> scores;
  for (auto _ : state) {
    forward_scores(demo.model(), batch, 1.0F, activations, scores);
    benchmark::DoNotOptimize(scores.logprob.data());
  }
}

BENCHMARK(generate_demo)
    ->Args({16, 3})
    ->Args({512, 3})
    ->Args({16, 32})
    ->Unit(benchmark::kMillisecond);
BENCHMARK(score_demo)->Arg(16)->Arg(512)->Unit(benchmark::kMillisecond);
BENCHMARK(train_demo)->Arg(16)->Arg(512)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace rpeg

BENCHMARK_MAIN();
