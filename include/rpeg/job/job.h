#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/graph/graph.h"
#include "rpeg/job/job_config.h"
#include "rpeg/plan/plan.h"
#include "rpeg/plan/plan_file.h"

namespace rpeg {

/// Sequences [first, last) of an iteration's global batch; sequence s is sample s % n of prompt s /
/// n.
struct SequenceRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  auto operator<=>(const SequenceRange&) const = default;
};

/// What a data message holds for each of its sequences, in order (all little-endian, packed).
enum class Payload {
  kRollout,        ///< int32 length, int32 stopped, int32 tokens[length], float logprobs[length]
  kScore,          ///< double reward
  kValues,         ///< float values[length] of the response tokens
  kRefLogprobs,    ///< float log-probabilities[length] of the reference
  kActorLogprobs,  ///< float log-probabilities[length] of the training weights (i_pi)
};

/// One step of a rank program. Sends never block; a receive waits for its message.
enum class InstructionKind {
  kGenerate,        ///< generate the rank's sequences of `vertex` and score them with the verifier
  kInfer,           ///< i_ref: log-probabilities; i_V: values; i_pi: log-probabilities
  kTrain,           ///< all epochs and mini-batches of `vertex`, gradients summed over its dp group
  kSend,            ///< `payload` of `sequences`, produced by `vertex`, to `peer`
  kReceive,         ///< `payload` of `sequences`, produced by `vertex`, from `peer`
  kSendWeights,     ///< message `message` of transfer `transfer` to `peer`
  kReceiveWeights,  ///< message `message` of transfer `transfer` from `peer`
};

struct Instruction {
  InstructionKind kind = InstructionKind::kGenerate;
  VertexId vertex{};
  int peer = -1;
  int tag = 0;
  Payload payload = Payload::kRollout;
  std::vector<SequenceRange> sequences;  ///< compute: the sequences it handles
  std::int64_t capacity_bytes = 0;       ///< of a message: with every sequence at full length
  int transfer = -1;
  int message = -1;
  bool operator==(const Instruction&) const = default;
};

/// One weights message: whole tensors by index into the model's parameter order (names in
/// `WeightTransfer::tensors`). With tp = pp = 1 a tensor is never split.
struct WeightMessage {
  int from = 0;
  int to = 0;
  std::vector<std::int32_t> tensors;
  std::int64_t bytes = 0;
  bool operator==(const WeightMessage&) const = default;
};

/// Moves the weights of `producer` to the ranks of `consumer` that do not hold them.
struct WeightTransfer {
  VertexId producer{};
  VertexId consumer{};
  ModelRole model = ModelRole::kActor;
  std::vector<std::string> tensors;  ///< Hugging Face names, in parameter order
  std::vector<WeightMessage> messages;
  bool operator==(const WeightTransfer&) const = default;
};

/// One process.
struct RankSpec {
  int gpu = 0;                       ///< global index in the cluster
  int node = 0;                      ///< global node index
  int slot = 0;                      ///< device on its node
  std::vector<Instruction> program;  ///< of one iteration; repeated
  bool operator==(const RankSpec&) const = default;
};

/// Ranks of a training vertex in dp order: gradients are summed over them in this order.
struct DataParallelGroup {
  VertexId vertex{};
  std::vector<int> ranks;
  bool operator==(const DataParallelGroup&) const = default;
};

/// The compiled job: everything that execution needs and nothing to decide.
struct Job {
  WorkloadConfig inputs;
  JobConfig config;
  Graph graph;
  Plan plan;
  std::vector<ScheduleEntry> schedule;
  Prediction predicted;
  std::vector<RankSpec> ranks;
  std::vector<DataParallelGroup> groups;
  std::vector<WeightTransfer> transfers;
  std::string plan_digest;  ///< SHA-256 of the plan's content
  std::vector<std::pair<std::string, std::string>> input_digests;  ///< path, SHA-256
  std::uint64_t seed = 0;
};

/// Sequences that data-parallel replica `replica` of a vertex handles: generation and inference one
/// range; training one range of every mini-batch, so that mini-batch j is the same set of sequences
/// under every dp.
std::vector<SequenceRange> owned_sequences(
    Op op, std::int64_t sequences, std::int64_t minibatches, int dp, int replica);

/// Sequences of mini-batch j of the global batch.
SequenceRange minibatch_sequences(std::int64_t sequences, std::int64_t minibatches, std::int64_t j);

/// Ascending sequences that both lists contain, as ranges.
std::vector<SequenceRange> intersect(const std::vector<SequenceRange>& a,
                                     const std::vector<SequenceRange>& b);

/// Number of sequences in a list of ranges.
std::int64_t sequence_count(const std::vector<SequenceRange>& ranges);

/// Bytes of a message with `sequences` sequences that all have `generation_length` tokens.
std::int64_t message_capacity_bytes(Payload payload,
                                    std::int64_t sequences,
                                    std::int64_t generation_length);

/// Ranks of a vertex in dp order: element i runs replica i.
std::vector<int> vertex_ranks(const Job& job, VertexId vertex);

const char* to_string(InstructionKind kind);  ///< generate, infer, train, send, receive, …
const char* to_string(Payload payload);       ///< rollout, score, values, …

/// run.yaml: written with a digest of its content, refused when content and digest disagree.
std::string job_text(const Job& job, const Provenance* provenance);
Job load_job(const std::filesystem::path& path);

}  // namespace rpeg
