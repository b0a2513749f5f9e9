#include "rpeg/model/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "model/generation_pass.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Sequences that step together, one of several groups in flight between the pipeline stages.
struct SequenceGroup {
  std::vector<LiveSequence> live;
  std::vector<std::size_t> free_places;  // the next one last
  bool in_flight = false;                // its tokens have not been read yet
  std::vector<DrawnToken> drawn;         // on the last stage, until they are read
};

struct Ended {
  std::int64_t round = 0;
  std::size_t request = 0;
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

void check_groups(const Model<float>& model) {
  const ModelShard& shard = model.layout->shard;
  const ShardGroups& groups = model.groups;
  check(shard.tp == 1 || (groups.tensor != nullptr && groups.tensor->size() == shard.tp),
        "generation needs the group of a shard's tensor-parallel ranks");
  const int stages = groups.pipeline == nullptr ? 1 : groups.pipeline->size();
  const int stage = groups.pipeline == nullptr ? 0 : groups.pipeline->rank();
  check(shard.has_embedding == (stage == 0) && shard.has_head == (stage + 1 == stages),
        "generation needs the group of a shard's pipeline stages");
}

}  // namespace

/// All ranks of a replica keep the same books and so take the same decisions. A round is one turn
/// of every group: it reads the tokens of the group's last turn, lets the sequences that ended go,
/// admits waiting ones, and takes all its sequences through the stages. The tokens of turn (round,
/// group) are read just before turn (round + 1, group): meanwhile the stages work on other groups.
struct GenerationSession::State {
  GenerationPasses passes;
  std::vector<SequenceGroup> groups{};
  std::vector<std::int64_t> place_first{};  // first cache row of each place
  std::size_t waiting = 0;                  // requests from here on have had no place yet
  std::int64_t round = 1;
  std::size_t next_group = 0;
  std::vector<GenerationResult> results{};  // by request
  std::vector<Ended> ended{};               // and not returned yet
  std::int64_t ended_count = 0;             // returned ones included
  std::int64_t returned_count = 0;

  void deal_places(const SessionOptions& options);
  void take_turns(std::int64_t count);
  void read_tokens(SequenceGroup& group);
  void accept(LiveSequence& sequence, const DrawnToken& drawn);
  void take_turn(SequenceGroup& group);
  std::vector<FinishedSequence> return_ended(std::int64_t count);

  bool has_ended(const LiveSequence& sequence) const {
    const GenerationResult& result = results[sequence.request];
    return result.stopped ||
           static_cast<std::int64_t>(result.tokens.size()) == passes.sampling.max_new_tokens;
  }
};

/// Deals the places of the cache to the groups and measures them. When every sequence has one of
/// its own it is just as long as needed, else each is long enough for any sequence.
void GenerationSession::State::deal_places(const SessionOptions& options) {
  check(options.micro_batches >= 1 && options.max_live >= 0,
        "a session needs at least one group of sequences, and max_live of at least 0");
  const auto count = static_cast<std::int64_t>(passes.requests.size());
  const std::int64_t places = options.max_live == 0 ? count : std::min(options.max_live, count);
  std::vector<std::int64_t> rows;
  for (const GenerationRequest& request : passes.requests) {
    // The last token drawn never enters the cache.
    rows.push_back(static_cast<std::int64_t>(request.prompt.size()) +
                   passes.sampling.max_new_tokens - 1);
  }
  const std::int64_t longest = rows.empty() ? 0 : *std::max_element(rows.begin(), rows.end());
  std::int64_t cache_rows = 0;
  for (std::int64_t place = 0; place < places; ++place) {
    place_first.push_back(cache_rows);
    // Places are taken in the order of the requests.
    cache_rows += places == count ? rows[static_cast<std::size_t>(place)] : longest;
  }
  groups.resize(static_cast<std::size_t>(std::min(options.micro_batches, places)));
  const auto group_count = static_cast<std::int64_t>(groups.size());
  for (std::int64_t g = 0; g < group_count; ++g) {
    auto& free_places = groups[static_cast<std::size_t>(g)].free_places;
    for (std::int64_t p = places * (g + 1) / group_count; p > places * g / group_count; --p) {
      free_places.push_back(static_cast<std::size_t>(p - 1));
    }
  }
  prepare_passes(passes, cache_rows, longest);
}

/// Goes on until `count` sequences have ended. The ranks must stop at the same turn: they look at
/// the number before the last turn of a round, when all tokens of the round before have been read
/// and nobody can still turn out to have ended in it.
void GenerationSession::State::take_turns(std::int64_t count) {
  while (count > 0) {
    SequenceGroup& group = groups[next_group];
    read_tokens(group);
    const bool ends_round = next_group + 1 == groups.size();
    if (ends_round && ended_count >= count) {
      return;  // the next call begins with this turn
    }
    take_turn(group);
    next_group = ends_round ? 0 : next_group + 1;
    round += ends_round ? 1 : 0;
  }
}

