#include "plan/plan_structure.h"

#include <fmt/format.h>

#include <cmath>

#include "rpeg/yaml/writer.h"

namespace rpeg {
namespace {

/// The shares at which `cuts` cuts, as the files print them.
std::string cut_list(std::uint32_t cuts, const WorkloadSpec& workload) {
  std::vector<std::string> shares;
  for (std::size_t i = 0; i + 1 < workload.gen_quantiles.size(); ++i) {
    if ((cuts >> i & 1U) != 0) shares.push_back(yaml_scalar(workload.gen_quantiles[i].probability));
  }
  return yaml_flow(shares);
}

/// The bit of a cut; 0 when no inner point of gen_quantiles lies there.
std::uint32_t cut_at(double share, const WorkloadSpec& workload) {
  constexpr double kWritten = 1e-9;  // of one share, written down twice
  for (std::size_t i = 0; i + 1 < workload.gen_quantiles.size(); ++i) {
    if (std::abs(workload.gen_quantiles[i].probability - share) <= kWritten) {
      return std::uint32_t{1} << i;
    }
  }
  return 0;
}

/// Why generation may not be cut at all.
std::string no_cuts_text(const WorkloadConfig& inputs) {
  if (!inputs.policy.allow_fusion) return "policy.allow_fusion is false";
  if (inputs.policy.algorithm == Algorithm::kDpo) return "dpo compares whole pairs";
  if (inputs.workload.gen_quantiles.size() < 2) {
    return "workload.gen_quantiles has no point before the end";
  }
  return "no inference reads the rollouts";
}

std::uint32_t read_cuts(MapReader& reader, const WorkloadConfig* inputs) {
  std::uint32_t cuts = 0;
  Faults& faults = reader.faults();
  reader.sequence("cuts", false, [&](const YamlValue& item, const std::string& path) {
    const std::size_t before = faults.count();
    const double share = yaml_number(item, path, faults, {1e-9, 1});
    if (faults.count() != before || inputs == nullptr) return;
    const std::uint32_t allowed = possible_cuts(*inputs);
    const std::uint32_t cut = cut_at(share, inputs->workload) & allowed;
    if (allowed == 0) {
      faults.add(item, path, "this job's generation cannot be cut: " + no_cuts_text(*inputs));
    } else if (cut == 0) {
      faults.add(item,
                 path,
                 fmt::format("{} is no cut of this job; a cut is a share of finished responses at "
                             "an inner point of workload.gen_quantiles, here one of {}",
                             share,
                             cut_list(allowed, inputs->workload)));
    } else if ((cuts & cut) != 0) {
      faults.add(item, path, fmt::format("the cut {} is listed twice", share));
    }
    cuts |= cut;
  });
  return cuts;
}

void check_sharing(const Structure& structure, const WorkloadConfig& inputs, MapReader& reader) {
  if (inputs.policy.algorithm != Algorithm::kPpo) {
    reader.fault("ac_share",
                 fmt::format("{} has no critic to share with the actor",
                             to_string(inputs.policy.algorithm)));
  } else if (!inputs.policy.allow_ac_share) {
    reader.fault("ac_share", "inputs.policy.allow_ac_share is false; set it to true to share");
  } else if (structure.tau_actor != structure.tau_critic) {
    reader.fault("tau",
                 fmt::format("a shared trunk has one staleness: expected equal values, found "
                             "actor {} and critic {}",
                             structure.tau_actor,
                             structure.tau_critic));
  }
}

}  // namespace

Structure read_structure(MapReader reader, const WorkloadConfig* inputs) {
  Structure structure;
  const std::size_t before = reader.faults().count();
  structure.ac_share = reader.boolean("ac_share", false);
  structure.cuts = read_cuts(reader, inputs);
  MapReader tau = reader.map("tau", false);
  structure.tau_actor = tau.integer("actor", {0, 64}, 0);
  structure.tau_critic = tau.integer("critic", {0, 64}, 0);
  tau.finish();
  if (structure.ac_share && inputs != nullptr && reader.faults().count() == before) {
    check_sharing(structure, *inputs, reader);
  }
  reader.finish();
  return structure;
}

std::string structure_yaml(const Structure& structure, const WorkloadSpec& workload) {
  return fmt::format("{{ac_share: {}, tau: {{actor: {}, critic: {}}}, cuts: {}}}",
                     structure.ac_share,
                     structure.tau_actor,
                     structure.tau_critic,
                     cut_list(structure.cuts, workload));
}

}  // namespace rpeg
