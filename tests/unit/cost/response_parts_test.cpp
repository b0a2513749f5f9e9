#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cost/decoder.h"
#include "rpeg/base/rng.h"
#include "unit/cost/example.h"

namespace rpeg {
namespace {

double part_s(const Vertex& vertex,
              const VertexPlan& plan,
              const ResponsePart& part,
              std::int64_t slots,
              const WorkloadConfig& config,
              const HardwareProfile& profile = example_profile()) {
  return price_part(vertex, plan, part, slots, config, profile).total_s;
}

std::vector<VertexPlan> plans() {
  return {plan_on(1, 4, {4, 1, 1}),
          plan_on(1, 4, {1, 4, 1}, 4),
          plan_on(1, 4, {1, 1, 4}),
          plan_on(2, 4, {2, 2, 2}, 3)};
}

TEST(GenerationParts, AddUpToTheWholeVertex) {
  const WorkloadConfig config = example_config();
  HardwareProfile profile = example_profile();
  profile.host_step_s = 1e-3;  // the expected longest length counts
  for (const VertexPlan& plan : plans()) {
    const std::int64_t all = replica_batch(plan, config);
    const double whole = price_vertex(generation(), plan, config, profile).total_s;
    for (const std::uint32_t cuts : {0U, 1U, 2U, 3U}) {
      double sum = 0.0;
      for (const ResponsePart& part : response_parts(cuts, config.workload)) {
        sum += part_s(generation(), plan, part, all, config, profile);
      }
      EXPECT_NEAR(sum / whole, 1.0, 1e-12) << "cuts " << cuts;
    }
  }
}

TEST(GenerationParts, AddUpWithLimitedSlotsToo) {
  const WorkloadConfig config = example_config();
  for (const VertexPlan& plan : plans()) {
    for (const std::int64_t slots : {3, 10, 15}) {
      const double whole =
          part_s(generation(), plan, whole_response(config.workload), slots, config);
      double sum = 0.0;
      for (const ResponsePart& part : response_parts(3, config.workload)) {
        const double seconds = part_s(generation(), plan, part, slots, config);
        EXPECT_GT(seconds, 0.0);
        sum += seconds;
      }
      EXPECT_NEAR(sum / whole, 1.0, 1e-9) << "slots " << slots;
    }
  }
}

TEST(GenerationParts, HaveThePrefillInTheFirst) {
  WorkloadConfig config = example_config();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const auto part = [&](std::int32_t first, std::int32_t last) {
    return part_s(generation(), plan, {first, last}, 64, config);
  };
  HardwareProfile slow = example_profile();
  const double first = part(0, 1);
  const double last = part(2, 3);
  // Attention FLOPs are prefill's alone: decoding reads the cache.
  slow.attention_eff = 0.25;
  EXPECT_GT(part_s(generation(), plan, {0, 1}, 64, config, slow), first);
  EXPECT_EQ(part_s(generation(), plan, {2, 3}, 64, config, slow), last);
}

TEST(InferenceParts, HoldTheSequencesThatEndInThem) {
  WorkloadConfig config = example_config();
  const std::vector<ResponsePart> parts = response_parts(3, config.workload);
  ASSERT_EQ(parts.size(), 3U);
  const auto units = [&](std::size_t i) {
    return units_in_part(part_lengths(parts[i], config.workload), 64);
  };
  // ⌈0.5 · 64⌉ = 32, ⌈0.85 · 64⌉ = 55, 64.
  EXPECT_EQ(units(0), 32);
  EXPECT_EQ(units(1), 23);
  EXPECT_EQ(units(2), 9);
  // Whole sequences: a chunk counts the prompt and the head of the response too. With costs in
  // proportion to tokens the chunks are the whole but for rounding of the numbers.
  HardwareProfile profile = example_profile();
  profile.gemm_m_half = 0.0;
  profile.non_gemm_constant = 0.0;
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  double sum = 0.0;
  for (const ResponsePart& part : parts) {
    sum += part_s(reference(), plan, part, 64, config, profile);
  }
  const double whole = price_vertex(reference(), plan, config, profile).total_s;
  const double mean = (32 * 64.0 + 23 * 192.0 + 9 * 384.0) / 64;
  EXPECT_NEAR(sum / whole, (128 + mean) / (128 + expected_length(config.workload)), 5e-3);
}

TEST(InferenceParts, PayTheirOwnPipelineAndUseNoMoreMicroBatchesThanUnits) {
  WorkloadConfig config = example_config();
  const VertexPlan plan = plan_on(1, 4, {1, 4, 1}, 16);
  double bubbles = 0.0;
  for (const ResponsePart& part : response_parts(3, config.workload)) {
    bubbles += price_part(reference(), plan, part, 64, config, example_profile()).bubble_s;
  }
  EXPECT_GT(bubbles, price_vertex(reference(), plan, config, example_profile()).bubble_s);
  // Nine sequences in the last part: as in nine micro-batches.
  const ResponsePart last{2, 3};
  const VertexPlan nine = plan_on(1, 4, {1, 4, 1}, 9);
  EXPECT_EQ(part_s(reference(), plan, last, 64, config),
            part_s(reference(), nine, last, 64, config));
  // A part in which nobody ends.
  config.workload.batch_size = 1;
  EXPECT_EQ(part_s(reference(), plan_on(1, 1, {1, 1, 1}), last, 1, config), 0.0);
}

TEST(PartMemory, FollowsTheLongestOfThePartAndTheSlots) {
  const WorkloadConfig config = example_config();
  const HardwareProfile profile = example_profile();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1}, 4);
  const MemoryUse whole = vertex_memory(reference(), plan, config, profile);
  // The first half of the sequences: 32 of at most 128 + 128 tokens against 64 of 640.
  const MemoryUse first = part_memory(reference(), plan, {0, 1}, 64, config, profile);
  EXPECT_DOUBLE_EQ(first.activations, whole.activations * 0.5 * 256 / 640);
  EXPECT_DOUBLE_EQ(first.logits, whole.logits * 0.5 * 128 / 512);
  EXPECT_DOUBLE_EQ(first.weights, whole.weights);

