#include "search/starts.h"

#include <utility>

#include "rpeg/base/error.h"
#include "rpeg/graph/graph.h"
#include "search/baselines.h"

namespace rpeg::search {
namespace {

/// Changes one vertex so that it keeps its pin, as little as possible.
void keep_pin_of(SubPlanTable& table, std::size_t kind, VertexPlan& plan) {
  const Pin& pin = table.space().pins[kind];
  if (keeps_pin(pin, plan)) return;
  Placement block = pin.placement.value_or(plan.placement);
  if (pin.parallelism && pin.parallelism->gpus() != block.gpu_count()) {
    plan = fastest_on(table, kind, usable_block(table.config().hardware));
    return;
  }
  const Parallelism split = pin.parallelism.value_or(plan.parallelism);
  const std::int64_t m = pin.micro_batches.value_or(plan.micro_batches);
  if (table.is_valid(kind, block, split, m)) {
    plan = {split, m, block};
  } else {
    plan = fastest_on(table, kind, block);
  }
}

Plan adapted(Workbench& bench, Plan plan) {
  const WorkloadConfig& config = bench.table.config();
  const Space& space = bench.table.space();
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorKind::kUsage, "the plan to start from does not suit the job: " + why);
  };
  if (plan.structure.ac_share && config.policy.algorithm != Algorithm::kPpo) {
    refuse("actor and critic share a trunk, but there is no critic");
  }
  // The structure may lie outside of the candidates; its vertices must be those of the job.
  const auto violations = find_violations(plan, build_graph(config.policy, plan.structure), config);
  if (!violations.empty()) {
    const Violation& first = violations.front();
    refuse(first.vertex.empty() ? first.message : first.vertex + ": " + first.message);
  }
  admit_structure(space, plan);
  const std::vector<std::size_t>& kinds = kinds_of(space, plan.structure);
  for (std::size_t v = 0; v < kinds.size(); ++v)
    keep_pin_of(bench.table, kinds[v], plan.vertices[v]);
  return plan;
}

/// Pins together with hardware.max_gpus can exclude every plan.
void check_valid(const Plan& plan, const WorkloadConfig& config) {
  const auto violations = find_violations(plan, build_graph(config.policy, plan.structure), config);
  if (violations.empty()) return;
  throw Error(ErrorKind::kInfeasible,
              "the pins leave no valid plan: " + violations.front().vertex + " " +
                  violations.front().message);
}

}  // namespace

std::vector<Plan> start_plans(Workbench& bench, const std::optional<Plan>& given) {
  std::vector<Plan> starts;
  if (given) starts.push_back(adapted(bench, *given));
  starts.push_back(greedy(bench.table, bench.evaluator));
  starts.push_back(concurrent(bench.table, bench.evaluator));
  for (const Plan& start : starts) check_valid(start, bench.table.config());
  return starts;
}

}  // namespace rpeg::search
