#include <algorithm>
#include <cmath>

#include "cost/network.h"
#include "cost/shard.h"
#include "cost/vertex_rates.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

/// Backward of one layer: two sets of matrix products, flash attention 2.5 forwards; recomputation
/// repeats the attention core or the whole forward.
Seconds backward_layer(const VertexRates& rates, const CallShape& call, Recompute recompute) {
  const double attention_s = rates.attention_pair_s * call.attention_pairs;
  const Seconds forward = forward_layer(rates, call);
  Seconds backward{2.0 * forward.compute + 0.5 * attention_s, forward.comm};
  switch (recompute) {
    case Recompute::kNone:
      break;
    case Recompute::kSelective:
      // Without the fused kernel's own recomputation the backward is 2, the repeated forward 1.
      backward.compute += 0.5 * attention_s;
      break;
    case Recompute::kFull:
      backward = backward + forward;
      break;
  }
  return backward;
}

/// The units of the batch that end in a part, as one batch.
TaskTime inference_time(const Vertex& vertex,
                        const VertexPlan& plan,
                        const ResponsePart& part,
                        const WorkloadConfig& config,
                        const HardwareProfile& profile) {
  const PartLengths lengths = part_lengths(part, config.workload);
  const std::int64_t units =
      ceil_divide(units_in_part(lengths, batch_units(vertex, config)), plan.parallelism.dp);
  if (units == 0) return {};
  const CallShape unit = expected_sequence(vertex, config, lengths) *
                         static_cast<double>(sequences_per_unit(vertex, config));
  const MicroBatches batches = cut_micro_batches(units, std::min(units, plan.micro_batches));
  const VertexRates rates =
      vertex_rates(vertex, plan, config, profile, unit.tokens * batches.large_units);
  return forward_pipeline(rates, unit, batches);
}

/// What an optimizer step adds behind a mini-batch's pipeline.
struct StepTime {
  double comm_s = 0.0;
  double update_s = 0.0;
};

StepTime optimizer_step_time(const Vertex& vertex,
                             const VertexPlan& plan,
                             const WorkloadConfig& config,
                             const HardwareProfile& profile,
                             double last_backward_s) {
  const int dp = plan.parallelism.dp;
  const std::int64_t zero = config.optimizer.zero_stage;
  const ElementBytes bytes = element_bytes(config.optimizer.dtype);
  const double elements =
      largest_stage_elements(config.model(vertex.model), head_of(vertex), plan.parallelism);
  StepTime step;
  const double updated = zero >= 1 ? elements / dp : elements;
  step.update_s = bytes.update * updated / (profile.vector_eff * profile.memory_bandwidth);
  if (dp > 1) {
    const std::vector<GroupShape> groups = group_shapes(plan, GroupAxis::kData);
    const double gradient_bytes = elements * bytes.gradient;
    const double weight_bytes = elements * bytes.weight;
    const double reduce_s =
        zero == 0 ? seconds(all_reduce_cost(groups, profile, gradient_bytes), gradient_bytes)
                  : seconds(all_gather_cost(groups, profile, gradient_bytes), gradient_bytes);
    const double buckets = std::max(1.0, profile.grad_buckets);
    // All buckets but the last can hide behind the backward of a micro-batch; there compute and
    // communication slow each other.
    const double left_s = profile.overlap_slowdown * reduce_s - last_backward_s;
    const double exposed_s = reduce_s / buckets + (1.0 - 1.0 / buckets) * std::max(0.0, left_s);
    // A rank that keeps only its share of the gradients has no place to add up micro-batches: each
    // is reduced behind its own backward.
    const auto micro_batches = static_cast<double>(plan.micro_batches);
    step.comm_s += (zero >= 2 ? micro_batches : 1.0) * exposed_s;
    if (zero >= 1) {
      const double gather_s = seconds(all_gather_cost(groups, profile, weight_bytes), weight_bytes);
      // Stage 3 gathers the weights before each forward and backward instead of after the step.
      const double gathers = zero >= 3 ? 2.0 * micro_batches : 1.0;
      step.comm_s += gathers * gather_s;
    }
  }
  if (plan.parallelism.gpus() > 1) {
    // The gradient norm: one number over all ranks.
    constexpr double kScalarBytes = 4.0;
    step.comm_s +=
        seconds(all_reduce_cost(group_shapes(plan, GroupAxis::kBlock), profile, kScalarBytes),
                kScalarBytes);
  }
  return step;
}

