#pragma once

#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// "t_pi->g_pi".
std::string transfer_name(const Graph& graph, const WeightTransfer& transfer);

/// The task that an instruction's time belongs to: a vertex, or a weights transfer.
std::string task_of(const Job& job, const Instruction& instruction);

/// Names of all tasks: vertices, then weight transfers.
std::vector<std::string> task_names(const Job& job);

/// Predicted seconds of a task without its waiting, NaN when the plan carries no prediction.
double predicted_task_s(const Job& job, const std::string& task);

/// Median over all iterations but the first (over that too when it is the only one); NaN for none.
double counted_median(const std::vector<double>& by_iteration);

}  // namespace rpeg
