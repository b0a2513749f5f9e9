#include "rpeg/model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/sampler.h"
#include "model/trunk.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/sampling.h"

namespace rpeg {
namespace {

// Prompt tokens that one prefill pass takes, and logits formed at a time: bounds on scratch memory.
constexpr std::int64_t kPrefillTokens = 8192;
constexpr std::int64_t kLogitsInBlock = std::int64_t{1} << 18;
constexpr std::int64_t kLeastRowsInBlock = 32;

/// A sequence on its way: rows [first, first + length) of each layer's cache are filled.
struct Sequence {
  std::size_t request = 0;
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int32_t next = 0;  // the last token drawn, not yet in the cache
};

struct Generation {
  const Model<float>& model;
  std::span<const GenerationRequest> requests;
  const SamplingOptions& options;
  cpu::AttentionShape shape{};
  std::int64_t cache_rows = 0;   // of one layer
  std::vector<float> cache{};    // (L, cache_rows, 2 n d)
  std::vector<float> angles{};   // cosine, then sine, each (positions, d / 2)
  std::vector<float> storage{};  // activations of one pass
  std::vector<Sequence> live{};
  std::vector<GenerationResult> results{};
  SamplerScratch sampler{};

  const ModelSpec& spec() const { return *model.spec; }
  float* layer_cache(std::int64_t layer) {
    return cache.data() + layer * cache_rows * shape.kv_width();
  }
  TrunkRows<float> rows(std::span<const std::int32_t> positions) const {
    return {model,
            local_shape(*model.spec, model.layout->shard),
            positions,
            angles.data(),
            angles.data() + angles.size() / 2,
            nullptr};
  }
};

void check_requests(const ModelSpec& spec,
                    std::span<const GenerationRequest> requests,
                    const SamplingOptions& options) {
  check(options.greedy || options.temperature > 0.0, "sampling needs a temperature above 0");
  check(options.top_p > 0.0 && options.top_k >= 0, "top_p must be above 0 and top_k at least 0");
  check(options.max_new_tokens >= 1, "generation needs at least one new token");
  for (const GenerationRequest& request : requests) {
    const auto length = static_cast<std::int64_t>(request.prompt.size());
    check(length >= 1, "a prompt has at least one token");
    for (const std::int32_t token : request.prompt) {
      check(token >= 0 && token < spec.vocab_size, "a token is outside the model's vocabulary");
    }
    if (length + options.max_new_tokens > spec.max_positions) {
      throw Error(
          ErrorKind::kUsage,
          fmt::format("prompt {} has {} tokens; with {} new ones it exceeds the {} positions "
                      "of the model",
                      request.prompt_index,
                      length,
                      options.max_new_tokens,
                      spec.max_positions));
    }
  }
}

/// Gives every sequence its stretch of the cache and fills the table of angles.
void prepare(Generation& run) {
  const ModelSpec& spec = run.spec();
  run.shape = local_shape(spec, run.model.layout->shard).attention;
  run.results.resize(run.requests.size());
  std::int64_t longest = 0;
  for (std::size_t i = 0; i < run.requests.size(); ++i) {
    const auto length = static_cast<std::int64_t>(run.requests[i].prompt.size());
    run.live.push_back({i, run.cache_rows, length, 0});
    // The last token drawn never enters the cache.
    run.cache_rows += length + run.options.max_new_tokens - 1;
    longest = std::max(longest, length + run.options.max_new_tokens);
  }
  run.cache.resize(static_cast<std::size_t>(spec.layers * run.cache_rows * run.shape.kv_width()));
  const std::int64_t angles = longest * spec.head_dim / 2;
  run.angles.resize(static_cast<std::size_t>(2 * angles));
  fill_angles(spec, longest, run.angles.data(), run.angles.data() + angles);
}

/// Buffers of one pass over some rows.
struct Pass {
  LayerActivations<float> layer;
  float* attention_scratch;
  float* logits;       // (rows in a block, V)
  float* log_sum_exp;  // (rows in a block)
  std::int64_t block_rows;
};

Pass place_pass(Generation& run, std::int64_t rows, std::int64_t scratch_size) {
  const ModelSpec& spec = run.spec();
  const auto place = [&](Arena<float>& arena) {
    Pass pass{};
    pass.block_rows = std::min(rows, std::max(kLeastRowsInBlock, kLogitsInBlock / spec.vocab_size));
    pass.layer = place_reused_layer(local_shape(spec, run.model.layout->shard), rows, arena);
    pass.attention_scratch = arena.take(scratch_size);
    pass.logits = arena.take(pass.block_rows * spec.vocab_size);
    pass.log_sum_exp = arena.take(pass.block_rows);
    return pass;
  };
  Arena<float> measured;
  place(measured);
  Arena<float> arena(run.storage, measured);
  return place(arena);
}

/// Copies the keys and values of row `row` of a pass to row `to` of a layer's cache.
void store_keys_and_values(const Generation& run,
                           const float* qkv,
                           std::int64_t row,
                           float* layer_cache,
                           std::int64_t to) {
  std::copy_n(qkv + row * run.shape.qkv_width() + run.shape.query_width(),
              run.shape.kv_width(),
              layer_cache + to * run.shape.kv_width());
}

/// Draws the next token of a sequence from its row of relative logits.
void draw(Generation& run,
          Sequence& sequence,
          std::span<const float> relative_logits,
          float log_sum_exp) {
  const GenerationRequest& request = run.requests[sequence.request];
  GenerationResult& result = run.results[sequence.request];
  const std::int64_t position = sequence.length;
  sequence.next = sample_token(run.options, request, position, relative_logits, run.sampler);
  const float logprob = relative_logits[static_cast<std::size_t>(sequence.next)] - log_sum_exp;
  result.tokens.push_back(sequence.next);
  result.logprobs.push_back(logprob);
  const auto& stops = run.options.stop_tokens;
  result.stopped = std::find(stops.begin(), stops.end(), sequence.next) != stops.end();
}

/// Norms the residual stream of `rows` rows of a pass, forms their logits block by block, and calls
/// `use(row, relative logits, log sum exp)` for each.
template <typename Use>
void for_each_logits(Generation& run, const Pass& pass, std::int64_t rows, Use use) {
  const ModelSpec& spec = run.spec();
  const float* weights = run.model.weights.data();
  const double temperature = run.options.greedy ? 1.0 : run.options.temperature;
  cpu::rmsnorm_forward({rows, spec.hidden_dim, spec.rms_norm_eps},
                       pass.layer.input,
                       weights + final_norm_offset(*run.model.layout),
                       pass.layer.input_norm,
                       pass.layer.input_rms);
  for (std::int64_t first = 0; first < rows; first += pass.block_rows) {
    const std::int64_t count = std::min(pass.block_rows, rows - first);
    cpu::linear_forward({count, spec.vocab_size, spec.hidden_dim},
                        pass.layer.input_norm + first * spec.hidden_dim,
                        weights + language_head_offset(*run.model.layout),
                        pass.logits);
    cpu::relative_logits(count, spec.vocab_size, temperature, pass.logits, pass.log_sum_exp);
    for (std::int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(pass.log_sum_exp[i])) {
        throw Error(
            ErrorKind::kRuntime,
            fmt::format("the model's logits are not finite (iteration {})", run.options.iteration));
      }
      use(first + i,
          std::span<const float>(pass.logits + i * spec.vocab_size,
                                 static_cast<std::size_t>(spec.vocab_size)),
          pass.log_sum_exp[i]);
    }
  }
}

/// Runs of equal prompts: entry i is the first sequence of run i; the last entry is the end.
std::vector<std::size_t> prompt_runs(std::span<const GenerationRequest> requests) {
  std::vector<std::size_t> runs;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || requests[i].prompt != requests[i - 1].prompt) {
      runs.push_back(i);
    }
  }
  runs.push_back(requests.size());
  return runs;
}

