#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// Checks tokenizer, prompts or preference pairs, and the reward command of a job whose models are
/// in order. Appends every fault to `faults` and every file read to `files`; throws kUsage for a
/// file that cannot be read.
void verify_texts(const Job& job,
                  std::vector<std::string>& faults,
                  std::set<std::filesystem::path>& files);

}  // namespace rpeg