/// 1F1B over one mini-batch, then the optimizer step; once per mini-batch and epoch.
TaskTime training_time(const Vertex& vertex,
                       const VertexPlan& plan,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile) {
  const std::int64_t units = ceil_divide(
      ceil_divide(batch_units(vertex, config), config.policy.minibatches), plan.parallelism.dp);
  const MicroBatches batches = cut_micro_batches(units, plan.micro_batches);
  const CallShape unit =
      expected_sequence(
          vertex, config, part_lengths(whole_response(config.workload), config.workload)) *
      static_cast<double>(sequences_per_unit(vertex, config));
  const VertexRates rates =
      vertex_rates(vertex, plan, config, profile, unit.tokens * batches.large_units);
  const auto stages = [&](double size) {
    const CallShape call = unit * size;
    const Seconds head{3.0 * forward_head(rates, call.head_rows), 0.0};
    return stage_times(
        rates,
        forward_layer(rates, call) + backward_layer(rates, call, config.optimizer.recompute),
        head);
  };
  const CallShape last = unit * batches.large_units;
  const double last_backward_s =
      rates.last_layers * backward_layer(rates, last, config.optimizer.recompute).total() +
      2.0 * forward_head(rates, last.head_rows);
  const StepTime step = optimizer_step_time(vertex, plan, config, profile, last_backward_s);
  const TaskTime pipeline =
      pipeline_time(stages(batches.large_units), stages(batches.small_units), batches);
  const double sends_s = one_f_one_b_sends_s(
      seconds(rates.send, last.tokens), plan.parallelism.pp, plan.micro_batches);
  const double steps = static_cast<double>(config.policy.epochs * config.policy.minibatches);
  return with_total({.compute_s = steps * (pipeline.compute_s + step.update_s),
                     .comm_s = steps * (pipeline.comm_s + sends_s + step.comm_s),
                     .bubble_s = steps * pipeline.bubble_s});
}

}  // namespace

StageTimes stage_times(const VertexRates& rates, Seconds layer, Seconds head) {
  const Seconds last = rates.last_layers * layer + head;
  const Seconds first = rates.first_layers * layer;
  return {.slowest = rates.parallelism.pp > 1 && first.total() > last.total() ? first : last,
          .sum_s = (rates.layers * layer + head).total()};
}

TaskTime forward_pipeline(const VertexRates& rates,
                          const CallShape& unit,
                          const MicroBatches& batches) {
  const auto stages = [&](double size) {
    const CallShape call = unit * size;
    return stage_times(
        rates, forward_layer(rates, call), {forward_head(rates, call.head_rows), 0.0});
  };
  TaskTime time = pipeline_time(stages(batches.large_units), stages(batches.small_units), batches);
  time.comm_s +=
      (rates.parallelism.pp - 1) * seconds(rates.send, unit.tokens * batches.large_units);
  return with_total(time);
}

TaskTime price_vertex(const Vertex& vertex,
                      const VertexPlan& plan,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile) {
  const ResponsePart whole = whole_response(config.workload);
  return price_part(vertex, plan, whole, replica_batch(plan, config), config, profile);
}

namespace {

TaskTime modelled_time(const Vertex& vertex,
                       const VertexPlan& plan,
                       const ResponsePart& part,
                       std::int64_t slots,
                       const WorkloadConfig& config,
                       const HardwareProfile& profile) {
  switch (vertex.op) {
    case Op::kGenerate:
      check(slots >= 1, "cost: generation needs a slot for at least one sequence");
      return generation_time(vertex, plan, part, slots, config, profile);
    case Op::kTrain:
    case Op::kTrainJoint:
      return training_time(vertex, plan, config, profile);
    case Op::kInferReward:
    case Op::kInferValue:
    case Op::kInferReference:
    case Op::kInferActor:
      return inference_time(vertex, plan, part, config, profile);
  }
  throw Error(ErrorKind::kInternal, "cost: unknown op");
}

}  // namespace

WorkClass work_class(Op op) {
  if (op == Op::kGenerate) return WorkClass::kGenerate;
  return is_training(op) ? WorkClass::kTrain : WorkClass::kInfer;
}

double vertex_factor(const Vertex& vertex, const VertexPlan& plan, const HardwareProfile& profile) {
  return observed_factor(profile.observed, work_class(vertex.op), slowest_tier(plan.placement));
}

TaskTime price_part(const Vertex& vertex,
                    const VertexPlan& plan,
                    const ResponsePart& part,
                    std::int64_t slots,
                    const WorkloadConfig& config,
                    const HardwareProfile& profile) {
  const TaskTime time = modelled_time(vertex, plan, part, slots, config, profile);
  const double factor = vertex_factor(vertex, plan, profile);
  return {.compute_s = factor * time.compute_s,
          .comm_s = factor * time.comm_s,
          .bubble_s = factor * time.bubble_s,
          .total_s = factor * time.total_s};
}

double vertex_model_flop(const Vertex& vertex, const WorkloadConfig& config) {
  const ModelSpec& model = config.model(vertex.model);
  const Head heads = head_of(vertex);
  const CallShape batch =
      expected_sequence(
          vertex, config, part_lengths(whole_response(config.workload), config.workload)) *
      static_cast<double>(batch_units(vertex, config) * sequences_per_unit(vertex, config));
  const double layers = static_cast<double>(model.layers);
  const double head_outputs =
      (has_vocabulary(heads) ? static_cast<double>(model.vocab_size) : 0.0) +
      (has_scalar(heads) ? 1.0 : 0.0);
  const double linear = 2.0 * batch.tokens * layers * layer_matrix_elements(model, 1);
  const double head = 2.0 * batch.head_rows * static_cast<double>(model.hidden_dim) * head_outputs;
  const double attention =
      4.0 * static_cast<double>(model.num_heads * model.head_dim) * layers * batch.attention_pairs;
  const double passes =
      is_training(vertex.op) ? 3.0 * static_cast<double>(config.policy.epochs) : 1.0;
  return passes * (linear + head + attention);
}

}  // namespace rpeg
