#include <algorithm>

#include "cost/decoder.h"
#include "cost/lengths.h"
#include "cost/vertex_rates.h"

namespace rpeg {
namespace {

/// The prompts of a replica, in micro-batches of at most one prefill call. Their last rows make the
/// first token of every response.
TaskTime prefill_time(const Vertex& vertex,
                      const VertexPlan& plan,
                      std::int64_t sequences,
                      const WorkloadConfig& config,
                      const HardwareProfile& profile) {
  const double prompt = static_cast<double>(config.workload.context_length);
  const std::int64_t calls =
      std::max(plan.micro_batches, ceil_divide(sequences, prefill_call_prompts(config.workload)));
  const MicroBatches batches = cut_micro_batches(sequences, calls);
  const CallShape prompts{1.0, prompt, 0.5 * prompt * (prompt + 1.0), 1.0};
  return forward_pipeline(
      vertex_rates(vertex, plan, config, profile, prompt * batches.large_units), prompts, batches);
}

}  // namespace

TaskTime generation_time(const Vertex& vertex,
                         const VertexPlan& plan,
                         const ResponsePart& part,
                         std::int64_t slots,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile) {
  const WorkloadSpec& workload = config.workload;
  const std::int64_t sequences = replica_batch(plan, config);
  const PartLengths lengths = part_lengths(part, workload);
  const double live = static_cast<double>(std::min(slots, sequences));
  const ReplicaBatch batch{.sequences = static_cast<double>(sequences),
                           .micro_batches = static_cast<double>(plan.micro_batches),
                           .prompt = static_cast<double>(workload.context_length),
                           .all_batches = static_cast<double>(workload.sequences())};
  const VertexRates rates =
      vertex_rates(vertex,
                   plan,
                   config,
                   profile,
                   static_cast<double>(ceil_divide(std::min(slots, sequences), plan.micro_batches)),
                   CallKind::kDecodeStep);
  DecodeStep decode;
  if (slots < sequences) {
    decode = decode_in_slots(rates, batch, live, lengths, workload);
  } else {
    // Prefill has made the first token: decoding begins behind it.
    const double from = std::max(1.0, lengths.tokens_first);
    for (const LengthPiece& piece : length_pieces(workload, from, lengths.tokens_last)) {
      decode = decode + decode_together(rates, batch, piece);
    }
  }
  TaskTime time;
  if (part.first == 0) time = prefill_time(vertex, plan, sequences, config, profile);
  time.compute_s += decode.busy.compute;
  time.comm_s += decode.busy.comm;
  time.bubble_s += std::max(0.0, decode.total_s - decode.busy.total());
  return with_total(time);
}

}  // namespace rpeg
