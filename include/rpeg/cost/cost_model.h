#pragma once

/// Module `cost`: from a plan to timed tasks and memory (docs/cost-model.md has the formulas and
/// their sources). `price_plan` is the entry; everything below it is pure.

#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/graph/graph.h"
#include "rpeg/plan/plan.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/spec/workload_config.h"

namespace rpeg {

/// Where the time of a task goes; `total` is what the simulator uses.
struct TaskTime {
  double compute_s = 0.0;
  double comm_s = 0.0;    ///< exposed communication
  double bubble_s = 0.0;  ///< pipeline fill and drain
  double total_s = 0.0;   ///< the sum
};

/// A task of one iteration: a vertex, or a weights transfer between two vertices.
struct TimedTask {
  std::string name;          ///< "g_pi", of a stage "g_pi.2", or "t_pi->g_pi"
  std::int32_t vertex = -1;  ///< of the plan, whose stage or chunk this is; -1: a transfer
  TaskTime time;
  std::vector<std::int32_t> atoms;  ///< the atoms it holds exclusively, ascending; may be empty
  double gpus = 0.0;                ///< GPUs it holds
  double bytes = 0.0;               ///< of a transfer: bytes received over all GPUs
};

/// `to` of iteration k + delta starts after `from` of iteration k has ended.
struct TaskEdge {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::int64_t delta = 0;
};

/// What the simulator takes: first the vertices of the cut graph in order (see fuse_graph), then
/// the transfers.
struct TaskGraph {
  std::vector<TimedTask> tasks;
  std::vector<TaskEdge> edges;
  std::int32_t atom_count = 0;    ///< sets of GPUs that exactly the same tasks use
  std::vector<double> atom_gpus;  ///< GPUs in each atom
};

/// Memory of the fullest GPU of a vertex's block, by term; bytes.
struct MemoryUse {
  double weights = 0.0;    ///< all weight copies resident there
  double optimizer = 0.0;  ///< gradients, master weights and moments
  double activations = 0.0;
  double kv_cache = 0.0;
  double logits = 0.0;
  double reserve = 0.0;
  double total = 0.0;
};

struct PricedPlan {
  TaskGraph tasks;
  std::vector<MemoryUse> memory;      ///< per plan vertex: of the fullest GPU in its block
  std::int64_t generation_slots = 0;  ///< sequences in the KV cache of a generating replica
  double peak_bytes = 0.0;            ///< over all GPUs
  double limit_bytes = 0.0;           ///< usable bytes per GPU
  double overflow = 0.0;      ///< Σ over GPUs of max(0, bytes/limit − 1), divided by GPUs; 0: fits
  std::string overflow_text;  ///< which GPU, which vertex, which terms; "" when it fits
};

/// Prices a structurally valid plan.
PricedPlan price_plan(const Plan& plan,
                      const Graph& graph,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile);

/// Time of one vertex alone on its block (no transfers).
TaskTime price_vertex(const Vertex& vertex,
                      const VertexPlan& plan,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile);

/// The same for a part of the responses; price_vertex is the whole response without a limit.
/// Generation: the time from the end of the previous part to the end of this one (the first part
/// contains the prefill), with at most `slots` ≥ 1 sequences alive in a replica at once (see
/// kv_slot_bytes; replica_batch or more: no limit). The parts add up to the whole. Inference: one
/// chunk, the whole sequences that end in the part, at their expected length, in micro_batches
/// micro-batches (fewer when a replica has fewer sequences); every chunk fills its own pipeline.
/// Training takes the whole batch whatever the part.
TaskTime price_part(const Vertex& vertex,
                    const VertexPlan& plan,
                    const ResponsePart& part,
                    std::int64_t slots,
                    const WorkloadConfig& config,
                    const HardwareProfile& profile);

/// The class under which runs observe an operation.
WorkClass work_class(Op op);
/// The observed factor (HardwareProfile::observed) in the two times above: that of the vertex's
/// class on the tier that its block spans.
double vertex_factor(const Vertex& vertex, const VertexPlan& plan, const HardwareProfile& profile);

/// Bytes that one GPU holds for one vertex alone: `MemoryUse` of its fullest rank, with room in the
/// KV cache for every sequence of the replica.
MemoryUse vertex_memory(const Vertex& vertex,
                        const VertexPlan& plan,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile);
/// The same while a part of the responses is worked on, with `slots` ≥ 0 sequences in the KV cache:
/// no more than the bytes without a cache (slots = 0) and slots · kv_slot_bytes.
MemoryUse part_memory(const Vertex& vertex,
                      const VertexPlan& plan,
                      const ResponsePart& part,
                      std::int64_t slots,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile);

/// Bytes of KV cache on the fullest rank for one sequence of a replica, at its longest.
double kv_slot_bytes(const VertexPlan& plan, const WorkloadConfig& config);
/// Sequences of a replica of the generating vertex: the most slots that are of use.
std::int64_t replica_batch(const VertexPlan& plan, const WorkloadConfig& config);

/// Model FLOPs of one iteration of a vertex at expected lengths (training ×3, no recomputation).
double vertex_model_flop(const Vertex& vertex, const WorkloadConfig& config);

/// Parameters of a model: P of docs/cost-model.md, exact counts of the Hugging Face models.
std::int64_t parameter_count(const ModelSpec& spec, bool scalar_head);

/// Moments of the response length: E[ℓ], E[ℓ²], and E[max of n independent lengths].
double expected_length(const WorkloadSpec& workload);
double expected_squared_length(const WorkloadSpec& workload);
double expected_max_length(const WorkloadSpec& workload, std::int64_t n);

}  // namespace rpeg
