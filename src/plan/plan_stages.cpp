#include "plan/plan_stages.h"

namespace rpeg {

StageSpan stage_span(const Structure& structure, std::int32_t stage, const WorkloadSpec& workload) {
  const ResponsePart part =
      response_parts(structure.cuts, workload)[static_cast<std::size_t>(stage) - 1];
  const auto boundary = [&](std::int32_t i) {
    return i == 0 ? LengthQuantile{} : workload.gen_quantiles[static_cast<std::size_t>(i) - 1];
  };
  const LengthQuantile from = boundary(part.first);
  const LengthQuantile to = boundary(part.last);
  return {to.probability - from.probability, from.tokens, to.tokens};
}

FusedGraph task_graph(const Structure& structure, const WorkloadConfig& config) {
  const auto stages = static_cast<int>(response_parts(structure.cuts, config.workload).size());
  return fuse_graph(build_graph(config.policy, structure), stages);
}

}  // namespace rpeg
