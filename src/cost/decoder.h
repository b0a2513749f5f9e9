#pragma once

#include "cost/vertex_rates.h"

// Decode steps of one replica, and their sum over the lengths of responses.

namespace rpeg {

/// One decode step. `busy` is the slowest stage's own work, `total_s` what a token of every live
/// sequence costs.
struct DecodeStep {
  Seconds busy;
  double total_s = 0.0;
};
inline DecodeStep operator+(DecodeStep a, DecodeStep b) {
  return {a.busy + b.busy, a.total_s + b.total_s};
}
inline DecodeStep operator*(double k, DecodeStep a) { return {k * a.busy, k * a.total_s}; }
inline DecodeStep operator*(DecodeStep a, double k) { return k * a; }

/// The step with `live` sequences in `micro_batches` and `context` tokens in their caches. With
/// live = 0: the part of a step that does not depend on how many are alive.
DecodeStep decode_step(const VertexRates& rates, double micro_batches, double live, double context);

/// A replica's sequences.
struct ReplicaBatch {
  double sequences = 0.0;
  double micro_batches = 1.0;
  double prompt = 0.0;       ///< tokens of a prompt
  double all_batches = 0.0;  ///< sequences of all replicas
};

/// Steps while the sequences, all started together, pass through a piece of the length
/// distribution. Exact: the integral is split where a `max` changes sides, and quadratic in
/// between. A step is taken only while some sequence of the whole batch is alive, so that the fixed
/// part of steps counts E[max length] times.
DecodeStep decode_together(const VertexRates& rates,
                           const ReplicaBatch& batch,
                           const LengthPiece& piece);

/// Steps between the ends of a share `first` and of a share `last` of the sequences when at most
/// `slots` < batch.sequences are alive at once and the next one starts when one ends: the fluid
/// limit (slot_limited.cpp).
DecodeStep decode_in_slots(const VertexRates& rates,
                           const ReplicaBatch& batch,
                           double slots,
                           const PartLengths& part,
                           const WorkloadSpec& workload);

}  // namespace rpeg