  const auto kv = [&](std::int64_t slots) {
    return part_memory(generation(), plan, {0, 3}, slots, config, profile).kv_cache;
  };
  EXPECT_EQ(kv(0), 0.0);
  EXPECT_DOUBLE_EQ(kv(1), kv_slot_bytes(plan, config));
  EXPECT_DOUBLE_EQ(kv(10), 10 * kv_slot_bytes(plan, config));
  EXPECT_EQ(kv(1000), kv(replica_batch(plan, config)));
  EXPECT_EQ(kv(64), vertex_memory(generation(), plan, config, profile).kv_cache);
}

/// Whole tokens, whole sequences: a queue, `slots` places, one decode step after another.
class Brute {
 public:
  Brute(const VertexRates& rates, std::vector<double> lengths, std::size_t slots, double prompt)
      : rates_(rates), lengths_(std::move(lengths)), slots_(slots), prompt_(prompt) {}

  /// Seconds until `target` sequences have ended, prefill left out.
  double decode_s(std::size_t target) const {
    std::vector<std::pair<double, double>> live;  // tokens so far, length
    std::size_t next = 0;
    std::size_t ended = 0;
    double time_s = 0.0;
    while (ended < target) {
      for (; live.size() < slots_ && next < lengths_.size(); ++next) {
        live.push_back({1.0, std::round(lengths_[next])});  // prefill has made one
        if (live.back().second > 1.0) continue;
        live.pop_back();
        ++ended;
      }
      double context = 0.0;
      for (const auto& [tokens, length] : live) context += prompt_ + tokens;
      time_s += decode_step(rates_, 1.0, static_cast<double>(live.size()), context).total_s;
      for (auto& [tokens, length] : live) tokens += 1.0;
      const auto done = [](const std::pair<double, double>& s) { return s.first >= s.second; };
      ended += static_cast<std::size_t>(std::erase_if(live, done));
    }
    return time_s;
  }

 private:
  const VertexRates& rates_;
  std::vector<double> lengths_;
  std::size_t slots_;
  double prompt_;
};

/// Independent lengths of the workload's distribution.
std::vector<double> sample_lengths(const WorkloadSpec& workload, std::size_t count, Rng* rng) {
  std::vector<double> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double u = rng->uniform();
    for (const LengthPiece& piece : length_pieces(workload, 0.0)) {
      if (u > piece.g1) continue;
      lengths.push_back(piece.t0 + piece.width() * (u - piece.g0) / (piece.g1 - piece.g0));
      break;
    }
  }
  return lengths;
}

