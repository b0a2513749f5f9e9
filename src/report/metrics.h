#pragma once

#include <string>

#include "rpeg/search/search.h"

namespace rpeg::report {

/// The metric table of a search: both baselines and the best plan.
std::string metrics_text(const SearchResult& result, const WorkloadConfig& config);
/// The same rows for one plan.
std::string metrics_text(const Evaluation& evaluation, const WorkloadConfig& config);
/// "NAME does not fit: …", or "" when it fits.
std::string memory_note(const char* name, const Evaluation& evaluation);

}  // namespace rpeg::report
