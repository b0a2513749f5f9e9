#pragma once

#include <optional>
#include <vector>

#include "job/layout.h"

namespace rpeg {

/// What a rank has of one payload of one vertex in one iteration.
struct HeldData {
  SequenceList sequences;          ///< of a vertex without cuts
  SequenceList slots;              ///< of a stage or chunk: all sequences in them
  std::vector<ReplicaWork> parts;  ///< of a stage or chunk: of these slots these sequences only
};

/// What of `wanted` is not there; nothing when all of it is. Parts count where they have all slots
/// that are left.
std::optional<ReplicaWork> missing_data(const HeldData& held, ReplicaWork wanted);
void add_data(HeldData* held, const ReplicaWork& work);

/// Whether the rank has every one of `wanted.sequences` that may be in any of `wanted.slots` (no
/// sequences: all that are in the slots; no slots: the sequences).
bool covers(const HeldData& held, const ReplicaWork& wanted);
/// Whether some of `work` is there already. All sequences of some slots may follow a part of them:
/// a chunk takes whole slots, whatever training has taken out of them.
bool overlaps(const HeldData& held, const ReplicaWork& work);

}  // namespace rpeg
