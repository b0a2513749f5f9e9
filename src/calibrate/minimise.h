#pragma once

#include <functional>
#include <vector>

namespace rpeg {

using Objective = std::function<double(const std::vector<double>&)>;

/// The point with the least value that the downhill simplex (Nelder and Mead, 1965) reaches from
/// `start` with first edges of length `edge`, restarted from where it ended until a restart gains
/// less than one in a million, or 1e-8. Needs no derivatives, which a mean of absolute errors
/// lacks.
std::vector<double> minimise(const Objective& objective, std::vector<double> start, double edge);

}  // namespace rpeg
