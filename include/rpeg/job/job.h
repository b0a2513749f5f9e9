#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/graph/graph.h"
#include "rpeg/job/job_config.h"
#include "rpeg/plan/plan.h"
#include "rpeg/plan/plan_file.h"
#include "rpeg/spec/model_shard.h"

namespace rpeg {

/// Sequences [first, last) of an iteration's global batch; sequence s is sample s % n of prompt
/// s / n. In offline DPO, which samples nothing, sequences 2u and 2u + 1 are the chosen and the
/// rejected response of pair u.
struct SequenceRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  auto operator<=>(const SequenceRange&) const = default;
};

/// What a data message holds for each of its sequences, after the sequence's index (int32), all
/// little-endian, packed.
enum class Payload {
  kRollout,        ///< int32 length, int32 stopped, int32 tokens[length], float logprobs[length]
  kScore,          ///< double reward
  kValues,         ///< float values[length] of the response tokens
  kRefLogprobs,    ///< float log-probabilities[length] of the reference
  kActorLogprobs,  ///< float log-probabilities[length] of the training weights (i_pi)
};

/// One step of a rank program. Sends never block; a receive waits for its message. Data is held and
/// moved by the *leaders*: rank (pp 0, tp 0) of each data-parallel replica; the other ranks of the
/// replica get what they need from their leader inside the computation.
enum class InstructionKind {
  kGenerate,        ///< generate the replica's sequences of `vertex` (of a stage: go on until those
                    ///< of the stage have ended) and score them when there is a verifier
  kInfer,           ///< i_ref, i_pi: log-probabilities; i_V: values; i_R: rewards
  kTrain,           ///< all epochs and mini-batches of `vertex`
  kSend,            ///< `payload`, produced by `vertex`, to `peer`
  kReceive,         ///< `payload`, produced by `vertex`, from `peer`
  kSendWeights,     ///< message `message` of transfer `transfer` to `peer`
  kReceiveWeights,  ///< message `message` of transfer `transfer` from `peer`
};

/// Which sequences an instruction is about. Without cuts `sequences` are indices into the global
/// batch. A stage or chunk s of a cut vertex handles *slots*: the sequences that end in stage s,
/// numbered replica by replica of generation, within one in the order in which they end (response
/// length, prompt, sample); which sequence is in a slot is known when it has ended, and messages
/// name it. A stage or chunk may have no slot at all: its computation does nothing. A message with
/// neither sequences nor slots is empty: it only keeps the order of an edge without data.
struct Instruction {
  InstructionKind kind = InstructionKind::kGenerate;
  VertexId vertex{};
  int peer = -1;
  int tag = 0;
  Payload payload = Payload::kRollout;
  /// Of a computation: those it handles (of a chunk: none, its slots say which). Of a message:
  /// those it holds; with slots: of those in the slots the ones it holds, none named: all.
  std::vector<SequenceRange> sequences;
  std::vector<SequenceRange> slots;  ///< of the vertex's stage; empty without cuts
  std::int64_t capacity_bytes = 0;   ///< of a message: with every sequence at full length
  int transfer = -1;
  int message = -1;
  std::int64_t shift = 0;  ///< in period p of the program it runs for iteration p − shift
  bool operator==(const Instruction&) const = default;
};

/// Ranks that run a vertex and how they divide its work: element (i_pp · dp + i_dp) · tp + i_tp.
struct Block {
  Parallelism parallelism;
  std::vector<int> ranks;
  bool operator==(const Block&) const = default;
};

/// Coordinates of a rank in a block.
struct BlockPlace {
  int dp = 0;
  int pp = 0;
  int tp = 0;
  bool operator==(const BlockPlace&) const = default;
};

/// One copy of a model, spread over the ranks of a block (every replica holds all of it).
struct WeightCopy {
  ModelRole model = ModelRole::kActor;
  Head head = Head::kLanguageModel;
  int block = 0;                   ///< index into Job::blocks
  std::int64_t tau = 0;            ///< iteration k uses version max(0, k − tau)
  bool is_trained = false;         ///< the copy that its training vertex updates
  bool is_frozen = false;          ///< reference and reward models: always version 0
  std::vector<VertexId> vertices;  ///< that use it
  bool operator==(const WeightCopy&) const = default;
};

/// Rows [begin, end) of dimension `TransferTensor::dim` of one tensor.
struct WeightSlice {
  std::int32_t tensor = 0;  ///< index into WeightTransfer::tensors
  std::int64_t begin = 0;
  std::int64_t end = 0;
  auto operator<=>(const WeightSlice&) const = default;
};

/// One weights message: slices in ascending order. `from` may be `to`: a copy on the same rank.
struct WeightMessage {
  int from = 0;
  int to = 0;
  std::vector<WeightSlice> slices;
  std::int64_t bytes = 0;
  bool operator==(const WeightMessage&) const = default;
};

/// A tensor that moves, in global terms.
struct TransferTensor {
  std::string name;                 ///< Hugging Face name
  std::vector<std::int64_t> shape;  ///< whole
  int dim = 0;                      ///< the dimension that shards split
  bool operator==(const TransferTensor&) const = default;
};

/// Moves version v of the weights, made in iteration v − 1, from the trained copy `from` to the
/// copy `to`, which uses it in iteration v − 1 + delta.
struct WeightTransfer {
  VertexId producer{};
  VertexId consumer{};  ///< the first vertex of `to`, before which the weights arrive
  int from = 0;         ///< indices into Job::copies
  int to = 0;
  std::int64_t delta = 1;
  std::vector<TransferTensor> tensors;  ///< in parameter order of the whole model
  std::vector<WeightMessage> messages;
  bool operator==(const WeightTransfer&) const = default;
};

