#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "rpeg/model/transformer.h"

namespace rpeg {

/// How tokens are drawn. Gumbel-max with noise keyed by (seed, iteration, prompt, sample, position,
/// token id): a sampled token depends on nothing else, in particular not on which sequences share
/// its batch or rank.
struct SamplingOptions {
  double temperature = 1.0;  ///< > 0; ignored when greedy
  double top_p = 1.0;        ///< nucleus, (0, 1]
  std::int64_t top_k = 0;    ///< 0: off
  bool greedy = false;       ///< argmax of the logits, lowest id on ties
  std::int64_t max_new_tokens = 0;
  std::vector<std::int32_t>
      stop_tokens;  ///< a sequence ends with (and includes) the first of these
  std::uint64_t seed = 0;
  std::int64_t iteration = 0;
};

/// One sequence to generate.
struct GenerationRequest {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t prompt_index = 0;     ///< global index of the prompt in the iteration's batch
  std::int64_t sample_index = 0;     ///< which of the samples of that prompt
};

/// What came out: response tokens and, for each, log softmax(logits / temperature)[token] of the
/// generator, without top-k or top-p (the behaviour log-probability).
struct GenerationResult {
  std::vector<std::int32_t> tokens;  ///< 1 … max_new_tokens; the stop token included
  std::vector<float> logprobs;       ///< same length
  bool stopped = false;              ///< ended by a stop token, not by max_new_tokens
};

/// How a session uses memory and the pipeline; what is sampled does not depend on it.
struct SessionOptions {
  std::int64_t micro_batches = 1;  ///< groups of sequences in flight between pipeline stages
  std::int64_t max_live = 0;       ///< sequences that hold cache places at once; 0: all
};

/// Tags of a session's messages in groups.pipeline: hidden states to the next stage, tokens from
/// the last stage to all others. Within what every MPI allows (32767).
inline constexpr int kGeneratedHiddenTag = 32764;
inline constexpr int kGeneratedTokensTag = 32763;

/// A sequence that has ended, by its index in the session's requests.
struct FinishedSequence {
  std::size_t request = 0;
  GenerationResult result;
};

/// Generation that can pause: the responses that end first leave while the others go on. All ranks
/// of a replica (model.groups) construct it with the same requests and call `advance` alike; all
/// get the same results, to the bit. A replica has one unfinished session at a time, for a paused
/// one may have messages on the way between the stages.
///
/// Sequences hold a place of the KV cache from their prefill to their end; the place then goes to
/// the next waiting request, whose prefill joins the others' decode step. Requests wait in the
/// order given, so equal prompts should be neighbours: they are computed once.
class GenerationSession {
 public:
  /// Throws kUsage when a prompt plus max_new_tokens exceeds the model's positions. The model's
  /// spec, layout, weights and groups must stay as they are until the last sequence has ended.
  GenerationSession(const Model<float>& model,
                    std::vector<GenerationRequest> requests,
                    const SamplingOptions& sampling,
                    const SessionOptions& options);
  ~GenerationSession();
  GenerationSession(GenerationSession&&) noexcept;
  GenerationSession& operator=(GenerationSession&&) noexcept;

  /// Goes on until `count` sequences in total have ended (at most all) and returns those that
  /// earlier calls did not return, so that exactly `count` have left in total; more that ended by
  /// the way are returned by later calls. The order is that of (step, prompt index, sample index)
  /// over all calls. A step takes every live sequence one token further: with max_live = 0 it is
  /// the length of the response, otherwise the waiting for a place counts too. Throws kRuntime
  /// naming the iteration when logits are not finite.
  std::vector<FinishedSequence> advance(std::int64_t count);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Generates all requests together, in one session to its end; entry i is the response to request
/// i.
std::vector<GenerationResult> generate(const Model<float>& model,
                                       std::span<const GenerationRequest> requests,
                                       const SamplingOptions& options);

/// The Gumbel(0, 1) noise of one candidate token for place `position` of the sequence, prompt
/// included: the first token after a prompt of n has position n. The sampled token is the candidate
/// with the largest sum of logit / temperature and noise.
double gumbel_noise(const SamplingOptions& options,
                    const GenerationRequest& request,
                    std::int64_t position,
                    std::int32_t token);

}  // namespace rpeg
