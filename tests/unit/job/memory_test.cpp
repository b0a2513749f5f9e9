#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/job/memory.h"
#include "support/tiny_job.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Elements of the tiny model: embedding and head, layers (2 norms, Q, K, V, O, FFN), final norm.
constexpr std::int64_t kElements = 2 * 64 + 2 * (16 + 64 + 64 + 64 + 288) + 8;

TEST(RankMemory, OfOneRankIsCountedByHand) {
  const Job job = tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo), {}));
  const auto memory = rank_memory(job);
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0].weights, 4 * 2 * kElements);  // actor and reference
  EXPECT_EQ(memory[0].sending, 0);
  EXPECT_EQ(memory[0].gradients, 4 * kElements);
  EXPECT_EQ(memory[0].optimizer, 4 * 2 * kElements);
  EXPECT_EQ(memory[0].messages, 0);
  // 16 sequences of 16 tokens: 256 tokens of a layer (4 residuals of 8, twice the 8 of the queries,
  // keys and values of 4, FFN 3 x 12, statistics of 2 heads) and the input of both layers.
  EXPECT_EQ(job.graph.vertices[index(memory[0].busiest)].name, "t_pi");
  EXPECT_EQ(memory[0].activations, 4 * 256 * (32 + 16 + 8 + 36 + 2) + 4 * 256 * 8 * 2);
  EXPECT_EQ(memory[0].logits, 2 * 4 * 256 * 8);
  EXPECT_EQ(memory[0].kv_cache, 0);
}

TEST(RankMemory, OfAStaleReaderHoldsSeveralVersions) {
  const Job job = tiny_job(
      tiny_plan(tiny_inputs(Algorithm::kGrpo), {{"t_pi", "r0 n[0-0] g[1-2]"}}, {.tau_actor = 2}));
  const auto memory = rank_memory(job);
  EXPECT_EQ(memory[0].weights, 4 * (3 + 1) * kElements);  // three versions, and the reference
  EXPECT_EQ(memory[1].weights, 4 * kElements);
  EXPECT_EQ(memory[1].optimizer, 4 * kElements);  // half of two moments
  EXPECT_EQ(memory[1].sending + memory[2].sending, 4 * kElements);
  // KV cache of rank 0: 16 sequences x 16 tokens x 2 layers x K and V of one head of 4.
  const Job alone =
      tiny_job(tiny_plan(tiny_inputs(Algorithm::kGrpo),
                         {{"t_pi", "r0 n[0-0] g[1-1]"}, {"i_ref", "r0 n[0-0] g[1-1]"}}));
  EXPECT_EQ(rank_memory(alone)[0].kv_cache, 4 * 16 * 16 * 2 * 2 * 4);
}

std::string fault(const Job& job, std::int64_t device_bytes) {
  try {
    check_memory(job, device_bytes);
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    return error.what();
  }
  return "";
}

TEST(CheckMemory, NamesTheRankItsTermsAndTheChange) {
  const PlanFile plan = tiny_plan(tiny_inputs(Algorithm::kGrpo), {{"t_pi", "r0 n[1-1] g[2-2]"}});
  const Job job = tiny_job(plan);
  const auto memory = rank_memory(job);
  ASSERT_GT(memory[1].total(), memory[0].total());
  EXPECT_EQ(fault(job, memory[1].total()), "");
  EXPECT_THAT(fault(job, 1000),
              AllOf(HasSubstr("rank 1 (node 1, device 2) needs"),
                    HasSubstr("but has 1 kB"),
                    HasSubstr("activations of t_pi"),
                    HasSubstr("gradients 4.51 kB"),
                    HasSubstr("split the models of this rank")));
  Job smaller = job;
  smaller.plan.vertices.back().micro_batches = 2;
  EXPECT_THAT(fault(job, std::max(rank_memory(smaller)[1].total(), memory[0].total())),
              HasSubstr("micro_batches: 2 of t_pi would make it fit"));
  // Of a deep model whose activations are all kept, in micro-batches of one sequence.
  PlanFile deep = plan;
  deep.inputs.models[0]->layers = 8;
  for (VertexPlan& vertex : deep.plan.vertices) {
    vertex.micro_batches = 16;
  }
  const std::int64_t least =
      std::max(rank_memory(tiny_job(deep))[0].total(), rank_memory(tiny_job(deep))[1].total());
  deep.inputs.optimizer.recompute = Recompute::kNone;
  EXPECT_THAT(fault(tiny_job(deep), least),
              HasSubstr("optimizer.recompute: full would make it fit"));
}

}  // namespace
}  // namespace rpeg