/// One process.
struct RankSpec {
  int gpu = 0;                       ///< global index in the cluster
  int node = 0;                      ///< global node index
  int slot = 0;                      ///< device on its node
  std::vector<Instruction> program;  ///< of one period; repeated
  bool operator==(const RankSpec&) const = default;
};

/// The compiled job: everything that execution needs and nothing to decide.
struct Job {
  WorkloadConfig inputs;
  JobConfig config;
  Graph graph;                            ///< of tasks: with cuts, stages and chunks
  std::vector<std::int32_t> plan_vertex;  ///< per vertex of `graph`: its element of plan.vertices
  Plan plan;
  std::vector<ScheduleEntry> schedule;
  Prediction predicted;
  std::vector<RankSpec> ranks;
  std::vector<Block> blocks;               ///< distinct ones, in order of their first vertex
  std::vector<std::int32_t> vertex_block;  ///< per vertex of `graph`
  std::vector<WeightCopy> copies;
  std::vector<std::int32_t> vertex_copy;  ///< per vertex of `graph`
  std::vector<WeightTransfer> transfers;
  std::string plan_digest;  ///< SHA-256 of the plan's content
  std::vector<std::pair<std::string, std::string>> input_digests;  ///< path, SHA-256
  std::uint64_t seed = 0;
};

/// Sequences of an iteration in the job's numbering: samples of all prompts, or two for every pair
/// of offline DPO.
std::int64_t job_sequences(const WorkloadConfig& inputs);

/// Sequences that stay together when a vertex's batch is divided: a whole prompt (all its samples,
/// or the pair) for DPO's i_ref and t_pi, else 1. A batch has `batch_units` (plan.h) of them.
std::int64_t unit_sequences(const Vertex& vertex, const WorkloadConfig& inputs);

/// Sequences that data-parallel replica `replica` of a vertex handles, out of `sequences` in units
/// of `unit`: generation and inference one range; training one range of every mini-batch, so that
/// mini-batch j is the same set of sequences under every dp.
std::vector<SequenceRange> owned_sequences(Op op,
                                           std::int64_t sequences,
                                           std::int64_t minibatches,
                                           int dp,
                                           int replica,
                                           std::int64_t unit = 1);

/// Sequences of mini-batch j of the global batch: as evenly as possible in units of `unit`.
SequenceRange minibatch_sequences(std::int64_t sequences,
                                  std::int64_t minibatches,
                                  std::int64_t j,
                                  std::int64_t unit = 1);

/// Slots of stage `stage` (1 … S) of replica `replica` of cut generation over `dp` replicas: of its
/// N sequences ⌈F(s)·N⌉ − ⌈F(s − 1)·N⌉ end in stage s, F from gen_quantiles; the slots of replica 0
/// come first. May be empty.
SequenceRange stage_slots(
    const WorkloadConfig& inputs, std::uint32_t cuts, std::int32_t stage, int dp, int replica);

/// Ascending sequences that both lists contain, as ranges.
std::vector<SequenceRange> intersect(const std::vector<SequenceRange>& a,
                                     const std::vector<SequenceRange>& b);

/// Number of sequences in a list of ranges.
std::int64_t sequence_count(const std::vector<SequenceRange>& ranges);

/// Bytes of a message with `sequences` sequences that all have `generation_length` tokens, their
/// indices included.
std::int64_t message_capacity_bytes(Payload payload,
                                    std::int64_t sequences,
                                    std::int64_t generation_length);

/// The decisions for a vertex of the task graph.
const VertexPlan& plan_of(const Job& job, VertexId vertex);
const Block& block_of(const Job& job, VertexId vertex);
const WeightCopy& copy_of(const Job& job, VertexId vertex);

/// Coordinates of a rank in a block; nothing when it is not part of it.
std::optional<BlockPlace> place_in_block(const Block& block, int rank);
int rank_at(const Block& block, const BlockPlace& place);
/// Ranks of replica `dp` in the order i_pp · tp + i_tp: the first is its leader.
std::vector<int> replica_ranks(const Block& block, int dp);
/// Leaders of all replicas, by dp.
std::vector<int> leader_ranks(const Block& block);
/// The ranks that share a stage of a replica, by tp; that hold the same part of the layers over all
/// stages, by pp; that hold the same shard, by dp.
std::vector<int> tensor_ranks(const Block& block, const BlockPlace& place);
std::vector<int> pipeline_ranks(const Block& block, const BlockPlace& place);
std::vector<int> data_ranks(const Block& block, const BlockPlace& place);

/// The shard of `spec` that a place of a block holds.
ModelShard shard_at(const ModelSpec& spec, const Block& block, const BlockPlace& place);

/// Ranks of the leaders of a vertex in dp order: element i runs replica i.
std::vector<int> vertex_leaders(const Job& job, VertexId vertex);

const char* to_string(InstructionKind kind);  ///< generate, infer, train, send, receive, …
const char* to_string(Payload payload);       ///< rollout, score, values, …

/// run.yaml: written with a digest of its content, refused when content and digest disagree.
std::string job_text(const Job& job, const Provenance* provenance);
Job load_job(const std::filesystem::path& path);

}  // namespace rpeg
