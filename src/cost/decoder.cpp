#include "cost/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cost/network.h"

namespace rpeg {
namespace {

/// Sorted, distinct points at which an integrand changes its formula; at most a dozen.
class SplitPoints {
 public:
  SplitPoints(double lo, double hi) : lo_(lo), hi_(hi) { points_ = {lo, hi}; }
  void add(double t) {
    if (t > lo_ && t < hi_) points_.push_back(t);
  }
  const std::vector<double>& sorted() {
    std::sort(points_.begin(), points_.end());
    return points_;
  }

 private:
  double lo_;
  double hi_;
  std::vector<double> points_;
};

/// The formulas of which a step takes the largest: all micro-batches on a stage without the head,
/// on the last stage, or one micro-batch around the ring.
using Branches = std::array<double, 3>;

/// One micro-batch of `live` sequences with `context` tokens through one layer.
Seconds decode_layer(const VertexRates& rates, double live, double context) {
  return {.compute = rates.linear.at(live) + rates.kv_token_s * context + rates.non_gemm_s +
                     (rates.non_gemm_token_s + rates.non_gemm_sequence_s) * live +
                     rates.host_layer_s,
          .comm = 2.0 * seconds(rates.all_reduce, live)};
}

struct Stages {
  Seconds first;
  Seconds last;
  double ring_s = 0.0;
};

Stages decode_stages(const VertexRates& rates, double micro_batches, double live, double context) {
  const double rows = live / micro_batches;
  const Seconds one_layer = decode_layer(rates, rows, context / micro_batches);
  const Seconds head{forward_head(rates, rows), 0.0};
  const Seconds host{rates.host_step_s, 0.0};
  const int pp = rates.parallelism.pp;
  Stages s;
  s.last = micro_batches * (rates.last_layers * one_layer + head + host);
  if (pp > 1) {
    s.first = micro_batches * (rates.first_layers * one_layer + host);
    s.ring_s =
        (rates.layers * one_layer + head + pp * host).total() + pp * seconds(rates.send, rows);
  }
  return s;
}

/// Decoding as a function of time t, counted in tokens of the response, inside one piece of the
/// length distribution.
class PieceIntegral {
 public:
  PieceIntegral(const VertexRates& rates, const ReplicaBatch& batch, const LengthPiece& piece)
      : rates_(rates), batch_(batch), piece_(piece) {}

  DecodeStep value() const {
    SplitPoints kinks(piece_.t0, piece_.t1);
    // Sequences that end per token.
    const double fall = batch_.sequences * (piece_.g1 - piece_.g0) / piece_.width();
    if (fall > 0.0) {
      for (const GemmTime* gemm : {&rates_.linear, &rates_.head}) {
        const double live = gemm->switch_rows() * batch_.micro_batches;
        kinks.add(piece_.t0 + (batch_.sequences * (1.0 - piece_.g0) - live) / fall);
      }
    }
    DecodeStep sum;
    const std::vector<double>& t = kinks.sorted();
    for (std::size_t i = 0; i + 1 < t.size(); ++i) {
      sum = sum + integrate_smooth(t[i], t[i + 1]);
    }
    return sum;
  }

 private:
  double live(double t) const { return batch_.sequences * (1.0 - piece_.at(t)); }
  /// Tokens in the cache. The half makes the integral equal to the loop over whole tokens.
  double context(double t) const { return live(t) * (batch_.prompt + t - 0.5); }

  DecodeStep step(double t) const {
    return decode_step(rates_, batch_.micro_batches, live(t), context(t));
  }

  Branches branches(double t) const {
    const Stages s = decode_stages(rates_, batch_.micro_batches, live(t), context(t));
    return {s.first.total(), s.last.total(), s.ring_s};
  }

  DecodeStep integrate_smooth(double lo, double hi) const {
    SplitPoints crossings(lo, hi);
    if (rates_.parallelism.pp > 1) add_crossings(lo, hi, &crossings);
    DecodeStep sum;
    const std::vector<double>& t = crossings.sorted();
    for (std::size_t i = 0; i + 1 < t.size(); ++i) {
      sum = sum + simpson(t[i], t[i + 1], [&](double at) { return step(at); });
    }
    return sum;
  }

  /// Adds where two branches, quadratic on [lo, hi], are equal.
  void add_crossings(double lo, double hi, SplitPoints* points) const {
    const Branches at_lo = branches(lo);
    const Branches at_mid = branches(0.5 * (lo + hi));
    const Branches at_hi = branches(hi);
    for (std::size_t a = 0; a < at_lo.size(); ++a) {
      for (std::size_t b = a + 1; b < at_lo.size(); ++b) {
        // The difference as c + bx + ax² on x in [0, 1].
        const double c = at_lo[a] - at_lo[b];
        const double middle = at_mid[a] - at_mid[b];
        const double end = at_hi[a] - at_hi[b];
        const double square = 2.0 * (c + end) - 4.0 * middle;
        const double linear = end - c - square;
        const double discriminant = linear * linear - 4.0 * square * c;
        if (discriminant < 0.0) continue;
        // The stable form of the roots; a division by zero gives a point outside, which is dropped.
        const double q = -0.5 * (linear + std::copysign(std::sqrt(discriminant), linear));
        points->add(lo + (hi - lo) * (q / square));
        points->add(lo + (hi - lo) * (c / q));
      }
    }
  }

  const VertexRates& rates_;
  const ReplicaBatch& batch_;
  const LengthPiece& piece_;
};

}  // namespace

DecodeStep decode_step(const VertexRates& rates,
                       double micro_batches,
                       double live,
                       double context) {
  const Stages s = decode_stages(rates, micro_batches, live, context);
  const Seconds slowest = s.first.total() > s.last.total() ? s.first : s.last;
  return {slowest, std::max(slowest.total(), s.ring_s)};
}

DecodeStep decode_together(const VertexRates& rates,
                           const ReplicaBatch& batch,
                           const LengthPiece& piece) {
  const DecodeStep empty = decode_step(rates, batch.micro_batches, 0.0, 0.0);
  return PieceIntegral(rates, batch, piece).value() +
         (-all_ended_tokens(piece, batch.all_batches)) * empty;
}

}  // namespace rpeg
