#include "model/generation_pass.h"

#include <algorithm>
#include <cstring>

#include "rpeg/base/error.h"
#include "rpeg/kernels/rmsnorm.h"

namespace rpeg {
namespace {

// Prompt tokens that one prefill pass takes: a bound on scratch memory.
constexpr std::int64_t kPrefillTokens = 8192;

/// Buffers of one pass over some rows.
struct Pass {
  LayerActivations<float> layer;
  float* attention_scratch;
  float* partial;  // (rows, h)
};

Pass place_pass(GenerationPasses& passes, std::int64_t rows, std::int64_t attention_scratch) {
  const auto place = [&](Arena<float>& arena) {
    Pass pass{};
    pass.layer = place_reused_layer(passes.shape, rows, arena);
    pass.attention_scratch = arena.take(attention_scratch);
    pass.partial = arena.take(rows * passes.shape.hidden);
    return pass;
  };
  Arena<float> measured;
  place(measured);
  Arena<float> arena(passes.storage, measured);
  return place(arena);
}

/// Copies the keys and values of row `row` of a pass to row `to` of a layer's cache.
void store_keys_and_values(const cpu::AttentionShape& shape,
                           const float* qkv,
                           std::int64_t row,
                           float* layer_cache,
                           std::int64_t to) {
  std::copy_n(qkv + row * shape.qkv_width() + shape.query_width(),
              shape.kv_width(),
              layer_cache + to * shape.kv_width());
}

/// The input of the stage's first layer: embeddings, or what the stage before sends.
void take_input(GenerationPasses& passes, std::span<const std::int32_t> tokens, float* input) {
  if (passes.is_first()) {
    embed(passes.model, tokens, input);
    return;
  }
  Comm& pipeline = *passes.model.groups.pipeline;
  const Bytes hidden = pipeline.receive(pipeline.rank() - 1, kGeneratedHiddenTag);
  const std::size_t expected =
      tokens.size() * static_cast<std::size_t>(passes.shape.hidden) * sizeof(float);
  check(hidden.size() == expected, "the stages of a generation disagree about its rows");
  std::memcpy(input, hidden.data(), hidden.size());
}

void send_output(const GenerationPasses& passes, std::int64_t rows, const float* output) {
  Comm& pipeline = *passes.model.groups.pipeline;
  Bytes hidden;
  append_bytes(hidden, std::span(output, static_cast<std::size_t>(rows * passes.shape.hidden)));
  pipeline.send(pipeline.rank() + 1, kGeneratedHiddenTag, std::move(hidden));
}

/// The rows of one pass and what is done with them.
struct PassRows {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> positions;
  std::int64_t attention_scratch = 0;
};

/// Runs the stage's layers; `attend(pass, layer_cache)` does the attention of one.
template <typename Attend>
Pass run_layers(GenerationPasses& passes, const PassRows& rows, Attend attend) {
  const auto count = static_cast<std::int64_t>(rows.tokens.size());
  const Pass pass = place_pass(passes, count, rows.attention_scratch);
  const TrunkRows<float> trunk{.model = passes.model,
                               .shape = passes.shape,
                               .positions = rows.positions,
                               .cosine = passes.angles.data(),
                               .sine = passes.angles.data() + passes.angles.size() / 2,
                               .partial = pass.partial};
  take_input(passes, rows.tokens, pass.layer.input);
  const std::int64_t layer_size = passes.cache_rows * passes.shape.attention.kv_width();
  for (std::int64_t index = 0; index < passes.shape.layers; ++index) {
    project_qkv(trunk, index, pass.layer);
    attend(pass, passes.cache.data() + index * layer_size);
    finish_layer(trunk, index, pass.layer, pass.layer.middle);
  }
  return pass;
}

/// Norms the residual stream of `rows` rows and draws.
void draw_from(GenerationPasses& passes,
               const Pass& pass,
               std::int64_t rows,
               std::span<const DrawPlace> places,
               std::vector<DrawnToken>& drawn) {
  const Model<float>& model = passes.model;
  cpu::rmsnorm_forward({rows, passes.shape.hidden, model.spec->rms_norm_eps},
                       pass.layer.input,
                       model.weights.data() + final_norm_offset(*model.layout),
                       pass.layer.input_norm,
                       pass.layer.input_rms);
  draw_tokens(model, passes.sampling, rows, pass.layer.input_norm, places, passes.draw, drawn);
}

/// Runs of equal prompts: entry i is the first sequence of run i; the last entry is the end.
std::vector<std::size_t> prompt_runs(const GenerationPasses& passes,
                                     std::span<const LiveSequence> sequences) {
  const auto& requests = passes.requests;
  std::vector<std::size_t> runs;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    if (i == 0 ||
        requests[sequences[i].request].prompt != requests[sequences[i - 1].request].prompt) {
      runs.push_back(i);
    }
  }
  runs.push_back(sequences.size());
  return runs;
}

/// Computes the prompts of the runs `runs` (all but the last entry, which ends them) together.
void prefill_runs(GenerationPasses& passes,
                  std::span<const LiveSequence> sequences,
                  std::span<const std::size_t> runs,
                  std::vector<DrawnToken>& drawn) {
  PackedBatch batch;
  PassRows rows;
  for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
    const auto& prompt = passes.requests[sequences[runs[i]].request].prompt;
    append_sequence(batch, prompt);
    for (std::size_t t = 0; t < prompt.size(); ++t) {
      rows.positions.push_back(static_cast<std::int32_t>(t));
    }
  }
  rows.tokens = batch.tokens;
  rows.attention_scratch = cpu::attention_scratch_size(batch.starts);
  const cpu::AttentionShape& shape = passes.shape.attention;
  const Pass pass = run_layers(passes, rows, [&](const Pass& p, float* cache) {
    cpu::attention_forward(shape,
                           std::span<const std::int64_t>(batch.starts),
                           p.layer.qkv,
                           p.layer.attention,
                           p.layer.log_sum_exp,
                           p.attention_scratch);
    for (std::size_t i = 0; i + 1 < runs.size(); ++i) {
      for (std::size_t s = runs[i]; s < runs[i + 1]; ++s) {
        for (std::int64_t t = batch.starts[i]; t < batch.starts[i + 1]; ++t) {
          store_keys_and_values(
              shape, p.layer.qkv, t, cache, sequences[s].first + t - batch.starts[i]);
        }
      }
    }
  });
  if (!passes.is_last()) {
    send_output(passes, batch.token_count(), pass.layer.input);
    return;
  }
  // Only the last token of each prompt predicts.
  const std::int64_t h = passes.shape.hidden;
  const auto prompts = static_cast<std::int64_t>(runs.size()) - 1;
  std::vector<DrawPlace> places;
  for (std::int64_t i = 0; i < prompts; ++i) {
    const auto run = static_cast<std::size_t>(i);
    std::copy_n(pass.layer.input + (batch.starts[run + 1] - 1) * h, h, pass.layer.input + i * h);
    for (std::size_t s = runs[run]; s < runs[run + 1]; ++s) {
      places.push_back({i, &passes.requests[sequences[s].request], sequences[s].length});
    }
  }
  draw_from(passes, pass, prompts, places, drawn);
}

}  // namespace

