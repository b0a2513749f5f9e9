#pragma once

#include <string>
#include <vector>

#include "rpeg/search/evaluation.h"

namespace rpeg::report {

/// Pieces that several reports share; each ends with a newline.

std::string title_bar(const std::string& title);
std::string heading(const std::string& text);
/// "  name          value", a long value broken into lines.
std::string entry(const std::string& name, const std::string& value);
/// Text broken into lines of at most the width of the title bar, each behind the indentation.
std::string paragraph(const std::string& text);

/// "1.23", and "0" below a nanosecond, where there is only rounding.
std::string seconds_text(double seconds);
/// How far a period is above a bound of it: "1.4%".
std::string gap_text(double period_s, double bound_s);

std::string structure_text(const Structure& structure, const WorkloadConfig& config);
/// The per-vertex table: `base -> now`, `*` for changed rows. A vertex that `base` lacks (the joint
/// training) is compared with the training of the actor.
std::string vertices_text(const Plan& base, const Plan& now, const WorkloadConfig& config);
/// Where the time of every task goes, in the order of the period.
std::string breakdown_text(const Evaluation& evaluation);
/// The tasks of the critical cycle in their order, from the one that comes first in the period.
std::vector<std::size_t> critical_tasks(const Evaluation& evaluation);
std::string critical_text(const Evaluation& evaluation);

}  // namespace rpeg::report
