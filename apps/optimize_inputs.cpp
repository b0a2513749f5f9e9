#include "optimize_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/graph/graph.h"
#include "rpeg/search/baseline.h"
#include "rpeg/spec/lengths.h"

namespace rpeg::apps {
namespace {

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Vertex& vertex : graph.vertices) names.push_back(vertex.name);
  return names;
}

/// A plan file may stem from another configuration: every rule is checked against this one.
void check_suits(const std::string& path, const PlanFile& file, const WorkloadConfig& config) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage, "the plan does not suit the configuration: " + why, path);
  };
  Structure apart = file.plan.structure;
  apart.ac_share = false;
  const auto theirs = names_of(build_graph(file.inputs.policy, apart));
  const auto ours = names_of(build_graph(config.policy, apart));
  if (theirs != ours) {
    fail(fmt::format(
        "it is of a job with {}, this one has {}", fmt::join(theirs, ", "), fmt::join(ours, ", ")));
  }
  if (file.plan.structure.cuts != 0 &&
      file.inputs.workload.gen_quantiles != config.workload.gen_quantiles) {
    fail("it cuts generation, and workload.gen_quantiles differ");
  }
  const Graph graph = build_graph(config.policy, file.plan.structure);
  std::string reasons;
  for (const Violation& violation : find_violations(file.plan, graph, config)) {
    const std::string who = violation.vertex.empty() ? "" : violation.vertex + ": ";
    reasons += "\n  " + who + violation.message;
  }
  if (!reasons.empty()) fail(reasons);
}

/// All decisions for one vertex of the plan that the search starts from.
Pin pin_as_in(const Plan& plan, const std::string& name, const WorkloadConfig& config) {
  const Graph graph = build_graph(config.policy, plan.structure);
  const VertexId id = find_vertex(graph, name);
  if (id == VertexId{-1}) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--pin {}: the plan of --start has no such vertex; it has {}",
                            name,
                            fmt::join(names_of(graph), ", ")));
  }
  const VertexPlan& vertex = plan.vertices[index(id)];
  return {name, vertex.parallelism, vertex.micro_batches, vertex.placement};
}

[[noreturn]] void refuse_plan(const std::string& text) {
  throw Error(ErrorKind::kUsage,
              fmt::format("`{}` is neither a file nor the name of a plan; names are {}",
                          text,
                          fmt::join(plan_names(), ", ")));
}

/// Whether two paths name one file, which may not exist yet.
bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(std::filesystem::absolute(a, ignored), ignored) ==
         std::filesystem::weakly_canonical(std::filesystem::absolute(b, ignored), ignored);
}

}  // namespace

WorkloadConfig load_config(const OptimizeFlags& flags) {
  if (flags.config.empty()) {
    throw Error(ErrorKind::kUsage,
                is_plan_name(flags.evaluate)
                    ? fmt::format("--evaluate {} needs --config: a named plan has no inputs",
                                  flags.evaluate)
                    : std::string("give --config or --evaluate"));
  }
  WorkloadConfig config = load_workload_config(flags.config);
  if (!flags.lengths.empty()) {
    config.workload.gen_quantiles =
        length_quantiles(load_response_lengths(flags.lengths), config.workload.generation_length);
  }
  if (!flags.objective.empty()) {
    config.optimizer.objective =
        flags.objective == "cost" ? Objective::kCost : Objective::kThroughput;
  }
  config.seed = flags.seed.value_or(config.seed);
  config.output.plots |= flags.plots;
  if (!flags.base_plan.empty()) config.output.base_plan = flags.base_plan;
  if (!flags.opt_plan.empty()) config.output.opt_plan = flags.opt_plan;
  if (!flags.log_file.empty()) config.output.log_file = flags.log_file;
  return config;
}

HardwareProfile load_hardware(const OptimizeFlags& flags) {
  HardwareProfile profile = load_hardware_profile(flags.hw);
  for (const std::string& warning : profile.warnings) spdlog::warn("{}", warning);
  if (!flags.observed.empty()) {
    const ObservedRun run = load_observed(flags.observed);
    profile.observed = compound_factors(profile.observed, run.factors);
  }
  if (profile.observed.any()) {
    spdlog::info("predictions are scaled by what was observed:\n{}",
                 describe_factors(profile.observed));
  }
  return profile;
}

