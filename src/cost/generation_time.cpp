#include <algorithm>
#include <array>
#include <cmath>

#include "cost/lengths.h"
#include "cost/network.h"
#include "cost/vertex_rates.h"

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

/// One decode step of a replica. `busy` is the slowest stage's own work, `total_s` what a token of
/// every sequence costs.
struct Step {
  Seconds busy;
  double total_s = 0.0;
};
Step operator+(Step a, Step b) { return {a.busy + b.busy, a.total_s + b.total_s}; }
Step operator*(double k, Step a) { return {k * a.busy, k * a.total_s}; }
Step operator*(Step a, double k) { return k * a; }

/// The formulas of which a step takes the largest: all micro-batches on a stage without the head,
/// on the last stage, or one micro-batch around the ring.
using Branches = std::array<double, 3>;

/// Decoding on one replica as a function of time t, counted in tokens of the response.
class Decoder {
 public:
  Decoder(const VertexRates& rates, double sequences, double micro_batches, double prompt)
      : rates_(rates), sequences_(sequences), micro_batches_(micro_batches), prompt_(prompt) {}

  /// The step when a share `ended` of the sequences has ended, t tokens into the response.
  Step step(double ended, double t) const {
    const double live = sequences_ * (1.0 - ended);
    return step_of(live, live * (prompt_ + t - 0.5));
  }

  /// The part of a step that does not depend on how many sequences are alive.
  Step empty_step() const { return step_of(0.0, 0.0); }

  /// ∫ step over a piece of the length distribution, exact: split where a `max` changes sides, and
  /// quadratic in between.
  Step integrate(const LengthPiece& piece) const {
    SplitPoints kinks(piece.t0, piece.t1);
    const double fall = sequences_ * (piece.g1 - piece.g0) / piece.width();  // sequences per token
    if (fall > 0.0) {
      for (const GemmTime* gemm : {&rates_.linear, &rates_.head}) {
        const double live = gemm->switch_rows() * micro_batches_;
        kinks.add(piece.t0 + (sequences_ * (1.0 - piece.g0) - live) / fall);
      }
    }
    Step sum;
    const std::vector<double>& t = kinks.sorted();
    for (std::size_t i = 0; i + 1 < t.size(); ++i) {
      sum = sum + integrate_smooth(piece, t[i], t[i + 1]);
    }
    return sum;
  }

 private:
  /// One micro-batch of `live` sequences with `context` tokens through one layer.
  Seconds layer(double live, double context) const {
    return {.compute = rates_.linear.at(live) + rates_.kv_token_s * context + rates_.non_gemm_s +
                       (rates_.non_gemm_token_s + rates_.non_gemm_sequence_s) * live +
                       rates_.host_layer_s,
            .comm = 2.0 * seconds(rates_.all_reduce, live)};
  }

  struct Stages {
    Seconds first;
    Seconds last;
    double ring_s = 0.0;
  };

  Stages stages(double live, double context) const {
    const double rows = live / micro_batches_;
    const Seconds one_layer = layer(rows, context / micro_batches_);
    const Seconds head{forward_head(rates_, rows), 0.0};
    const Seconds host{rates_.host_step_s, 0.0};
    const int pp = rates_.parallelism.pp;
    Stages s;
    s.last = micro_batches_ * (rates_.last_layers * one_layer + head + host);
    if (pp > 1) {
      s.first = micro_batches_ * (rates_.first_layers * one_layer + host);
      s.ring_s =
          (rates_.layers * one_layer + head + pp * host).total() + pp * seconds(rates_.send, rows);
    }
    return s;
  }

  Step step_of(double live, double context) const {
    const Stages s = stages(live, context);
    const Seconds slowest = s.first.total() > s.last.total() ? s.first : s.last;
    return {slowest, std::max(slowest.total(), s.ring_s)};
  }

  Branches branches(const LengthPiece& piece, double t) const {
    const double live = sequences_ * (1.0 - piece.at(t));
    const Stages s = stages(live, live * (prompt_ + t - 0.5));
    return {s.first.total(), s.last.total(), s.ring_s};
  }

  Step integrate_smooth(const LengthPiece& piece, double lo, double hi) const {
    SplitPoints crossings(lo, hi);
    if (rates_.parallelism.pp > 1) add_crossings(piece, lo, hi, &crossings);
    Step sum;
    const std::vector<double>& t = crossings.sorted();
    for (std::size_t i = 0; i + 1 < t.size(); ++i) {
      sum = sum + simpson(t[i], t[i + 1], [&](double at) { return step(piece.at(at), at); });
    }
    return sum;
  }

  /// Adds where two branches, quadratic on [lo, hi], are equal.
  void add_crossings(const LengthPiece& piece, double lo, double hi, SplitPoints* points) const {
    const Branches at_lo = branches(piece, lo);
    const Branches at_mid = branches(piece, 0.5 * (lo + hi));
    const Branches at_hi = branches(piece, hi);
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
  double sequences_;
  double micro_batches_;
  double prompt_;
};

}  // namespace

TaskTime generation_time(const Vertex& vertex,
                         const VertexPlan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile) {
  const WorkloadSpec& workload = config.workload;
  const int dp = plan.parallelism.dp;
  const std::int64_t sequences = (workload.sequences() + dp - 1) / dp;
  const double prompt = static_cast<double>(workload.context_length);
  const MicroBatches batches = cut_micro_batches(sequences, plan.micro_batches);

  const CallShape prompts{1.0, prompt, 0.5 * prompt * (prompt + 1.0), 1.0};
  const TaskTime prefill = forward_pipeline(
      vertex_rates(vertex, plan, config, profile, prompt * batches.large_units), prompts, batches);

  // Prefill has made the first token: decoding begins behind it.
  const VertexRates rates = vertex_rates(vertex, plan, config, profile, batches.large_units);
  const Decoder decoder(
      rates, static_cast<double>(sequences), static_cast<double>(plan.micro_batches), prompt);
  Step decode;
  double all_ended = 0.0;
  for (const LengthPiece& piece : length_pieces(workload, 1.0)) {
    decode = decode + decoder.integrate(piece);
    all_ended += all_ended_tokens(piece, static_cast<double>(workload.sequences()));
  }
  // A step is taken only while some sequence of the whole batch is alive, so that its fixed part
  // counts E[max length] times, not generation_length times.
  decode = decode + (-all_ended) * decoder.empty_step();

  const double busy_s = decode.busy.total();
  TaskTime time;
  time.compute_s = prefill.compute_s + decode.busy.compute;
  time.comm_s = prefill.comm_s + decode.busy.comm;
  time.bubble_s = prefill.bubble_s + std::max(0.0, decode.total_s - busy_s);
  time.total_s = time.compute_s + time.comm_s + time.bubble_s;
  return time;
}

}  // namespace rpeg
