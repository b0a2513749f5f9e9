#pragma once

#include "cost/lengths.h"
#include "cost/pipeline.h"
#include "rpeg/cost/cost_model.h"

// What price_vertex needs of a vertex, folded once into times per row, token and byte.

namespace rpeg {

/// Matrix products over `rows` rows: the slower of reading the weights and of the affine time whose
/// efficiency is rows / (rows + half_rows), both with what every product costs by itself.
struct GemmTime {
  double floor_s = 0.0;
  double row_s = 0.0;
  double half_rows = 0.0;
  double call_s = 0.0;  ///< in the affine time
  double at(double rows) const {
    const double affine_s = row_s * (rows + half_rows) + call_s;
    return affine_s > floor_s ? affine_s : floor_s;
  }
  /// Rows at which the affine time takes over; ≤ 0: always.
  double switch_rows() const { return row_s > 0.0 ? (floor_s - call_s) / row_s - half_rows : 0.0; }
};

/// A batch of whole sequences that goes through the model at once.
struct CallShape {
  double sequences = 0.0;
  double tokens = 0.0;
  double attention_pairs = 0.0;  ///< Σ over tokens of the tokens each attends to, itself included
  double head_rows = 0.0;
};
inline CallShape operator*(const CallShape& c, double k) {
  return {c.sequences * k, c.tokens * k, c.attention_pairs * k, c.head_rows * k};
}

/// Rates of one rank. A stage has `first_layers` layers, the last stage `last_layers` and the head.
struct VertexRates {
  Parallelism parallelism;
  double first_layers = 0.0;
  double last_layers = 0.0;
  double layers = 0.0;  ///< of the whole model
  GemmTime linear;      ///< all matrices of a layer
  GemmTime head;
  double logits_row_s = 0.0;      ///< memory traffic of the logits of a row
  double attention_pair_s = 0.0;  ///< per layer
  double kv_token_s = 0.0;        ///< per layer and context token of a decode step
  double non_gemm_s = 0.0;        ///< per layer and call
  double non_gemm_token_s = 0.0;
  double non_gemm_sequence_s = 0.0;
  /// Over tp, of one layer's activations: an all-reduce, with sequence parallelism all-gather and
  /// reduce-scatter. In tokens, not bytes.
  AlphaBeta all_reduce;
  AlphaBeta send;  ///< to the next stage; in tokens, not bytes
  double host_layer_s = 0.0;
  double host_step_s = 0.0;
};

/// Calls over whole sequences may divide norms over tp; decode steps have one row a sequence.
enum class CallKind { kSequences, kDecodeStep };

/// `nominal_tokens` in a call choose between collective algorithms, and rows of the tables.
VertexRates vertex_rates(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         double nominal_tokens,
                         CallKind kind = CallKind::kSequences);

/// One layer, forward.
Seconds forward_layer(const VertexRates& rates, const CallShape& call);
/// The head and its logits, forward.
double forward_head(const VertexRates& rates, double rows);

/// One whole sequence (`head_rows` as the vertex needs them) at the expected length of a part.
CallShape expected_sequence(const Vertex& vertex,
                            const WorkloadConfig& config,
                            const PartLengths& part);

/// Generation: prefill and decoding between two points of the length distribution
/// (generation_time.cpp).
TaskTime generation_time(const Vertex& vertex,
                         const VertexPlan& plan,
                         const ResponsePart& part,
                         std::int64_t slots,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile);

/// Most tokens of prompts that a replica prefills in one call; longer prompts go one by one. A
/// constant of the runtime: it bounds the activations of prefill.
inline constexpr std::int64_t kPrefillTokens = 16384;
/// Prompts in such a call.
std::int64_t prefill_call_prompts(const WorkloadSpec& workload);

/// The stages of `rates`, of which the last has the head too.
StageTimes stage_times(const VertexRates& rates, Seconds layer, Seconds head);

/// Forward-only pipeline of micro-batches with asynchronous sends, of which pp − 1 are exposed.
TaskTime forward_pipeline(const VertexRates& rates,
                          const CallShape& unit,
                          const MicroBatches& batches);

}  // namespace rpeg
