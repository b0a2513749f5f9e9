#pragma once

#include "rpeg/graph/graph.h"
#include "rpeg/plan/plan.h"

namespace rpeg {

/// The part of the responses that a stage of a cut vertex handles.
struct StageSpan {
  double share = 0.0;  ///< of the responses that end in it
  double from_tokens = 0.0;
  double to_tokens = 0.0;
};

/// The span of stage 1 … S.
StageSpan stage_span(const Structure& structure, std::int32_t stage, const WorkloadSpec& workload);

/// The graph of the tasks: the job's graph with generation cut where the structure cuts it.
FusedGraph task_graph(const Structure& structure, const WorkloadConfig& config);

}  // namespace rpeg
