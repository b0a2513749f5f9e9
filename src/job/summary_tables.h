#pragma once

#include <string>

#include "rpeg/job/job.h"

namespace rpeg {

// Parts of summary.md about the compiled job (see `job_summary`), as Markdown.

/// Which vertex runs where, how it is split, and its predicted seconds.
std::string vertex_table(const Job& job);
/// The ranks of each replica, stage and tensor-parallel group of each block.
std::string group_table(const Job& job);
/// The copies of the models' weights.
std::string copy_table(const Job& job);
/// Weights that move, beside the bytes that the cost model predicts, and data messages.
std::string transfer_text(const Job& job);
/// What every rank runs and how much memory it needs.
std::string rank_table(const Job& job);

}  // namespace rpeg
