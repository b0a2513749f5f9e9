#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <iostream>

#include "report/sections.h"
#include "rpeg/report/report.h"

namespace rpeg {

std::string progress_text(const SearchProgress& progress) {
  const double speed = progress.elapsed_s > 0.0
                           ? static_cast<double>(progress.evaluations) / progress.elapsed_s
                           : 0.0;
  const std::string of = progress.total_s > 0.0 ? fmt::format("/{:.0f}s", progress.total_s) : "s";
  const std::string best = progress.tokens_per_s > 0.0
                               ? fmt::format("{:.4e} tokens/s", progress.tokens_per_s)
                               : std::string("no plan fits yet");
  const std::string gap =
      progress.bound_s > 0.0 && progress.best_period_s > 0.0
          ? "  gap " + report::gap_text(progress.best_period_s, progress.bound_s)
          : std::string();
  return fmt::format("{:.1f}{}  {}/{} evaluations  {:.0f}/s  T={:.4f}  best {}{}",
                     progress.elapsed_s,
                     of,
                     progress.evaluations,
                     progress.total_evaluations,
                     speed,
                     progress.temperature,
                     best,
                     gap);
}

std::function<void(const SearchProgress&)> progress_printer(bool on_terminal) {
  return [on_terminal, next_log_s = 10.0](const SearchProgress& progress) mutable {
    const std::string text = progress_text(progress);
    if (on_terminal) std::cerr << "\r\033[K" << text << std::flush;
    if (progress.elapsed_s < next_log_s) return;
    next_log_s = progress.elapsed_s + 10.0;
    spdlog::log(on_terminal ? spdlog::level::debug : spdlog::level::info, "search {}", text);
  };
}

}  // namespace rpeg
