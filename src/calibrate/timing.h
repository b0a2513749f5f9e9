#pragma once

#include <functional>

#include "rpeg/comm/comm.h"

namespace rpeg {

/// Seconds of one call of `body`, undisturbed: after a warm-up, the lower decile over batches of
/// calls that together take about `budget_s`. A call slower than that is made three times at least,
/// or once when it takes several budgets.
double call_seconds(double budget_s, const std::function<void()>& body);

/// The same with all ranks of `comm` running at once; the mean over ranks, equal on all of them.
double call_seconds_together(Comm& comm, double budget_s, const std::function<void()>& body);

/// The same for a `body` that is itself collective: all ranks make equally many calls.
double collective_seconds(Comm& comm, double budget_s, const std::function<void()>& body);

/// Mean over ranks, equal on all of them.
double mean_over_ranks(Comm& comm, double value);

}  // namespace rpeg
