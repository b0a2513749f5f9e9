#include <algorithm>

#include "job/layout.h"
#include "rpeg/base/error.h"
#include "rpeg/job/job.h"

namespace rpeg {
namespace {

/// Appends a range, joined to the last one when they touch.
void append(std::vector<SequenceRange>* out, SequenceRange range) {
  if (range.first >= range.last) {
    return;
  }
  if (!out->empty() && out->back().last >= range.first) {
    out->back().last = std::max(out->back().last, range.last);
  } else {
    out->push_back(range);
  }
}

}  // namespace

std::int64_t job_sequences(const WorkloadConfig& inputs) {
  const bool offline =
      inputs.policy.algorithm == Algorithm::kDpo && inputs.policy.dpo_mode == DpoMode::kOffline;
  return offline ? 2 * inputs.workload.batch_size : inputs.workload.sequences();
}

std::int64_t unit_sequences(const Vertex& vertex, const WorkloadConfig& inputs) {
  return job_sequences(inputs) / batch_units(vertex, inputs);
}

SequenceRange minibatch_sequences(std::int64_t sequences,
                                  std::int64_t minibatches,
                                  std::int64_t j,
                                  std::int64_t unit) {
  check(minibatches >= 1 && j >= 0 && j < minibatches, "job: no such mini-batch");
  const std::int64_t units = sequences / unit;
  const std::int64_t size = units / minibatches;
  const std::int64_t larger = units % minibatches;
  const std::int64_t first = j * size + std::min(j, larger);
  return {first * unit, (first + size + (j < larger ? 1 : 0)) * unit};
}

std::vector<SequenceRange> owned_sequences(Op op,
                                           std::int64_t sequences,
                                           std::int64_t minibatches,
                                           int dp,
                                           int replica,
                                           std::int64_t unit) {
  const std::int64_t parts = is_training(op) ? minibatches : 1;
  std::vector<SequenceRange> owned;
  for (std::int64_t j = 0; j < parts; ++j) {
    const SequenceRange batch = minibatch_sequences(sequences, parts, j, unit);
    const auto [first, last] = replica_sequences((batch.last - batch.first) / unit, dp, replica);
    append(&owned, {batch.first + first * unit, batch.first + last * unit});
  }
  return owned;
}

std::vector<SequenceRange> intersect(const std::vector<SequenceRange>& a,
                                     const std::vector<SequenceRange>& b) {
  std::vector<SequenceRange> both;
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() && y != b.end()) {
    append(&both, {std::max(x->first, y->first), std::min(x->last, y->last)});
    if (x->last < y->last) {
      ++x;
    } else {
      ++y;
    }
  }
  return both;
}

std::vector<SequenceRange> subtract(const std::vector<SequenceRange>& a,
                                    const std::vector<SequenceRange>& b) {
  std::vector<SequenceRange> rest;
  auto hole = b.begin();
  for (SequenceRange range : a) {
    while (hole != b.end() && hole->last <= range.first) {
      ++hole;
    }
    for (auto it = hole; it != b.end() && it->first < range.last; ++it) {
      append(&rest, {range.first, it->first});
      range.first = std::max(range.first, it->last);
    }
    append(&rest, range);
  }
  return rest;
}

std::vector<SequenceRange> unite(const std::vector<SequenceRange>& a,
                                 const std::vector<SequenceRange>& b) {
  std::vector<SequenceRange> sorted(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), sorted.begin());
  std::vector<SequenceRange> all;
  for (const SequenceRange& range : sorted) {
    append(&all, range);
  }
  return all;
}

std::int64_t sequence_count(const std::vector<SequenceRange>& ranges) {
  std::int64_t count = 0;
  for (const SequenceRange& range : ranges) {
    count += range.last - range.first;
  }
  return count;
}

std::int64_t message_capacity_bytes(Payload payload,
                                    std::int64_t sequences,
                                    std::int64_t generation_length) {
  constexpr std::int64_t kIndex = 4;
  switch (payload) {
    case Payload::kRollout:  // length, stopped, and a token and a log-probability per position
      return sequences * (kIndex + 4 + 4 + 8 * generation_length);
    case Payload::kScore:
      return sequences * (kIndex + 8);
    case Payload::kValues:
    case Payload::kRefLogprobs:
    case Payload::kActorLogprobs:
      return sequences * (kIndex + 4 * generation_length);
  }
  return 0;
}

}  // namespace rpeg