/// Reads the tokens of the group's last turn, if it had one, and lets go what ended in it.
void GenerationSession::State::read_tokens(SequenceGroup& group) {
  if (!group.in_flight) {
    return;
  }
  group.in_flight = false;
  if (!passes.is_last()) {
    Comm& pipeline = *passes.model.groups.pipeline;
    const Bytes message = pipeline.receive(pipeline.size() - 1, kGeneratedTokensTag);
    check(message.size() == group.live.size() * sizeof(DrawnToken),
          "the stages of a generation disagree about its sequences");
    group.drawn.resize(group.live.size());
    std::memcpy(group.drawn.data(), message.data(), message.size());
  }
  for (std::size_t i = 0; i < group.live.size(); ++i) {
    accept(group.live[i], group.drawn[i]);
  }
  group.drawn.clear();
  std::erase_if(group.live, [&](const LiveSequence& sequence) {
    if (!has_ended(sequence)) {
      return false;
    }
    // Its turn was in the round before this one.
    ended.push_back({round - 1, sequence.request});
    ++ended_count;
    group.free_places.push_back(sequence.place);
    return true;
  });
}

void GenerationSession::State::accept(LiveSequence& sequence, const DrawnToken& drawn) {
  sequence.next = drawn.token;
  GenerationResult& result = results[sequence.request];
  result.tokens.push_back(drawn.token);
  result.logprobs.push_back(drawn.logprob);
  const auto& stops = passes.sampling.stop_tokens;
  result.stopped = std::find(stops.begin(), stops.end(), drawn.token) != stops.end();
}

/// Admits waiting sequences to free places and takes all of the group one token further.
void GenerationSession::State::take_turn(SequenceGroup& group) {
  const std::size_t decoding = group.live.size();
  while (!group.free_places.empty() && waiting < passes.requests.size()) {
    const std::size_t place = group.free_places.back();
    group.free_places.pop_back();
    const auto length = static_cast<std::int64_t>(passes.requests[waiting].prompt.size());
    group.live.push_back({waiting, place, place_first[place], length, 0});
    ++waiting;
  }
  if (group.live.empty()) {
    return;
  }
  const std::span<LiveSequence> live(group.live);
  if (decoding > 0) {
    for (LiveSequence& sequence : live.first(decoding)) {
      ++sequence.length;
    }
    decode(passes, live.first(decoding), group.drawn);
  }
  if (decoding < live.size()) {
    prefill(passes, live.subspan(decoding), group.drawn);
  }
  group.in_flight = true;
  Comm* pipeline = passes.model.groups.pipeline;
  for (int stage = 0; passes.is_last() && pipeline != nullptr && stage < pipeline->rank();
       ++stage) {
    Bytes message;
    append_bytes(message, std::span<const DrawnToken>(group.drawn));
    pipeline->send(stage, kGeneratedTokensTag, std::move(message));
  }
}

std::vector<FinishedSequence> GenerationSession::State::return_ended(std::int64_t count) {
  std::sort(ended.begin(), ended.end(), [&](const Ended& a, const Ended& b) {
    const auto key = [&](const Ended& e) {
      const GenerationRequest& request = passes.requests[e.request];
      return std::tuple(e.round, request.prompt_index, request.sample_index, e.request);
    };
    return key(a) < key(b);
  });
  std::vector<FinishedSequence> finished;
  for (const Ended& e : ended) {
    if (returned_count == count) {
      break;
    }
    finished.push_back({e.request, std::move(results[e.request])});
    ++returned_count;
  }
  ended.erase(ended.begin(), ended.begin() + static_cast<std::ptrdiff_t>(finished.size()));
  return finished;
}

GenerationSession::GenerationSession(const Model<float>& model,
                                     std::vector<GenerationRequest> requests,
                                     const SamplingOptions& sampling,
                                     const SessionOptions& options) {
  check_requests(*model.spec, requests, sampling);
  check_groups(model);
  state_ = std::make_unique<State>(
      State{.passes = {.model = model,
                       .shape = local_shape(*model.spec, model.layout->shard),
                       .requests = std::move(requests),
                       .sampling = sampling}});
  state_->results.resize(state_->passes.requests.size());
  state_->deal_places(options);
}

GenerationSession::~GenerationSession() = default;
GenerationSession::GenerationSession(GenerationSession&&) noexcept = default;
GenerationSession& GenerationSession::operator=(GenerationSession&&) noexcept = default;

std::vector<FinishedSequence> GenerationSession::advance(std::int64_t count) {
  const std::int64_t total =
      std::min(count, static_cast<std::int64_t>(state_->passes.requests.size()));
  state_->take_turns(total);
  return state_->return_ended(total);
}

std::vector<GenerationResult> generate(const Model<float>& model,
                                       std::span<const GenerationRequest> requests,
                                       const SamplingOptions& options) {
  GenerationSession session(model, {requests.begin(), requests.end()}, options, {});
  std::vector<GenerationResult> results(requests.size());
  for (FinishedSequence& finished : session.advance(static_cast<std::int64_t>(requests.size()))) {
    results[finished.request] = std::move(finished.result);
  }
  return results;
}

}  // namespace rpeg
