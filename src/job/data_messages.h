#pragma once

#include <vector>

#include "job/layout.h"

namespace rpeg {

/// A data message: what `from` produced and `to` needs.
struct DataMessage {
  VertexId producer{};
  VertexId consumer{};
  int from = 0;
  int to = 0;
  int tag = 0;
  Payload payload = Payload::kRollout;
  ReplicaWork work;        ///< see Instruction
  std::int64_t delta = 0;  ///< iterations between sending and receiving
};

/// The data messages of an iteration between leaders, in the order in which their consumers run
/// (`order`: that of an iteration), and the empty ones that keep the order of edges without data.
/// What a rank has already, computed or received for another vertex, is not sent to it again.
std::vector<DataMessage> find_data_messages(const Job& job, const std::vector<VertexId>& order);

/// Bytes of a data instruction's message when every sequence has full length.
std::int64_t data_capacity_bytes(const Job& job, const Instruction& instruction);

}  // namespace rpeg
