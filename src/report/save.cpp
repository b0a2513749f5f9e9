#include <fmt/format.h>

#include "rpeg/base/file.h"
#include "rpeg/report/plots.h"
#include "rpeg/report/report.h"

namespace rpeg {
namespace {

/// "plan.yaml" → "plan.2.yaml"; nothing stays nothing.
std::string ranked_path(const std::filesystem::path& best, std::size_t rank) {
  if (best.empty()) return "";
  std::filesystem::path path = best;
  path.replace_filename(
      fmt::format("{}.{}{}", best.stem().string(), rank, best.extension().string()));
  return path.string();
}

}  // namespace

std::vector<std::filesystem::path> save_results(const SearchResult& result,
                                                const WorkloadConfig& config,
                                                const Provenance& provenance) {
  std::vector<std::filesystem::path> paths;
  const auto save = [&](const std::string& path, const Evaluation& evaluation) {
    if (path.empty()) return;
    PlanFile file = make_plan_file(evaluation, config);
    file.predicted.lower_bound_s = result.bound.period_s;
    write_file_atomic(path, plan_file_text(file, &provenance));
    paths.emplace_back(path);
  };
  save(config.output.base_plan, result.greedy);
  save(config.output.opt_plan, result.best);
  for (std::size_t i = 1; i < result.top.size(); ++i) {
    save(ranked_path(config.output.opt_plan, i + 1), result.top[i]);
  }
  if (config.output.plots) {
    const std::string& directory = config.output.plots_dir;
    for (auto& path : write_plots(result, config, directory.empty() ? "plots" : directory)) {
      paths.push_back(std::move(path));
    }
  }
  return paths;
}

}  // namespace rpeg