/// Largest relative error of decoding against the brute force, over cuts and the whole.
void expect_agreement(const std::vector<LengthQuantile>& quantiles,
                      std::int64_t sequences,
                      std::int64_t slots,
                      double host_step_s) {
  WorkloadConfig config = example_config();
  config.workload.gen_quantiles = quantiles;
  config.workload.generation_length = static_cast<std::int64_t>(quantiles.back().tokens);
  config.workload.batch_size = sequences;
  HardwareProfile profile = example_profile();
  profile.host_step_s = host_step_s;
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const VertexRates rates = vertex_rates(
      generation(), plan, config, profile, static_cast<double>(slots), CallKind::kDecodeStep);
  const ReplicaBatch batch{
      static_cast<double>(sequences), 1.0, 128.0, static_cast<double>(sequences)};
  const auto points = static_cast<std::int32_t>(quantiles.size());
  for (std::int32_t last = 1; last <= points; ++last) {
    const PartLengths part = part_lengths({0, last}, config.workload);
    const double model =
        slots < sequences
            ? decode_in_slots(rates, batch, static_cast<double>(slots), part, config.workload)
                  .total_s
            : 0.0;
    Rng rng(5);
    double brute = 0.0;
    constexpr int kRuns = 60;
    for (int run = 0; run < kRuns; ++run) {
      const Brute simulation(
          rates,
          sample_lengths(config.workload, static_cast<std::size_t>(sequences), &rng),
          static_cast<std::size_t>(slots),
          128.0);
      brute += simulation.decode_s(static_cast<std::size_t>(
                   std::ceil(part.share_last * static_cast<double>(sequences) - 1e-9))) /
               kRuns;
    }
    EXPECT_NEAR(model / brute, 1.0, 0.03)
        << sequences << " sequences in " << slots << " slots, share " << part.share_last
        << ": model " << model << " s, simulated " << brute << " s";
  }
}

TEST(SlotLimitedGeneration, AgreesWithAStepByStepSimulation) {
  const std::vector<LengthQuantile> tail = {{0.5, 128}, {0.85, 256}, {1.0, 512}};
  const std::vector<LengthQuantile> uniform = {{0.25, 100}, {1.0, 400}};
  const std::vector<LengthQuantile> narrow = {{0.05, 300}, {0.95, 400}, {1.0, 512}};
  for (const auto& quantiles : {tail, uniform, narrow}) {
    for (const double host_step_s : {0.0, 0.02}) {
      expect_agreement(quantiles, 128, 96, host_step_s);
      expect_agreement(quantiles, 128, 48, host_step_s);
      expect_agreement(quantiles, 256, 32, host_step_s);
    }
  }
}

TEST(SlotLimitedGeneration, WorksOffALongQueueInOneStride) {
  expect_agreement({{0.5, 32}, {1.0, 128}}, 2000, 40, 0.001);
}

TEST(SlotLimitedGeneration, IsTheExactFormulaWhenEverySequenceHasASlot) {
  WorkloadConfig config = example_config();
  config.workload.batch_size = 256;
  for (const VertexPlan& plan : plans()) {
    const std::int64_t all = replica_batch(plan, config);
    const ResponsePart whole = whole_response(config.workload);
    const double exact = price_vertex(generation(), plan, config, example_profile()).total_s;
    EXPECT_EQ(part_s(generation(), plan, whole, all, config), exact);
    EXPECT_EQ(part_s(generation(), plan, whole, all + 5, config), exact);
    // One slot less is nearly the same time.
    EXPECT_NEAR(part_s(generation(), plan, whole, all - 1, config) / exact, 1.0, 0.02);
  }
}

TEST(SlotLimitedGeneration, OfFixedLengthRunsInWaves) {
  WorkloadConfig config = example_config();
  config.workload.gen_quantiles.clear();
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  const ResponsePart whole = whole_response(config.workload);
  WorkloadConfig none = config;  // prefill alone: responses of one token
  none.workload.generation_length = 1;
  const auto decode_s = [&](std::int64_t sequences, std::int64_t slots) {
    config.workload.batch_size = sequences;
    none.workload.batch_size = sequences;
    return part_s(generation(), plan, whole, slots, config) -
           part_s(generation(), plan, whole, slots, none);
  };
  // 64 sequences in 24 slots: 24, 24, 16.
  EXPECT_NEAR(decode_s(64, 24) / (2 * decode_s(24, 24) + decode_s(16, 16)), 1.0, 1e-9);
}

TEST(SlotLimitedGeneration, CostsMoreWithFewerSlots) {
  WorkloadConfig config = example_config();
  config.workload.batch_size = 256;
  const VertexPlan plan = plan_on(1, 1, {1, 1, 1});
  double previous = 0.0;
  for (const std::int64_t slots : {256, 200, 128, 64, 32, 8, 1}) {
    const double seconds =
        part_s(generation(), plan, whole_response(config.workload), slots, config);
    EXPECT_GT(seconds, previous) << slots;
    previous = seconds;
  }
}

}  // namespace
}  // namespace rpeg
