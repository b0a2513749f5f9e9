#include "job/held_data.h"

#include <algorithm>
#include <set>

namespace rpeg {

std::optional<ReplicaWork> missing_data(const HeldData& held, ReplicaWork wanted) {
  if (wanted.slots.empty()) {
    wanted.sequences = subtract(wanted.sequences, held.sequences);
    return wanted.sequences.empty() ? std::nullopt : std::optional(std::move(wanted));
  }
  wanted.slots = subtract(wanted.slots, held.slots);
  if (wanted.slots.empty()) {
    return std::nullopt;
  }
  if (wanted.sequences.empty()) {  // all that are in the slots
    return wanted;
  }
  for (const ReplicaWork& part : held.parts) {
    if (subtract(wanted.slots, part.slots).empty()) {
      wanted.sequences = subtract(wanted.sequences, part.sequences);
    }
  }
  return wanted.sequences.empty() ? std::nullopt : std::optional(std::move(wanted));
}

void add_data(HeldData* held, const ReplicaWork& work) {
  if (work.slots.empty()) {
    held->sequences = unite(held->sequences, work.sequences);
  } else if (work.sequences.empty()) {
    held->slots = unite(held->slots, work.slots);
  } else {
    held->parts.push_back(work);
  }
}

bool covers(const HeldData& held, const ReplicaWork& wanted) {
  if (wanted.slots.empty()) {
    return subtract(wanted.sequences, held.sequences).empty();
  }
  const SequenceList slots = subtract(wanted.slots, held.slots);
  if (wanted.sequences.empty()) {  // all that are in the slots
    return slots.empty();
  }
  // Between two neighbouring bounds all slots are in the same parts.
  std::set<std::int64_t> bounds;
  for (const ReplicaWork& part : held.parts) {
    for (const SequenceRange& range : intersect(slots, part.slots)) {
      bounds.insert({range.first, range.last});
    }
  }
  for (const SequenceRange& range : slots) {
    bounds.insert({range.first, range.last});
    for (auto at = bounds.lower_bound(range.first); *at != range.last; ++at) {
      const SequenceList piece{{*at, *std::next(at)}};
      SequenceList rest = wanted.sequences;
      for (const ReplicaWork& part : held.parts) {
        if (!intersect(piece, part.slots).empty()) {
          rest = subtract(rest, part.sequences);
        }
      }
      if (!rest.empty()) {
        return false;
      }
    }
  }
  return true;
}

bool overlaps(const HeldData& held, const ReplicaWork& work) {
  if (work.slots.empty()) {
    return !intersect(held.sequences, work.sequences).empty();
  }
  if (!intersect(held.slots, work.slots).empty()) {
    return true;
  }
  return std::any_of(held.parts.begin(), held.parts.end(), [&](const ReplicaWork& part) {
    return !intersect(part.sequences, work.sequences).empty() &&
           !intersect(part.slots, work.slots).empty();
  });
}

}  // namespace rpeg