/// Computes the prompts of the runs `runs` (all but the last entry, which ends them) together,
/// fills the cache of every sequence and draws its first token.
void prefill(Generation& run, std::span<const std::size_t> runs) {
  const ModelSpec& spec = run.spec();
  PackedBatch batch;
  std::vector<std::int32_t> positions;
  for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
    const auto& prompt = run.requests[runs[i]].prompt;
    append_sequence(batch, prompt);
    for (std::size_t t = 0; t < prompt.size(); ++t) {
      positions.push_back(static_cast<std::int32_t>(t));
    }
  }
  const Pass pass = place_pass(run, batch.token_count(), cpu::attention_scratch_size(batch.starts));
  const TrunkRows<float> rows = run.rows(positions);
  const LayerActivations<float>& layer = pass.layer;
  embed(run.model, batch.tokens, layer.input);
  for (std::int64_t index = 0; index < spec.layers; ++index) {
    project_qkv(rows, index, layer);
    cpu::attention_forward(run.shape,
                           std::span(batch.starts),
                           layer.qkv,
                           layer.attention,
                           layer.log_sum_exp,
                           pass.attention_scratch);
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
      for (std::size_t s = runs[i]; s < runs[i + 1]; ++s) {
        for (std::int64_t t = batch.starts[i]; t < batch.starts[i + 1]; ++t) {
          store_keys_and_values(
              run, layer.qkv, t, run.layer_cache(index), run.live[s].first + t - batch.starts[i]);
        }
      }
    }
    finish_layer(rows, index, layer, layer.middle);
  }
  // Only the last token of each prompt predicts.
  const auto prompts = static_cast<std::int64_t>(runs.size()) - 1;
  for (std::int64_t i = 0; i < prompts; ++i) {
    const std::int64_t last = batch.starts[static_cast<std::size_t>(i) + 1] - 1;
    std::copy_n(
        layer.input + last * spec.hidden_dim, spec.hidden_dim, layer.input + i * spec.hidden_dim);
  }
  for_each_logits(
      run, pass, prompts, [&](std::int64_t row, std::span<const float> logits, float log_sum) {
        const auto i = static_cast<std::size_t>(row);
        for (std::size_t s = runs[i]; s < runs[i + 1]; ++s) {
          draw(run, run.live[s], logits, log_sum);
        }
      });
}

