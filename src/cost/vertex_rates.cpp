#include "cost/vertex_rates.h"

#include <algorithm>

#include "cost/network.h"
#include "cost/shard.h"

namespace rpeg {
namespace {

GemmTime gemm_time(double elements, double weight_bytes, const HardwareProfile& profile) {
  return {.floor_s = elements * weight_bytes / (profile.decode_bw_eff * profile.memory_bandwidth),
          .row_s = 2.0 * elements / profile.flops_per_gpu,
          .half_rows = profile.gemm_m_half};
}

/// What the elementwise kernels of a layer read and write per token, in values: two norms (2 h
/// each) and two residual sums (3 h each) on every rank, unless sequence parallelism splits them;
/// rotary embedding of queries and keys (2 values each) and the gate (3 f) are always split.
double elementwise_values(const ModelSpec& model, int tp, bool splits_norms) {
  const double heads = static_cast<double>(model.num_heads) / tp + local_kv_heads(model, tp);
  const double split = 2.0 * static_cast<double>(model.head_dim) * heads +
                       3.0 * static_cast<double>(model.ffn_dim) / tp;
  return split + 10.0 * static_cast<double>(model.hidden_dim) / (splits_norms ? tp : 1);
}

void set_non_gemm(VertexRates* rates,
                  const ModelSpec& model,
                  int tp,
                  double activation_bytes,
                  bool splits_norms,
                  const HardwareProfile& profile) {
  rates->non_gemm_s = profile.non_gemm_constant;
  if (profile.non_gemm_bytes) {
    rates->non_gemm_token_s = elementwise_values(model, tp, splits_norms) * activation_bytes /
                              (profile.vector_eff * profile.memory_bandwidth);
    return;
  }
  const double replicated = profile.non_gemm_replicated / (splits_norms ? tp : 1);
  const double row_s = (profile.non_gemm_scaling / tp + replicated) / profile.non_gemm_batch_cal;
  (profile.non_gemm_per_sequence ? rates->non_gemm_sequence_s : rates->non_gemm_token_s) = row_s;
}

void set_attention(VertexRates* rates,
                   const ModelSpec& model,
                   int tp,
                   double kv_bytes,
                   const HardwareProfile& profile) {
  const double heads = static_cast<double>(model.num_heads) / tp;
  const double head_dim = static_cast<double>(model.head_dim);
  // Scores and weighted values: 2 FLOP each per pair and element of a head.
  rates->attention_pair_s =
      4.0 * heads * head_dim / (profile.attention_eff * profile.flops_per_gpu);
  const double kv_eff = profile.kv_bw_eff > 0.0 ? profile.kv_bw_eff : profile.decode_bw_eff;
  const double read_s =
      2.0 * local_kv_heads(model, tp) * head_dim * kv_bytes / (kv_eff * profile.memory_bandwidth);
  rates->kv_token_s = std::max(read_s, rates->attention_pair_s);
}

AlphaBeta per_token(const AlphaBeta& cost, double bytes) {
  return {cost.alpha_s, cost.beta_s_per_byte * bytes};
}

}  // namespace

VertexRates vertex_rates(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         double nominal_tokens) {
  const ModelSpec& model = config.model(vertex.model);
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const int tp = plan.parallelism.tp;
  const int pp = plan.parallelism.pp;
  const bool splits_norms = config.optimizer.sequence_parallel && tp > 1;
  VertexRates rates;
  rates.parallelism = plan.parallelism;
  const auto layers_of = [&](int stage) {
    const auto [first, last] = stage_layers(model.layers, pp, stage);
    return static_cast<double>(last - first);
  };
  rates.first_layers = layers_of(0);
  rates.last_layers = layers_of(pp - 1);
  rates.layers = static_cast<double>(model.layers);
  rates.linear = gemm_time(layer_matrix_elements(model, tp), bytes.weight, profile);
  rates.head = gemm_time(head_elements(model, vertex.model, tp), bytes.weight, profile);
  if (!has_scalar_head(vertex.model)) {
    // About three passes over fp32 logits: written, reduced by the softmax, gathered.
    rates.logits_row_s =
        3.0 * 4.0 * padded_vocab(model, tp) / tp / (profile.vector_eff * profile.memory_bandwidth);
  }
  set_attention(&rates, model, tp, bytes.kv, profile);
  set_non_gemm(&rates, model, tp, bytes.activation, splits_norms, profile);
  const double token_bytes = static_cast<double>(model.hidden_dim) * bytes.activation;
  if (tp > 1) {
    rates.all_reduce = per_token(
        all_reduce_cost(
            group_shapes(plan, GroupAxis::kTensor), profile, nominal_tokens * token_bytes),
        token_bytes);
  }
  if (pp > 1) {
    const auto tier = static_cast<std::size_t>(slowest_tier(plan.placement));
    rates.send = per_token(profile.point_to_point[tier], token_bytes);
  }
  rates.host_layer_s = profile.host_step_per_layer_s;
  rates.host_step_s = profile.host_step_s;
  return rates;
}

Seconds forward_layer(const VertexRates& rates, const CallShape& call) {
  return {.compute = rates.linear.at(call.tokens) + rates.attention_pair_s * call.attention_pairs +
                     rates.non_gemm_s + rates.non_gemm_token_s * call.tokens +
                     rates.non_gemm_sequence_s * call.sequences,
          .comm = 2.0 * seconds(rates.all_reduce, call.tokens)};
}

double forward_head(const VertexRates& rates, double rows) {
  return rates.head.at(rows) + rates.logits_row_s * rows;
}

CallShape expected_sequence(const Vertex& vertex, const WorkloadConfig& config) {
  const double prompt = static_cast<double>(config.workload.context_length);
  const double response = expected_length(config.workload);
  const double squared = expected_squared_length(config.workload);
  const double tokens = prompt + response;
  return {.sequences = 1.0,
          .tokens = tokens,
          .attention_pairs = 0.5 * (prompt * prompt + 2.0 * prompt * response + squared + tokens),
          .head_rows = vertex.op == Op::kInferReward ? 1.0 : response};
}

}  // namespace rpeg
