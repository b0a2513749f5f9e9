#include <algorithm>
#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/job/job.h"

namespace rpeg {
namespace {

/// Of `sequences` sequences of a replica, how many have ended by a boundary of the length
/// distribution (see ResponsePart).
std::int64_t ended_by(const WorkloadSpec& workload, std::int32_t boundary, std::int64_t sequences) {
  if (boundary == 0) {
    return 0;
  }
  constexpr double kRounding = 1e-9;  // a share times a count that is whole but for rounding
  const double share =
      workload.gen_quantiles.empty()
          ? 1.0
          : workload.gen_quantiles[static_cast<std::size_t>(boundary) - 1].probability;
  return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(sequences) - kRounding));
}

}  // namespace

SequenceRange stage_slots(
    const WorkloadConfig& inputs, std::uint32_t cuts, std::int32_t stage, int dp, int replica) {
  const std::vector<ResponsePart> parts = response_parts(cuts, inputs.workload);
  check(stage >= 1 && static_cast<std::size_t>(stage) <= parts.size(), "job: no such stage");
  const ResponsePart& part = parts[static_cast<std::size_t>(stage) - 1];
  const auto in_stage = [&](std::int64_t sequences) {
    return ended_by(inputs.workload, part.last, sequences) -
           ended_by(inputs.workload, part.first, sequences);
  };
  // Replicas have one of two sizes, the larger ones first.
  const std::int64_t sequences = job_sequences(inputs);
  const std::int64_t small = sequences / dp;
  const std::int64_t larger = sequences % dp;
  const std::int64_t before_larger = std::min<std::int64_t>(replica, larger);
  const std::int64_t first =
      before_larger * in_stage(small + 1) + (replica - before_larger) * in_stage(small);
  return {first, first + in_stage(replica < larger ? small + 1 : small)};
}

}  // namespace rpeg