void prefill_all(Generation& run) {
  const std::vector<std::size_t> runs = prompt_runs(run.requests);
  for (std::size_t first = 0; first + 1 < runs.size();) {
    std::size_t end = first;
    std::size_t tokens = 0;
    do {
      tokens += run.requests[runs[end]].prompt.size();
      ++end;
    } while (end + 1 < runs.size() && tokens + run.requests[runs[end]].prompt.size() <=
                                          static_cast<std::size_t>(kPrefillTokens));
    prefill(run, std::span(runs).subspan(first, end - first + 1));
    first = end;
  }
}

/// Takes every live sequence one token further.
void decode(Generation& run) {
  const ModelSpec& spec = run.spec();
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::vector<cpu::CachedQuery> queries;
  std::int64_t longest = 0;
  for (Sequence& sequence : run.live) {
    tokens.push_back(sequence.next);
    positions.push_back(static_cast<std::int32_t>(sequence.length));
    ++sequence.length;
    queries.push_back({sequence.first, sequence.length});
    longest = std::max(longest, sequence.length);
  }
  const auto count = static_cast<std::int64_t>(run.live.size());
  const Pass pass = place_pass(run, count, longest);
  const TrunkRows<float> rows = run.rows(positions);
  const LayerActivations<float>& layer = pass.layer;
  embed(run.model, tokens, layer.input);
  for (std::int64_t index = 0; index < spec.layers; ++index) {
    project_qkv(rows, index, layer);
    for (std::int64_t i = 0; i < count; ++i) {
      const cpu::CachedQuery& query = queries[static_cast<std::size_t>(i)];
      store_keys_and_values(
          run, layer.qkv, i, run.layer_cache(index), query.first + query.length - 1);
    }
    cpu::cached_attention(run.shape,
                          std::span<const cpu::CachedQuery>(queries),
                          layer.qkv,
                          run.layer_cache(index),
                          layer.attention,
                          pass.attention_scratch);
    finish_layer(rows, index, layer, layer.middle);
  }
  for_each_logits(
      run, pass, count, [&](std::int64_t row, std::span<const float> logits, float log_sum) {
        draw(run, run.live[static_cast<std::size_t>(row)], logits, log_sum);
      });
}

void drop_finished(Generation& run) {
  std::erase_if(run.live, [&](const Sequence& sequence) {
    const GenerationResult& result = run.results[sequence.request];
    return result.stopped ||
           static_cast<std::int64_t>(result.tokens.size()) == run.options.max_new_tokens;
  });
}

}  // namespace

std::vector<GenerationResult> generate(const Model<float>& model,
                                       std::span<const GenerationRequest> requests,
                                       const SamplingOptions& options) {
  check_requests(*model.spec, requests, options);
  Generation run{model, requests, options};
  prepare(run);
  prefill_all(run);
  drop_finished(run);
  while (!run.live.empty()) {
    decode(run);
    drop_finished(run);
  }
  return std::move(run.results);
}

}  // namespace rpeg
