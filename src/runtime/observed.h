#pragma once

#include <string>

#include "rpeg/job/job.h"
#include "rpeg/profile/observed.h"
#include "rpeg/trace/analysis.h"
#include "rpeg/yaml/writer.h"

namespace rpeg {

/// How much longer than predicted the tasks of each class and tier took: Σ measured / Σ predicted
/// over tasks and iterations (without the first, unless it is the only one), and the deviation of
/// single ones from that, weighted alike. Tasks without a prediction do not count.
ObservedFactors observed_factors(const Job& job, const TraceAnalysis& measured);

/// Text of observed.yaml (docs/yaml/observed.md), "" when nothing was predicted.
std::string observed_text(const Job& job,
                          const TraceAnalysis& measured,
                          const Provenance& provenance);

}  // namespace rpeg