bool is_plan_name(const std::string& text) {
  return std::ranges::find(plan_names(), text) != plan_names().end();
}

NamedPlan load_plan(const std::string& name_or_path,
                    const WorkloadConfig& config,
                    const HardwareProfile& profile) {
  if (is_plan_name(name_or_path)) {
    return {name_or_path, named_plan(name_or_path, config, profile)};
  }
  if (!std::filesystem::exists(name_or_path)) refuse_plan(name_or_path);
  const PlanFile file = load_plan_file(name_or_path);
  check_suits(name_or_path, file, config);
  return {name_or_path, file.plan};
}

PlanFile load_plan_to_evaluate(const OptimizeFlags& flags, const HardwareProfile& profile) {
  PlanFile file;
  if (is_plan_name(flags.evaluate)) {
    file.inputs = load_config(flags);
    file.plan = load_plan(flags.evaluate, file.inputs, profile).plan;
    return file;
  }
  if (!std::filesystem::exists(flags.evaluate)) refuse_plan(flags.evaluate);
  if (!flags.config.empty() || !flags.lengths.empty()) {
    throw Error(ErrorKind::kUsage,
                "--evaluate of a plan file excludes --config and --lengths: the file has its "
                "inputs embedded (they go with the name of a plan)");
  }
  return load_plan_file(flags.evaluate);
}

SearchOptions search_options(const OptimizeFlags& flags,
                             const WorkloadConfig& config,
                             const HardwareProfile& profile) {
  SearchOptions options;
  options.evaluations = flags.evals;
  options.time_s = flags.time_s;
  options.top = flags.top;
  options.exhaustive = flags.exhaustive;
  options.check_scores = flags.check_scores;
  options.threads = flags.threads;
  if (!flags.start.empty()) options.start = load_plan(flags.start, config, profile).plan;
  for (const std::string& text : flags.pins) {
    if (text.find('=') != std::string::npos) {
      options.pins.push_back(parse_pin(text));
    } else if (!options.start) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("--pin {0}: a vertex without a decision keeps that of --start, which "
                              "is not given; a decision reads like {0}=4,1,2 (dp,pp,tp), {0}=m8 or "
                              "{0}=r0 n[0-1] g[0-3]",
                              text.empty() ? "g_pi" : text));
    } else {
      options.pins.push_back(pin_as_in(*options.start, text, config));
    }
  }
  return options;
}

std::vector<int> parse_sweep(const std::string& text) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::kUsage,
                fmt::format("--sweep {}: {}; a sweep reads like gpus=8,16,32", text, why));
  };
  const std::string prefix = "gpus=";
  if (!text.starts_with(prefix)) fail("expected gpus=");
  std::vector<int> sizes;
  std::istringstream list(text.substr(prefix.size()));
  for (std::string item; std::getline(list, item, ',');) {
    int size = 0;
    const char* end = item.data() + item.size();
    const auto [at, error] = std::from_chars(item.data(), end, size);
    if (error != std::errc() || at != end || size < 1) {
      fail(fmt::format("`{}` is no number of GPUs", item));
    }
    sizes.push_back(size);
  }
  if (sizes.empty() || text.back() == ',') fail("expected numbers of GPUs");
  std::ranges::sort(sizes);
  const auto twice = std::ranges::adjacent_find(sizes);
  if (twice != sizes.end()) fail(fmt::format("{} is listed twice", *twice));
  return sizes;
}

void check_outputs(const WorkloadConfig& config) {
  const bool both = !config.output.opt_plan.empty() && !config.output.base_plan.empty();
  const bool device = both && std::filesystem::is_other(config.output.opt_plan);
  if (both && !device && is_same_file(config.output.opt_plan, config.output.base_plan)) {
    throw Error(ErrorKind::kUsage,
                "the base plan and the optimized plan have one path: " + config.output.opt_plan);
  }
  for (const std::string& path : {config.output.base_plan, config.output.opt_plan}) {
    if (!path.empty()) check_writable(path);
  }
  if (config.output.plots && !config.output.plots_dir.empty()) {
    ensure_directory(config.output.plots_dir);
  }
  if (config.output.opt_plan.empty()) {
    spdlog::warn("the plan will not be saved: give --opt-plan FILE");
  }
}

}  // namespace rpeg::apps
