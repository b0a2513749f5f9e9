#include "run_display.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "rpeg/base/units.h"

namespace rpeg::apps {
namespace {

constexpr std::int64_t kLogIterations = 10;
constexpr std::chrono::seconds kLogInterval{10};
constexpr int kCurveColumns = 72;
constexpr int kCurveRows = 10;

std::string progress_line(const IterationMetrics& metrics, std::int64_t iterations) {
  std::string text = fmt::format("iteration {}/{}", metrics.iteration + 1, iterations);
  if (!std::isnan(metrics.reward_mean)) {
    text += fmt::format("  reward {:.3f}", metrics.reward_mean);
  }
  if (!std::isnan(metrics.dpo_margin)) {
    text += fmt::format("  loss {:.4f}  margin {:.4f}  accuracy {:.2f}",
                        metrics.policy_loss,
                        metrics.dpo_margin,
                        metrics.dpo_accuracy);
  }
  if (!std::isnan(metrics.kl_reference)) {
    text += fmt::format("  KL {:.4f}", metrics.kl_reference);
  }
  if (!std::isnan(metrics.response_tokens_mean)) {
    text += fmt::format("  length {:.1f}", metrics.response_tokens_mean);
  }
  text += fmt::format("  {:.0f} tokens/s", metrics.tokens_per_s);
  if (!std::isnan(metrics.eval_reward)) {
    text += fmt::format("  held-out reward {:.3f}", metrics.eval_reward);
  }
  return text;
}

std::string timing_row(const std::string& id,
                       double predicted_s,
                       double measured_s,
                       const std::string& note = "") {
  const bool priced = predicted_s > 0.0;
  return fmt::format("{:<14} {:>12} {:>12} {:>10}{}\n",
                     id,
                     priced ? format_seconds(predicted_s) : "-",
                     format_seconds(measured_s),
                     priced ? fmt::format("{:.2f}", measured_s / predicted_s) : "-",
                     note);
}

std::string timing_note(const VertexTiming& timing) {
  std::string note;
  if (timing.bytes > 0.0 && timing.measured_s > 0.0) {
    note += "  " + format_bandwidth(timing.bytes / timing.measured_s);
  }
  return timing.is_outlier ? note + "  outlier: off by itself, not with the others" : note;
}

/// What the ranks did with their time: of all together, and the least busy one.
std::string utilization_text(const RunSummary& summary) {
  if (summary.ranks.empty()) {
    return "";
  }
  double busy = 0.0;
  double waiting = 0.0;
  double moving = 0.0;
  for (const RankUse& rank : summary.ranks) {
    busy += rank.busy;
    waiting += rank.waiting;
    moving += rank.moving;
  }
  const double share = 100.0 / static_cast<double>(summary.ranks.size());
  const auto least = std::ranges::min_element(summary.ranks, {}, &RankUse::busy);
  return fmt::format(
      "busy {:.0f} % of the time, waiting for messages and groups {:.0f} %, moving data {:.0f} %; "
      "least busy: rank {}, {:.0f} %\n",
      share * busy,
      share * waiting,
      share * moving,
      least->rank,
      100.0 * least->busy);
}

std::string timing_table(const RunSummary& summary) {
  std::string text =
      fmt::format("{:<14} {:>12} {:>12} {:>10}\n", "task", "predicted", "measured", "ratio");
  for (const VertexTiming& timing : summary.timings) {
    text += timing_row(timing.id, timing.predicted_s, timing.measured_s, timing_note(timing));
  }
  return text +
         timing_row("iteration", summary.predicted_iteration_s, summary.measured_iteration_s);
}

std::string file_list(const RuntimeConfig& config) {
  std::string text;
  const auto add = [&](const char* what, const std::filesystem::path& path) {
    if (!path.empty()) {
      text += fmt::format("{:<14} {}\n", what, path.string());
    }
  };
  add("metrics", config.metrics_dir);
  add("rollouts", config.rollouts);
  add("trace", config.trace_dir);
  add("trained model", config.save_dir);
  return text;
}

}  // namespace

RunDisplay::RunDisplay(std::int64_t iterations, bool quiet, bool is_terminal)
    : iterations_(iterations),
      quiet_(quiet),
      is_terminal_(is_terminal),
      shown_at_(std::chrono::steady_clock::now()) {}

void RunDisplay::show(const IterationMetrics& metrics) {
  if (quiet_) {
    return;
  }
  const std::string text = progress_line(metrics, iterations_);
  if (is_terminal_) {
    std::cerr << "\r\033[K" << text << std::flush;
    line_open_ = true;
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  const bool is_last = metrics.iteration + 1 == iterations_;
  if (metrics.iteration - shown_iteration_ >= kLogIterations || now - shown_at_ >= kLogInterval ||
      metrics.iteration == 0 || is_last) {
    spdlog::info("{}", text);
    shown_iteration_ = metrics.iteration;
    shown_at_ = now;
  }
}

void RunDisplay::finish() {
  if (line_open_) {
    std::cerr << '\n';
    line_open_ = false;
  }
}

std::string run_report(const Job& job, const RunSummary& summary) {
  std::string text;
  if (!summary.iterations.empty()) {
    text += reward_curve(summary.iterations, kCurveColumns, kCurveRows) + "\n";
    text += timing_table(summary) + utilization_text(summary) + "\n";
  }
  if (!std::isnan(summary.final_eval_reward)) {
    text += fmt::format("held-out reward (greedy)  {:.3f}\n", summary.final_eval_reward);
  }
  return summary.iterations.empty() ? text : text + file_list(job.config.runtime);
}

}  // namespace rpeg::apps
