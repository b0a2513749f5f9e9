#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "cost/reshard.h"
#include "job/layout.h"
#include "job/program_classes.h"
#include "rpeg/base/error.h"
#include "support/random_small_plan.h"

namespace rpeg {
namespace {

/// Plans to try: RPEG_SEEDS, or as many as the default suite has time for.
int plan_count() {
  const char* seeds = std::getenv("RPEG_SEEDS");
  return seeds != nullptr ? std::atoi(seeds) : 1000;
}

std::string describe(const PlanFile& file) { return plan_file_text(file, nullptr); }

/// What the random plans have shown, so that the test cannot pass on a narrow choice of them.
struct Coverage {
  int cut = 0, shifted = 0, stale = 0, shared = 0, online = 0, offline = 0, reward_model = 0,
      tensor = 0, pipeline = 0, transfers = 0, several_nodes = 0, order_messages = 0;

  void add(const Job& job) {
    const PolicySpec& policy = job.inputs.policy;
    const Structure& structure = job.plan.structure;
    const bool is_dpo = policy.algorithm == Algorithm::kDpo;
    cut += structure.cuts != 0;
    stale += structure.tau_actor > 0;
    shared += structure.ac_share;
    online += is_dpo && policy.dpo_mode == DpoMode::kOnline;
    offline += is_dpo && policy.dpo_mode == DpoMode::kOffline;
    reward_model += find_vertex(job.graph, "i_R") != VertexId{-1};
    transfers += !job.transfers.empty();
    several_nodes += job.ranks.front().node != job.ranks.back().node;
    bool is_shifted = false;
    bool is_tensor = false;
    bool is_pipeline = false;
    bool has_order = false;
    for (const VertexPlan& vertex : job.plan.vertices) {
      is_tensor = is_tensor || vertex.parallelism.tp > 1;
      is_pipeline = is_pipeline || vertex.parallelism.pp > 1;
    }
    for (const RankSpec& rank : job.ranks) {
      for (const Instruction& i : rank.program) {
        is_shifted = is_shifted || i.shift > 0;
        has_order = has_order ||
                    (i.kind == InstructionKind::kSend && i.sequences.empty() && i.slots.empty());
      }
    }
    shifted += is_shifted;
    tensor += is_tensor;
    pipeline += is_pipeline;
    order_messages += has_order;
  }
};

/// The rank programs survive the compact form of run.yaml.
void check_classes(const Job& job) {
  const ProgramClasses classes = compress_programs(job.ranks);
  for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankProgram& program = classes.ranks[rank];
    ASSERT_EQ(expand_program(job, classes.classes[program.class_index], program),
              job.ranks[rank].program);
  }
}

/// Each receiver gets every row of its shard exactly once.
void check_transfers(const Job& job) {
  for (const WeightTransfer& transfer : job.transfers) {
    const WeightCopy& copy = job.copies[static_cast<std::size_t>(transfer.to)];
    const Block& block = job.blocks[static_cast<std::size_t>(copy.block)];
    std::map<std::pair<int, std::string>, SequenceList> received;
    for (const WeightMessage& message : transfer.messages) {
      std::int64_t bytes = 0;
      for (const WeightSlice& slice : message.slices) {
        const TransferTensor& tensor = transfer.tensors[static_cast<std::size_t>(slice.tensor)];
        SequenceList& rows = received[{message.to, tensor.name}];
        ASSERT_TRUE(intersect(rows, {{slice.begin, slice.end}}).empty()) << tensor.name;
        rows = unite(rows, {{slice.begin, slice.end}});
        std::int64_t row_elements = 1;
        for (std::size_t d = 0; d < tensor.shape.size(); ++d) {
          row_elements *= static_cast<int>(d) == tensor.dim ? 1 : tensor.shape[d];
        }
        bytes += 4 * row_elements * (slice.end - slice.begin);
      }
      ASSERT_EQ(bytes, message.bytes);
    }
    for (const int rank : block.ranks) {
      const ModelSpec& spec = job.inputs.model(copy.model);
      for (const ShardTensor& tensor :
           shard_tensors(spec, copy.head, shard_at(spec, block, *place_in_block(block, rank)))) {
        const SequenceRange wanted = tensor.split_dim < 0 ? SequenceRange{0, tensor.shape[0]}
                                                          : SequenceRange{tensor.begin, tensor.end};
        ASSERT_EQ((received[{rank, tensor.name}]), SequenceList{wanted}) << tensor.name;
      }
    }
  }
}

TEST(RandomPlans, CompileAndAreProven) {
  Coverage coverage;
  Rng rng(41);
  for (int i = 0; i < plan_count(); ++i) {
    const PlanFile file = test::random_small_plan(rng);
    try {
      const Job job = tiny_job(file, rng.below(4) == 0 ? Publish::kBuffered : Publish::kAuto);
      check_programs(job, 3);
      check_classes(job);
      check_transfers(job);
      coverage.add(job);
    } catch (const Error& error) {
      FAIL() << "plan " << i << ": " << error.what() << "\n" << describe(file);
    }
    if (testing::Test::HasFatalFailure()) {
      FAIL() << "plan " << i << "\n" << describe(file);
    }
  }
  for (const int seen : {coverage.cut,
                         coverage.shifted,
                         coverage.stale,
                         coverage.shared,
                         coverage.online,
                         coverage.offline,
                         coverage.reward_model,
                         coverage.tensor,
                         coverage.pipeline,
                         coverage.transfers,
                         coverage.several_nodes,
                         coverage.order_messages}) {
    EXPECT_GT(seen, 0);
  }
}

/// Breaks one instruction, and says how.
std::string break_instruction(Job* job, Rng& rng) {
  auto& program =
      job->ranks[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(job->ranks.size())))]
          .program;
  const auto at = program.begin() + rng.below(static_cast<std::int64_t>(program.size()));
  switch (rng.below(4)) {
    case 0:
      if (at->peer >= 0) {
        at->tag += 1;
        return "another tag";
      }
      break;
    case 1:
      if (at->peer >= 0) {
        at->peer = (at->peer + 1) % static_cast<int>(job->ranks.size() + 1);
        return "another peer";
      }
      break;
    case 2:
      if (!at->sequences.empty()) {
        at->sequences.back().last += 1;
        return "another sequence";
      }
      if (!at->slots.empty()) {
        at->slots.front().first += 1;
        return "a slot less";
      }
      break;
    default:
      break;
  }
  program.erase(at);
  return "an instruction less";
}

