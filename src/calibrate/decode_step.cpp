#include <algorithm>

#include "calibrate/compute.h"
#include "calibrate/timing.h"
#include "rpeg/model/generate.h"

namespace rpeg {
namespace {

// The model that is generated with stays below this many parameters, its cache below this many
// values, per rank; one decode step tells the same of a smaller model.
constexpr double kMostParameters = 64e6;
constexpr double kMostCacheValues = 64e6;
constexpr std::int64_t kMostNewTokens = 17;

ModelSpec shrink(ModelSpec model, std::int64_t positions) {
  const auto most_layers =
      static_cast<std::int64_t>(kMostParameters / layer_matrix_parameters(model));
  model.layers = std::clamp<std::int64_t>(most_layers, 1, model.layers);
  const auto most_vocabulary =
      static_cast<std::int64_t>(kMostParameters / static_cast<double>(model.hidden_dim));
  model.vocab_size = std::min(model.vocab_size, std::max<std::int64_t>(2, most_vocabulary));
  model.max_positions = std::max(model.max_positions, positions);
  return model;
}

double generation_seconds(Comm& world,
                          const Model<float>& model,
                          std::span<const GenerationRequest> requests,
                          std::int64_t new_tokens,
                          double budget_s) {
  SamplingOptions options;
  options.max_new_tokens = new_tokens;
  return call_seconds_together(world, budget_s, [&] { generate(model, requests, options); });
}

}  // namespace

DecodeStep decode_step(Comm& world,
                       const CalibrationWorkload& workload,
                       const CalibrationEffort& effort) {
  const std::int64_t new_tokens = std::min(workload.response_length, kMostNewTokens);
  if (new_tokens < 2) {
    return {};
  }
  const std::int64_t positions = workload.context_length + new_tokens;
  const ModelSpec model = shrink(workload.model, positions);
  const double sequence_values = static_cast<double>(2 * model.layers * positions) *
                                 static_cast<double>(model.num_kv_heads * model.head_dim);
  const std::int64_t sequences = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(kMostCacheValues / sequence_values), 1, workload.sequences);

  const ParameterLayout layout = build_parameter_layout(model, Head::kLanguageModel);
  std::vector<float> weights(static_cast<std::size_t>(layout.total));
  initialise_parameters(model, layout, 1, weights);
  // One prompt for all: the prefill is computed once and the decode steps dominate.
  std::vector<GenerationRequest> requests(static_cast<std::size_t>(sequences));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].prompt.assign(static_cast<std::size_t>(workload.context_length), 1);
    requests[i].sample_index = static_cast<std::int64_t>(i);
  }
  const Model<float> loaded{&model, &layout, weights};
  const double short_s = generation_seconds(world, loaded, requests, 1, 2.0 * effort.point_s);
  const double long_s =
      generation_seconds(world, loaded, requests, new_tokens, 4.0 * effort.point_s);

  DecodeStep step;
  const auto steps = static_cast<double>(new_tokens - 1);
  step.seconds = std::max(0.0, long_s - short_s) / steps;
  step.layers = static_cast<double>(model.layers);
  step.sequences = static_cast<double>(sequences);
  // A step that extends a sequence to context + i tokens sees all of them: i = 1 … new_tokens − 1.
  step.context_tokens =
      step.sequences * (static_cast<double>(workload.context_length) + (steps + 1.0) / 2.0);
  step.head_flop = 2.0 * step.sequences * static_cast<double>(model.hidden_dim * model.vocab_size);
  step.logits_bytes = 3.0 * sizeof(float) * step.sequences * static_cast<double>(model.vocab_size);
  return step;
}

}  // namespace rpeg
