#include "job/supported.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

void find_unsupported_policy(const PlanFile& plan, std::vector<std::string>* out) {
  const PolicySpec& policy = plan.inputs.policy;
  if (policy.algorithm == Algorithm::kDpo) {
    out->push_back("DPO; set policy.algorithm: ppo or grpo in the workload configuration");
  } else if (policy.reward == RewardSource::kModel) {
    out->push_back(
        "policy.reward: model (a reward model); set policy.reward: verifier in the workload "
        "configuration");
  }
  const Structure& structure = plan.plan.structure;
  if (structure.ac_share) {
    out->push_back(
        "a trunk shared by actor and critic; set policy.allow_ac_share: false in the workload "
        "configuration");
  }
  if (structure.cuts != 0) {
    out->push_back(
        "generation cut into stages; set policy.allow_fusion: false in the workload configuration");
  }
  if (structure.tau_actor != 0 || structure.tau_critic != 0) {
    out->push_back(
        fmt::format("staleness (tau: actor {}, critic {}); set optimizer.staleness_candidates: "
                    "{{actor: [0], critic: [0]}} in the workload configuration",
                    structure.tau_actor,
                    structure.tau_critic));
  }
}

void find_unsupported_parallelism(const Graph& graph,
                                  const Plan& plan,
                                  std::vector<std::string>* out) {
  for (std::size_t i = 0; i < graph.vertices.size() && i < plan.vertices.size(); ++i) {
    const Parallelism& p = plan.vertices[i].parallelism;
    const std::string& name = graph.vertices[i].name;
    if (p.tp > 1) {
      out->push_back(
          fmt::format("tensor parallelism (tp = {} of {}); set optimizer.max_tp: 1 in the workload "
                      "configuration",
                      p.tp,
                      name));
    }
    if (p.pp > 1) {
      out->push_back(
          fmt::format("pipeline parallelism (pp = {} of {}); set optimizer.max_pp: 1 in "
                      "the workload configuration",
                      p.pp,
                      name));
    }
  }
}

}  // namespace

void check_supported(const PlanFile& plan) {
  std::vector<std::string> unsupported;
  find_unsupported_policy(plan, &unsupported);
  find_unsupported_parallelism(
      build_graph(plan.inputs.policy, plan.plan.structure), plan.plan, &unsupported);
  if (unsupported.empty()) {
    return;
  }
  std::string text = "the plan needs what this version cannot run:";
  for (const std::string& feature : unsupported) {
    text += "\n  " + feature;
  }
  throw Error(ErrorKind::kUsage, text + "\nthen plan again with rpeg-optimize");
}

}  // namespace rpeg
