#include <fmt/format.h>

#include <set>

#include "job/summary_tables.h"
#include "rpeg/base/units.h"
#include "rpeg/job/compile.h"

namespace rpeg {
namespace {

constexpr double kSecondsPerDay = 86400.0;

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
  text += "\n## Groups\n\n" + group_table(job);
  text += "\n## Copies of weights\n\n" + copy_table(job);
  text += "\n## Messages\n\n" + transfer_text(job);
  text += "\n## Memory\n\n" + rank_table(job);
  text += "\n## Outputs\n\n" + output_text(job);
  return text;
}

}  // namespace rpeg
