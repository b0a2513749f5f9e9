#include "job/supported.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "rpeg/base/error.h"

namespace rpeg {

void check_supported(const PlanFile& plan) {
  std::vector<std::string> unsupported;
  const std::int64_t zero_stage = plan.inputs.optimizer.zero_stage;
  if (zero_stage > 1) {
    unsupported.push_back(fmt::format(
        "optimizer.zero_stage: {}; the CPU runtime shards the optimizer state only: set "
        "optimizer.zero_stage: 1 in the workload configuration",
        zero_stage));
  }
  for (std::size_t role = 0; role < kModelRoles; ++role) {
    const auto& model = plan.inputs.models[role];
    if (model && !model->gated_ffn &&
        needs_model(plan.inputs.policy, static_cast<ModelRole>(role))) {
      unsupported.push_back(
          fmt::format("models.{}.gated_ffn: false; the runtime has gated feed-forward layers "
                      "(SwiGLU) only: choose a model of the Llama family",
                      to_string(static_cast<ModelRole>(role))));
    }
  }
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
