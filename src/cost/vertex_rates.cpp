#include "cost/vertex_rates.h"

#include <algorithm>

#include "cost/network.h"
#include "cost/shard.h"
#include "rpeg/profile/by_tp.h"

namespace rpeg {
namespace {

/// `products` matrix products that hold `elements` together on the rank.
GemmTime gemm_time(
    double elements, double products, double weight_bytes, int tp, const HardwareProfile& profile) {
  const double read_eff = value_at_tp(profile.decode_bw_eff_tp, tp, profile.decode_bw_eff);
  const double flops = value_at_tp(profile.flops_eff_tp, tp, 1.0) * profile.flops_per_gpu;
  return {.floor_s = elements * weight_bytes / (read_eff * profile.memory_bandwidth) +
                     products * profile.gemm_call_floor_s,
          .row_s = 2.0 * elements / flops,
          .half_rows = value_at_tp(profile.gemm_m_half_tp, tp, profile.gemm_m_half),
          .call_s = products * profile.gemm_call_s};
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

/// All-reduce over tp of the activations of a call, in tokens. Through all numbers of live
/// sequences that decoding passes a table is taken as the line from one row to the most: the few
/// rows of the last responses are where most steps are.
AlphaBeta all_reduce_per_token(const std::vector<GroupShape>& groups,
                               const HardwareProfile& profile,
                               double nominal_tokens,
                               double token_bytes,
                               CallKind kind) {
  const AlphaBeta cost =
      per_token(all_reduce_cost(groups, profile, nominal_tokens * token_bytes), token_bytes);
  const bool is_line = std::all_of(profile.collective_table.begin(),
                                   profile.collective_table.end(),
                                   [](const auto& table) { return table.empty(); });
  if (kind == CallKind::kSequences || is_line || nominal_tokens <= 1.0) return cost;
  const double one_s = seconds(all_reduce_cost(groups, profile, token_bytes), token_bytes);
  const double all_s = seconds(cost, nominal_tokens);
  const double slope = std::max(0.0, (all_s - one_s) / (nominal_tokens - 1.0));
  return {std::max(0.0, one_s - slope), slope};
}

}  // namespace

VertexRates vertex_rates(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         double nominal_tokens,
                         CallKind kind) {
  // Q, K and V are one product, gate and up another; O and down.
  constexpr double kLayerProducts = 4.0;
  const ModelSpec& model = config.model(vertex.model);
  const Head head = head_of(vertex);
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const int tp = plan.parallelism.tp;
  const int pp = plan.parallelism.pp;
  const bool splits_norms =
      config.optimizer.sequence_parallel && tp > 1 && kind == CallKind::kSequences;
  VertexRates rates;
  rates.parallelism = plan.parallelism;
  rates.first_layers = stage_layer_count(model, pp, 0);
  rates.last_layers = stage_layer_count(model, pp, pp - 1);
  rates.layers = static_cast<double>(model.layers);
  rates.linear =
      gemm_time(layer_matrix_elements(model, tp), kLayerProducts, bytes.weight, tp, profile);
  rates.head = gemm_time(
      head_elements(model, head, tp), head == Head::kBoth ? 2.0 : 1.0, bytes.weight, tp, profile);
  if (has_vocabulary(head)) {
    // About three passes over fp32 logits: written, reduced by the softmax, gathered.
    rates.logits_row_s =
        3.0 * 4.0 * padded_vocab(model, tp) / tp / (profile.vector_eff * profile.memory_bandwidth);
  }
  set_attention(&rates, model, tp, bytes.kv, profile);
  set_non_gemm(&rates, model, tp, bytes.activation, splits_norms, profile);
  const double token_bytes = static_cast<double>(model.hidden_dim) * bytes.activation;
  if (tp > 1) {
    const std::vector<GroupShape> groups = group_shapes(plan, GroupAxis::kTensor);
    if (splits_norms) {
      const AlphaBeta gather = all_gather_cost(groups, profile, nominal_tokens * token_bytes);
      rates.all_reduce =
          per_token({2.0 * gather.alpha_s, 2.0 * gather.beta_s_per_byte}, token_bytes);
    } else {
      rates.all_reduce = all_reduce_per_token(groups, profile, nominal_tokens, token_bytes, kind);
    }
  }
  if (pp > 1) {
    const double sent_bytes = token_bytes / (splits_norms ? tp : 1);
    rates.send = per_token(stage_send_cost(plan, profile, nominal_tokens * sent_bytes), sent_bytes);
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

CallShape expected_sequence(const Vertex& vertex,
                            const WorkloadConfig& config,
                            const PartLengths& part) {
  const double prompt = static_cast<double>(config.workload.context_length);
  const double tokens = prompt + part.mean;
  return {.sequences = 1.0,
          .tokens = tokens,
          .attention_pairs =
              0.5 * (prompt * prompt + 2.0 * prompt * part.mean + part.mean_square + tokens),
          .head_rows = vertex.op == Op::kInferReward ? 1.0 : part.mean};
}

std::int64_t prefill_call_prompts(const WorkloadSpec& workload) {
  const std::int64_t prompt = std::max<std::int64_t>(1, workload.context_length);
  return std::max<std::int64_t>(1, kPrefillTokens / prompt);
}

std::int64_t replica_prompts(const VertexPlan& plan, const WorkloadConfig& config) {
  return ceil_divide(replica_batch(plan, config), config.workload.samples_per_prompt);
}

}  // namespace rpeg
