#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <set>

#include "job/layout.h"
#include "rpeg/base/units.h"
#include "rpeg/job/compile.h"
#include "rpeg/job/tensors.h"

namespace rpeg {
namespace {

constexpr double kWeightBytes = 4.0;     // fp32
constexpr double kTrainingBytes = 16.0;  // weights, gradients and two moments
constexpr double kSecondsPerDay = 86400.0;

double parameter_count(const Job& job, ModelRole role) {
  double count = 0.0;
  for (const ModelTensor& tensor :
       model_tensors(job.inputs.model(role), role == ModelRole::kCritic)) {
    count += static_cast<double>(tensor.count);
  }
  return count;
}

double predicted_s(const Job& job, const std::string& id) {
  const auto at = job.predicted.breakdown.find(id);
  return at == job.predicted.breakdown.end()
             ? 0.0
             : at->second.compute_s + at->second.comm_s + at->second.bubble_s;
}

std::string vertex_table(const Job& job) {
  std::string text =
      "| vertex | operation | model | dp | micro-batches | placement | ranks | predicted |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    const Vertex& vertex = job.graph.vertices[i];
    const VertexPlan& plan = plan_of(job, VertexId{static_cast<std::int32_t>(i)});
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n",
                        vertex.name,
                        to_string(vertex.op),
                        to_string(vertex.model),
                        plan.parallelism.dp,
                        plan.micro_batches,
                        placement_text(plan.placement),
                        fmt::join(block_of(job, VertexId{static_cast<std::int32_t>(i)}).ranks, " "),
                        format_seconds(predicted_s(job, vertex.name)));
  }
  return text;
}

/// Vertices and the bytes of weights, gradients and moments of each rank.
std::string rank_table(const Job& job) {
  std::vector<std::string> names(job.ranks.size());
  std::vector<std::array<double, kModelRoles>> bytes_per_parameter(job.ranks.size());
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    const Vertex& vertex = job.graph.vertices[i];
    for (const int rank : block_of(job, VertexId{static_cast<std::int32_t>(i)}).ranks) {
      const auto r = static_cast<std::size_t>(rank);
      names[r] += (names[r].empty() ? "" : " ") + vertex.name;
      double& bytes = bytes_per_parameter[r][static_cast<std::size_t>(vertex.model)];
      bytes = std::max(bytes, is_training(vertex.op) ? kTrainingBytes : kWeightBytes);
    }
  }
  std::string text =
      "| rank | node | slot | runs | weights, gradients, optimizer |\n|---|---|---|---|---|\n";
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    double bytes = 0.0;
    for (std::size_t role = 0; role < kModelRoles; ++role) {
      if (bytes_per_parameter[r][role] > 0.0) {
        bytes += bytes_per_parameter[r][role] * parameter_count(job, static_cast<ModelRole>(role));
      }
    }
    text += fmt::format("| {} | {} | {} | {} | {} |\n",
                        r,
                        job.ranks[r].node,
                        job.ranks[r].slot,
                        names[r],
                        format_bytes(bytes));
  }
  return text;
}

std::string message_text(const Job& job) {
  std::size_t count = 0;
  double data_bytes = 0.0;
  for (const RankSpec& rank : job.ranks) {
    for (const Instruction& instruction : rank.program) {
      if (instruction.kind == InstructionKind::kSend) {
        ++count;
        data_bytes += static_cast<double>(instruction.capacity_bytes);
      }
    }
  }
  std::string text = fmt::format(
      "- Data: {} messages, at most {} in an iteration.\n", count, format_bytes(data_bytes));
  for (const WeightTransfer& transfer : job.transfers) {
    double bytes = 0.0;
    for (const WeightMessage& message : transfer.messages) {
      bytes += static_cast<double>(message.bytes);
    }
    text += fmt::format("- Weights {} to {}: {} messages, {} in an iteration.\n",
                        job.graph.vertices[index(transfer.producer)].name,
                        job.graph.vertices[index(transfer.consumer)].name,
                        transfer.messages.size(),
                        format_bytes(bytes));
  }
  if (job.transfers.empty()) {
    text += "- Weights stay where they are trained: nothing moves.\n";
  }
  return text;
}

std::string expectation_text(const Job& job) {
  const double iteration_s = job.predicted.iteration_time_s;
  if (iteration_s <= 0.0) {
    return "The plan carries no prediction; rpeg-optimize --evaluate makes one.\n";
  }
  const double tokens_per_s = job.predicted.throughput_tokens_per_s;
  const auto iterations = static_cast<double>(job.config.train.iterations);
  return fmt::format(
      "- An iteration: {}; all {} iterations: {}.\n"
      "- Tokens: {:.4g} per second, {:.4g} per day.\n",
      format_seconds(iteration_s),
      job.config.train.iterations,
      format_seconds(iteration_s * iterations),
      tokens_per_s,
      tokens_per_s * kSecondsPerDay);
}

std::string output_text(const Job& job) {
  std::string text;
  const auto line = [&](const char* what, const std::filesystem::path& path) {
    if (!path.empty()) {
      text += fmt::format("- {}: `{}`\n", what, path.string());
    }
  };
  line("Metrics", job.config.runtime.metrics_dir / "metrics.jsonl");
  line("Trace", job.config.runtime.trace_dir);
  line("Trained models", job.config.runtime.save_dir);
  line("Rollouts", job.config.runtime.rollouts);
  return text;
}

}  // namespace

std::string job_summary(const Job& job) {
  const WorkloadSpec& workload = job.inputs.workload;
  std::set<int> nodes;
  for (const RankSpec& rank : job.ranks) {
    nodes.insert(rank.node);
  }
  std::string text = fmt::format(
      "# {} on {} ranks of {} node{}\n\n"
      "{} prompts x {} samples an iteration, prompts of up to {} tokens, responses of up to {} "
      "tokens; {} iterations; seed {}.\n",
      to_string(job.inputs.policy.algorithm),
      job.ranks.size(),
      nodes.size(),
      nodes.size() == 1 ? "" : "s",
      workload.batch_size,
      workload.samples_per_prompt,
      workload.context_length,
      workload.generation_length,
      job.config.train.iterations,
      job.seed);
  text += "\n## What to expect\n\n" + expectation_text(job);
  text += "\n## Vertices\n\n" + vertex_table(job);
  text += "\n## Ranks\n\n" + rank_table(job);
  text += "\nActivations, the KV cache and messages come on top.\n";
  text += "\n## Messages\n\n" + message_text(job);
  text += "\n## Outputs\n\n" + output_text(job);
  return text;
}

}  // namespace rpeg