void prepare_passes(GenerationPasses& passes, std::int64_t cache_rows, std::int64_t longest) {
  const LocalShape& shape = passes.shape;
  passes.cache_rows = cache_rows;
  passes.cache.resize(
      static_cast<std::size_t>(shape.layers * cache_rows * shape.attention.kv_width()));
  const std::int64_t angles = longest * shape.attention.head_dim / 2;
  passes.angles.resize(static_cast<std::size_t>(2 * angles));
  fill_angles(*passes.model.spec, longest, passes.angles.data(), passes.angles.data() + angles);
}

void prefill(GenerationPasses& passes,
             std::span<const LiveSequence> sequences,
             std::vector<DrawnToken>& drawn) {
  const std::vector<std::size_t> runs = prompt_runs(passes, sequences);
  const auto prompt_size = [&](std::size_t run) {
    return static_cast<std::int64_t>(passes.requests[sequences[runs[run]].request].prompt.size());
  };
  for (std::size_t first = 0; first + 1 < runs.size();) {
    std::size_t end = first;
    std::int64_t tokens = 0;
    do {
      tokens += prompt_size(end);
      ++end;
    } while (end + 1 < runs.size() && tokens + prompt_size(end) <= kPrefillTokens);
    prefill_runs(passes, sequences, std::span(runs).subspan(first, end - first + 1), drawn);
    first = end;
  }
}

void decode(GenerationPasses& passes,
            std::span<const LiveSequence> sequences,
            std::vector<DrawnToken>& drawn) {
  PassRows rows;
  std::vector<cpu::CachedQuery> queries;
  std::vector<DrawPlace> places;
  for (const LiveSequence& sequence : sequences) {
    rows.tokens.push_back(sequence.next);
    rows.positions.push_back(static_cast<std::int32_t>(sequence.length - 1));
    rows.attention_scratch = std::max(rows.attention_scratch, sequence.length);
    places.push_back({static_cast<std::int64_t>(queries.size()),
                      &passes.requests[sequence.request],
                      sequence.length});
    queries.push_back({sequence.first, sequence.length});
  }
  const auto count = static_cast<std::int64_t>(sequences.size());
  const cpu::AttentionShape& shape = passes.shape.attention;
  const Pass pass = run_layers(passes, rows, [&](const Pass& p, float* cache) {
    for (std::int64_t i = 0; i < count; ++i) {
      const cpu::CachedQuery& query = queries[static_cast<std::size_t>(i)];
      store_keys_and_values(shape, p.layer.qkv, i, cache, query.first + query.length - 1);
    }
    cpu::cached_attention(shape,
                          std::span<const cpu::CachedQuery>(queries),
                          p.layer.qkv,
                          cache,
                          p.layer.attention,
                          p.attention_scratch);
  });
  if (passes.is_last()) {
    draw_from(passes, pass, count, places, drawn);
  } else {
    send_output(passes, count, pass.layer.input);
  }
}

}  // namespace rpeg
