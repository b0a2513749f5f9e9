#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "cost/decoder.h"

// Decoding when the KV cache holds fewer sequences than a replica has. In the fluid limit (numbers
// of sequences are real numbers) the starts of new sequences solve the renewal equation of the
// response length; it is solved on a grid of times by the trapezoidal rule.

namespace rpeg {
namespace {

constexpr std::size_t kGrid = 64;  ///< intervals of the longest response
/// A queue is worked off in one stride once the starts of an interval differ from their mean over a
/// longest response by no more than this share …
constexpr double kSettled = 0.05;
/// … or after so many longest responses: nearly equal lengths keep running in waves.
constexpr std::size_t kPatience = 16;

/// share[k]: of the sequences that need a decode step, those that still run after k intervals.
struct Survival {
  std::array<double, kGrid + 1> share{};
  double interval = 0.0;       ///< tokens
  double decoded_share = 1.0;  ///< of all sequences; the others end with prefill's token
};

Survival survival_of(const WorkloadSpec& workload) {
  // Prefill makes the first token.
  const double longest = static_cast<double>(workload.generation_length) - 1.0;
  Survival survival;
  survival.interval = longest / kGrid;
  const std::vector<LengthPiece> pieces = length_pieces(workload, 1.0);
  survival.decoded_share = 1.0 - pieces.front().g0;
  std::size_t at = 0;
  for (std::size_t k = 0; k < kGrid; ++k) {
    const double tokens = 1.0 + static_cast<double>(k) * survival.interval;
    while (at + 1 < pieces.size() && pieces[at].t1 <= tokens) ++at;
    survival.share[k] = (1.0 - pieces[at].at(tokens)) / survival.decoded_share;
  }
  return survival;
}

/// The live sequences of a replica at one time.
struct Population {
  double live = 0.0;
  double tokens = 0.0;  ///< decoded tokens of the live sequences
};

/// Collects the steps that fall into a part of the ends of sequences.
class PartSum {
 public:
  PartSum(const VertexRates& rates, const ReplicaBatch& batch, double slots, const PartLengths& p)
      : rates_(rates),
        batch_(batch),
        slots_(slots),
        lo_(p.share_first > 0.0 ? p.share_first * batch.sequences
                                : -std::numeric_limits<double>::infinity()),
        hi_(p.share_last < 1.0 ? p.share_last * batch.sequences
                               : std::numeric_limits<double>::infinity()),
        empty_(decode_step(rates, batch.micro_batches, 0.0, 0.0)) {}

  /// `steps` steps between two populations, in which `ended` sequences end.
  void add(double steps, const Population& a, const Population& b, double ended) {
    const double share = share_inside(ended);
    ended_ += ended;
    if (share <= 0.0) return;
    const double live = 0.5 * (a.live + b.live);
    const double context = live * (batch_.prompt + 0.5) + 0.5 * (a.tokens + b.tokens);
    // No step is taken once all sequences of all replicas have ended.
    const double everywhere = slots_ * batch_.all_batches / batch_.sequences;
    // Rounding may take the live above the slots, and a negative base has no fractional power.
    const auto ended_share = [this](double running) {
      return std::max(0.0, 1.0 - running / slots_);
    };
    const LengthPiece gone{0.0, steps, ended_share(a.live), ended_share(b.live)};
    sum_ = sum_ + (share * steps) * decode_step(rates_, batch_.micro_batches, live, context) +
           (-share * all_ended_tokens(gone, everywhere)) * empty_;
  }

  /// Sequences that end at the start, without a step.
  void skip(double ended) { ended_ += ended; }

  const DecodeStep& sum() const { return sum_; }

 private:
  double share_inside(double ended) const {
    if (ended <= 0.0) return lo_ <= ended_ && ended_ < hi_ ? 1.0 : 0.0;
    return std::max(0.0, std::min(hi_, ended_ + ended) - std::max(lo_, ended_)) / ended;
  }

  const VertexRates& rates_;
  const ReplicaBatch& batch_;
  double slots_;
  double lo_;
  double hi_;
  DecodeStep empty_;
  DecodeStep sum_;
  double ended_ = 0.0;
};

/// Sequences by the time at which they started, `started[j]` at grid time j.
class Cohorts {
 public:
  Cohorts(const Survival& survival, double slots) : survival_(survival), started_{slots} {}

