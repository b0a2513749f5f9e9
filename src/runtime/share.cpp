#include "runtime/share.h"

#include "runtime/message.h"

namespace rpeg {
std::vector<std::int64_t> share_sequences(RankContext& context,
                                          VertexId vertex,
                                          std::int64_t iteration,
                                          const std::vector<std::int64_t>& sequences,
                                          std::span<const Payload> payloads) {
  const BlockGroups& groups = context.groups_of(vertex);
  Comm& replica = *groups.replica;
  if (replica.size() == 1) {
    return sequences;
  }
  IterationData& data = context.data[iteration];
  Bytes message;
  if (groups.is_leader()) {
    append_bytes(message, std::span<const std::int64_t>(sequences));
  }
  replica.broadcast(message, 0);
  const auto shared =
      MessageReader(message).take_vector<std::int64_t>(message.size() / sizeof(std::int64_t));
  for (const Payload payload : payloads) {
    if (groups.is_leader()) {
      message = encode_payload(data, payload, shared);
    }
    replica.broadcast(message, 0);
    if (!groups.is_leader()) {
      decode_payload(message, payload, data);
    }
  }
  return shared;
}

}  // namespace rpeg