TEST(RandomPlans, BrokenInOneInstructionAreRejected) {
  Rng rng(47);
  for (int i = 0; i < plan_count(); ++i) {
    const PlanFile file = test::random_small_plan(rng);
    Job job = tiny_job(file);
    const std::string how = break_instruction(&job, rng);
    try {
      check_programs(job, 3);
      FAIL() << "plan " << i << " with " << how << " passes\n" << describe(file);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUsage) << error.what();
    }
  }
}

TEST(RandomPlans, MoveTheBytesThatTheCostModelCounts) {
  Rng rng(43);
  int compared = 0;
  for (int i = 0; i < plan_count(); ++i) {
    PlanFile file = test::random_small_plan(rng);
    for (auto& model : file.inputs.models) {
      if (model) model->vocab_size = 256;  // no padding under any tp
    }
    const Job job = tiny_job(file);
    for (const WeightTransfer& transfer : job.transfers) {
      const WeightCopy& to = job.copies[static_cast<std::size_t>(transfer.to)];
      if (to.head == Head::kBoth) continue;  // two edges of the model
      std::int64_t bytes = 0;
      for (const WeightMessage& message : transfer.messages) {
        bytes += message.from == message.to ? 0 : message.bytes;
      }
      const auto volume = transfer_volume(job.inputs.model(to.model),
                                          to.head,
                                          plan_of(job, transfer.producer),
                                          plan_of(job, transfer.consumer));
      const auto predicted = static_cast<std::int64_t>(4.0 * volume.total + 0.5);
      // The model counts the sender's parts as if it had the receiver's head only. A trunk shared
      // with a tied language head has the table on its last stage too, nearer to some readers.
      const bool has_more =
          job.copies[static_cast<std::size_t>(transfer.from)].head == Head::kBoth &&
          job.inputs.model(to.model).tied_embeddings;
      if (has_more) {
        EXPECT_LE(bytes, predicted) << describe(file);
      } else {
        EXPECT_EQ(bytes, predicted) << describe(file);
      }
      ++compared;
    }
  }
  EXPECT_GT(compared, plan_count() / 4);
}

}  // namespace
}  // namespace rpeg
