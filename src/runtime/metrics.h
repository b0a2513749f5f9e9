#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "rpeg/comm/comm.h"
#include "rpeg/job/job.h"
#include "rpeg/runtime/run.h"

namespace rpeg {

/// What ranks count in an iteration; the sums of all ranks add up.
enum class Sum {
  kSequences,
  kReward,
  kRewardSquared,
  kPromptTokens,
  kResponseTokens,
  kStopped,
  kPolicyLoss,
  kValueLoss,
  kReferenceKl,
  kReferenceTokens,
  kOldKl,
  kEntropy,
  kFirstPassTokens,
  kClippedTokens,
  kPolicyTokens,
  kMismatch,
  kMismatchTokens,
  kGradientNormActor,
  kGradientNormCritic,
  kPairs,
  kPairMargin,
  kAccuratePairs,
  kChosenReward,
  kRejectedReward,
  kEvalReward,
  kEvalSequences,
  kCount,
};

/// What one rank has to say about an iteration, or all ranks together.
struct Report {
  std::array<double, static_cast<std::size_t>(Sum::kCount)> sums{};
  double mismatch_max = 0.0;
  bool stop = false;           ///< a signal asked this rank to stop
  std::vector<double> task_s;  ///< seconds of each task of the schedule
  double iteration_s = 0.0;    ///< start to end of the rank's program; of all: the slowest
  std::string rollouts;        ///< JSONL lines

  double& operator[](Sum sum) { return sums[static_cast<std::size_t>(sum)]; }
  double operator[](Sum sum) const { return sums[static_cast<std::size_t>(sum)]; }
};

Bytes encode_report(const Report& report);
Report decode_report(const Bytes& message);

/// Adds another rank's report: sums add, times and maxima take the larger, rollouts append.
void merge_report(Report& total, const Report& part);

/// The metrics of an iteration from the report of all ranks.
IterationMetrics metrics_of(const Job& job, std::int64_t iteration, const Report& total);

/// One line of metrics.jsonl, NaN as null.
std::string metrics_line(const IterationMetrics& metrics);

}  // namespace rpeg
