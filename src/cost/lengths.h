#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "rpeg/graph/graph.h"
#include "rpeg/spec/workload_config.h"

// The distribution of response lengths as straight pieces of its distribution function G.

namespace rpeg {

/// G rises linearly from `g0` at `t0` tokens to `g1` at `t1`; t0 < t1.
struct LengthPiece {
  double t0 = 0.0;
  double t1 = 0.0;
  double g0 = 0.0;
  double g1 = 0.0;

  double width() const { return t1 - t0; }
  double at(double t) const { return g0 + (g1 - g0) * (t - t0) / width(); }
};

/// The pieces between `from` and `to` tokens, up to generation_length, ascending. Without
/// gen_quantiles G is 0 up to generation_length, where it jumps to 1.
std::vector<LengthPiece> length_pieces(const WorkloadSpec& workload,
                                       double from,
                                       double to = std::numeric_limits<double>::infinity());

/// A part of the responses: those with more than `tokens_first` and at most `tokens_last` tokens,
/// which lie between the shares `share_first` and `share_last` of all. Mean and mean square of
/// their lengths (0 when the part is empty).
struct PartLengths {
  double tokens_first = 0.0;
  double tokens_last = 0.0;
  double share_first = 0.0;
  double share_last = 0.0;
  double mean = 0.0;
  double mean_square = 0.0;
};
PartLengths part_lengths(const ResponsePart& part, const WorkloadSpec& workload);

/// Of `units` sequences those that end in the part: ⌈share_last·units⌉ − ⌈share_first·units⌉, so
/// that the parts of a response add up.
std::int64_t units_in_part(const PartLengths& part, std::int64_t units);

/// ∫ Gⁿ dt over a piece: the expected tokens during which all of n sequences have ended already.
double all_ended_tokens(const LengthPiece& piece, double n);

/// ∫ f over [lo, hi] by Simpson's rule: exact for polynomials up to the third degree.
template <typename F>
auto simpson(double lo, double hi, F f) {
  return (f(lo) + 4.0 * f(0.5 * (lo + hi)) + f(hi)) * ((hi - lo) / 6.0);
}

}  // namespace rpeg
