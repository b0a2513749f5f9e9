#pragma once

#include <string>
#include <vector>

#include "rpeg/job/job.h"

namespace rpeg {

/// The tasks of a job are the vertices of its graph and its weight transfers, by the names that the
/// schedule and the predictions of a plan use.

/// "t_pi->g_pi".
std::string transfer_name(const Graph& graph, const WeightTransfer& transfer);

/// The task that an instruction works for: that of its weights transfer, or its vertex.
std::string task_of(const Job& job, const Instruction& instruction);

/// Names of all tasks: vertices, then weight transfers.
std::vector<std::string> task_names(const Job& job);

/// Whether a rank that leads a replica of the instruction's vertex records in the trace which
/// sequences the instruction was about, and their lengths: in generation, and in a job without it
/// (offline DPO) in the reference's inference.
bool records_sequences(const Job& job, const Instruction& instruction);

/// Predicted seconds of a task, without the waiting for its inputs; NaN when the plan carries none.
double predicted_task_s(const Job& job, const std::string& task);

}  // namespace rpeg
