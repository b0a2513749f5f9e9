#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
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

/// How the lives of sequences that need a decode step end, by interval of their age.
struct Lives {
  /// From the oldest age to the newest: the share that ends in that interval of its life, and that
  /// share times the tokens at the interval's end. In the order in which cohorts lie.
  std::array<double, kGrid> ending{};
  std::array<double, kGrid> ending_tokens{};
  double interval = 0.0;       ///< tokens
  double decoded_share = 1.0;  ///< of all sequences; the others end with prefill's token
};

Lives lives_of(const WorkloadSpec& workload) {
  // Prefill makes the first token.
  const double longest = static_cast<double>(workload.generation_length) - 1.0;
  Lives lives;
  lives.interval = longest / kGrid;
  const std::vector<LengthPiece> pieces = length_pieces(workload, 1.0);
  lives.decoded_share = 1.0 - pieces.front().g0;
  std::size_t at = 0;
  double alive = 1.0;
  for (std::size_t age = 0; age < kGrid; ++age) {
    const double tokens = 1.0 + static_cast<double>(age + 1) * lives.interval;
    while (at + 1 < pieces.size() && pieces[at].t1 <= tokens) ++at;
    const bool last = age + 1 == kGrid;
    const double next = last ? 0.0 : (1.0 - pieces[at].at(tokens)) / lives.decoded_share;
    lives.ending[kGrid - 1 - age] = alive - next;
    lives.ending_tokens[kGrid - 1 - age] =
        (alive - next) * static_cast<double>(age + 1) * lives.interval;
    alive = next;
  }
  return lives;
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
    sum_ = sum_ + (share * steps) * decode_step(rates_, batch_.micro_batches, live, context) +
           (-share * all_gone_steps(steps, a, b)) * empty_;
  }

  /// Sequences that end at the start, without a step.
  void skip(double ended) { ended_ += ended; }

  const DecodeStep& sum() const { return sum_; }

 private:
  double share_inside(double ended) const {
    if (ended <= 0.0) return lo_ <= ended_ && ended_ < hi_ ? 1.0 : 0.0;
    return std::max(0.0, std::min(hi_, ended_ + ended) - std::max(lo_, ended_)) / ended;
  }

  /// Of `steps` steps those that are not taken, because all sequences of all replicas have ended.
  double all_gone_steps(double steps, const Population& a, const Population& b) const {
    const double everywhere = slots_ * batch_.all_batches / batch_.sequences;
    const auto gone = [this](double live) { return std::clamp(1.0 - live / slots_, 0.0, 1.0); };
    const bool negligible = gone(b.live) < 0.5 && everywhere > 60.0;  // 2^-60 of a step
    return negligible ? 0.0
                      : all_ended_tokens({0.0, steps, gone(a.live), gone(b.live)}, everywhere);
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

/// Sequences by the time at which they started, and how many of them live.
class Cohorts {
 public:
  Cohorts(const Lives& lives, double slots) : lives_(lives), now_{slots, 0.0} {
    started_.assign(kGrid - 1, 0.0);  // nobody is older
    started_.push_back(slots);
  }

  const Population& population() const { return now_; }
  std::size_t intervals() const { return started_.size() - kGrid; }

  /// Lets an interval pass in which the sequences that end are replaced from the queue: half of the
  /// new ones start at its beginning, half at its end. Returns how many start and how many end.
  struct Change {
    double started = 0.0;
    double ended = 0.0;
  };
  Change advance(double queue) {
    const auto [ending, ending_tokens] = ending_now();
    // Half of those that start may end in the same interval.
    const double newest = lives_.ending.back();
    Change change;
    change.started = std::min(queue, ending / (1.0 - 0.5 * newest));
    const double half = 0.5 * change.started;
    change.ended = ending + half * newest;
    now_.tokens +=
        (now_.live + half) * lives_.interval - ending_tokens - half * lives_.ending_tokens.back();
    now_.live += change.started - change.ended;
    now_ = {std::max(0.0, now_.live), std::max(0.0, now_.tokens)};
    started_.back() += half;
    started_.push_back(half);
    return change;
  }

 private:
  /// Of those that live now: how many end in the coming interval, and their tokens then. Four sums
  /// side by side, because a sum of doubles must keep its order.
  std::pair<double, double> ending_now() const {
    const double* cohort = started_.data() + intervals();
    std::array<double, 4> count{};
    std::array<double, 4> tokens{};
    for (std::size_t k = 0; k < kGrid; k += 4) {
      for (std::size_t lane = 0; lane < 4; ++lane) {
        count[lane] += cohort[k + lane] * lives_.ending[k + lane];
        tokens[lane] += cohort[k + lane] * lives_.ending_tokens[k + lane];
      }
    }
    return {(count[0] + count[1]) + (count[2] + count[3]),
            (tokens[0] + tokens[1]) + (tokens[2] + tokens[3])};
  }

  const Lives& lives_;
  Population now_;
  std::vector<double> started_;  ///< by grid time, preceded by the ages before the start
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
  const Lives lives = lives_of(workload);
  // Counted are sequences that decode; each start also ends some that prefill has finished.
  const double decoded = batch.sequences * lives.decoded_share;
  const double first = std::min(slots, decoded);
  const double at_once = (1.0 - lives.decoded_share) / lives.decoded_share;
  double queue = decoded - first;
  PartSum sum(rates, batch, first, part);
  sum.skip(first * at_once);
  Cohorts cohorts(lives, first);
  std::size_t drained = 0;  // intervals since the queue ran empty
  Window window;
  while (drained < kGrid) {
    if (queue <= 0.0) ++drained;
    const Population before = cohorts.population();
    const Cohorts::Change change = cohorts.advance(queue);
    queue -= change.started;
    sum.add(lives.interval, before, cohorts.population(), change.ended + change.started * at_once);
    window.add(cohorts.population(), change.started);
    if (cohorts.intervals() % kGrid != 0) continue;
    const bool strides =
        queue > window.starts && (window.is_settled() || cohorts.intervals() >= kPatience * kGrid);
    if (strides) {
      const double intervals = std::floor(queue / window.starts);
      const double worked_off = intervals * window.starts;
      sum.add(intervals * lives.interval, window.mean, window.mean, worked_off * (1.0 + at_once));
      queue -= worked_off;
    }
    window = {};
  }
  return sum.sum();
}

}  // namespace rpeg
