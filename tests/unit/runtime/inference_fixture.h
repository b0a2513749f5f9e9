#pragma once

/// Inference without the rest of a run, as training_fixture.h trains.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// What the inference vertices found out about each sequence of iteration 0, by vertex: numbers per
/// response token, or the score. Every leader holds the recorded rollouts of its sequences alone.
using InferenceOutcome = std::map<std::string, std::map<std::int64_t, std::vector<float>>>;
InferenceOutcome infer_on_threads(const Job& job);

/// The same of one sequence, in one piece on this thread. `vertex` is one of the job's.
std::vector<float> infer_alone(const Job& job, const std::string& vertex, std::int64_t sequence);

}  // namespace rpeg