  /// Those of before now that end in the coming interval.
  double ending() const {
    double sum = 0.0;
    for_ages([&](double count, std::size_t age) {
      sum += count * (survival_.share[age] - survival_.share[age + 1]);
    });
    return sum;
  }

  Population population() const {
    Population p;
    for_ages([&](double count, std::size_t age) {
      const double live = count * survival_.share[age];
      p.live += live;
      p.tokens += live * static_cast<double>(age) * survival_.interval;
    });
    return p;
  }

  /// Lets an interval pass in which `count` sequences start: half now, half at its end.
  void advance(double count) {
    started_.back() += 0.5 * count;
    started_.push_back(0.5 * count);
  }

  std::size_t intervals() const { return started_.size() - 1; }

 private:
  template <typename F>
  void for_ages(F f) const {
    const std::size_t now = started_.size() - 1;
    for (std::size_t age = 0; age < kGrid && age <= now; ++age) f(started_[now - age], age);
  }

  const Survival& survival_;
  std::vector<double> started_;
};

/// Means over one longest response, to see whether the mix of ages has settled.
struct Window {
  Population mean;
  double starts = 0.0;  ///< per interval
  double least = std::numeric_limits<double>::infinity();
  double most = 0.0;

  void add(const Population& now, double started) {
    mean.live += now.live / kGrid;
    mean.tokens += now.tokens / kGrid;
    starts += started / kGrid;
    least = std::min(least, started);
    most = std::max(most, started);
  }
  bool is_settled() const {
    return most <= starts * (1.0 + kSettled) && least >= starts * (1.0 - kSettled);
  }
};

/// Without gen_quantiles all responses are equally long: waves of `slots` sequences.
DecodeStep decode_in_waves(const VertexRates& rates,
                           const ReplicaBatch& batch,
                           double slots,
                           const WorkloadSpec& workload) {
  const double waves = std::floor(batch.sequences / slots);
  DecodeStep sum;
  for (const LengthPiece& piece : length_pieces(workload, 1.0)) {
    ReplicaBatch wave = batch;
    wave.sequences = slots;
    sum = sum + waves * decode_together(rates, wave, piece);
    wave.sequences = batch.sequences - waves * slots;
    if (wave.sequences > 0.0) sum = sum + decode_together(rates, wave, piece);
  }
  return sum;
}

}  // namespace

DecodeStep decode_in_slots(const VertexRates& rates,
                           const ReplicaBatch& batch,
                           double slots,
                           const PartLengths& part,
                           const WorkloadSpec& workload) {
  if (workload.gen_quantiles.empty()) return decode_in_waves(rates, batch, slots, workload);
  if (workload.generation_length <= 1) return {};
  const Survival survival = survival_of(workload);
  // Counted are sequences that decode; each start also ends some that prefill has finished.
  const double decoded = batch.sequences * survival.decoded_share;
  const double first = std::min(slots, decoded);
  const double at_once = (1.0 - survival.decoded_share) / survival.decoded_share;
  const double newest_end = survival.share[0] - survival.share[1];
  double queue = decoded - first;
  PartSum sum(rates, batch, first, part);
  sum.skip(first * at_once);
  Cohorts cohorts(survival, first);
  Population now = cohorts.population();
  std::size_t drained = 0;  // intervals since the queue ran empty
  Window window;
  while (drained < kGrid) {
    const double ending = cohorts.ending();
    // Those that start in this interval may end in it: half of them see all of it.
    const double started = std::min(queue, ending / (1.0 - 0.5 * newest_end));
    const double ended = ending + 0.5 * started * newest_end;
    if (queue <= 0.0) ++drained;
    queue -= started;
    cohorts.advance(started);
    const Population next = cohorts.population();
    sum.add(survival.interval, now, next, ended + started * at_once);
    now = next;
    window.add(now, started);
    if (cohorts.intervals() % kGrid != 0) continue;
    const bool strides =
        queue > window.starts && (window.is_settled() || cohorts.intervals() >= kPatience * kGrid);
    if (strides) {
      const double intervals = std::floor(queue / window.starts);
      const double worked_off = intervals * window.starts;
      sum.add(
          intervals * survival.interval, window.mean, window.mean, worked_off * (1.0 + at_once));
      queue -= worked_off;
    }
    window = {};
  }
  return sum.sum();
}

}  // namespace rpeg
