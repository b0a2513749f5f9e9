// Staleness, publishing and cuts change when things happen, not what is computed.

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parity/recording.h"
#include "rpeg/base/file.h"
#include "rpeg/trace/check_trace.h"
#include "support/copy_job.h"
#include "support/layout_job.h"

namespace rpeg {
namespace {

using testing::IsEmpty;

std::string weights_of(const Job& job) {
  return read_file(job.config.runtime.save_dir / "actor/model.safetensors");
}

LayoutJob ppo_job(const std::string& elsewhere, const VertexLayouts& layouts = {}) {
  LayoutJob job;
  job.algorithm = Algorithm::kPpo;
  job.elsewhere = elsewhere;
  job.layouts = layouts;
  return job;
}

const std::vector<std::pair<std::string, VertexLayouts>>& placements() {
  static const std::vector<std::pair<std::string, VertexLayouts>> kPlacements = {
      {"r0 n[0-0] g[0-0] dp1", {}},
      {"r0 n[0-0] g[0-3] dp2 pp1 tp2", {}},
      {"r0 n[0-0] g[0-1] dp1 pp2 m2", {{"t_pi", "r0 n[0-0] g[2-3] dp2"}}},
  };
  return kPlacements;
}

TEST(Publish, ThroughABufferIsBitIdenticalToInPlace) {
  for (const auto& [elsewhere, layouts] : placements()) {
    SCOPED_TRACE(elsewhere);
    LayoutJob options = ppo_job(elsewhere, layouts);
    const Job in_place = compile_layout_job(options, fresh_directory("in_place"));
    options.publish = Publish::kBuffered;
    const Job buffered = compile_layout_job(options, fresh_directory("buffered"));
    ASSERT_GT(buffered.transfers.size(), 0U);
    const Recording a = record(in_place);
    const Recording b = record(buffered);
    EXPECT_EQ(a.rollouts.size(), b.rollouts.size());
    for (const auto& [key, rollout] : a.rollouts) {
      EXPECT_EQ(rollout.rollout.tokens, b.rollouts.at(key).rollout.tokens);
      EXPECT_EQ(rollout.rollout.logprobs, b.rollouts.at(key).rollout.logprobs);
    }
    EXPECT_EQ(weights_of(in_place), weights_of(buffered));
  }
}

TEST(Staleness, TheTraceProvesTheVersions) {
  for (const auto& [elsewhere, layouts] : placements()) {
    for (const std::int64_t tau : {1, 2}) {
      SCOPED_TRACE(elsewhere + ", tau " + std::to_string(tau));
      LayoutJob options = ppo_job(elsewhere, layouts);
      options.iterations = 6;
      options.structure.tau_actor = tau;
      const Job job = compile_layout_job(options, fresh_directory("stale"));
      const Recording run = record(job);
      for (const auto& [key, rollout] : run.rollouts) {
        EXPECT_EQ(rollout.version, std::max<std::int64_t>(0, rollout.iteration - tau));
      }
      EXPECT_THAT(check_trace(job, load_trace(job.config.runtime.trace_dir)), IsEmpty());
    }
  }
}

TEST(Cuts, ChangeNeitherTokensNorLosses) {
  for (const auto& [elsewhere, layouts] : placements()) {
    for (const Algorithm algorithm : {Algorithm::kPpo, Algorithm::kGrpo}) {
      SCOPED_TRACE(elsewhere + " " + to_string(algorithm));
      LayoutJob options = ppo_job(elsewhere, layouts);
      options.algorithm = algorithm;
      options.reward = RewardSource::kModel;
      options.fuse = true;
      const Recording whole = record(compile_layout_job(options, fresh_directory("whole")));
      for (const std::uint32_t cuts : {1U, 2U, 3U}) {
        options.structure.cuts = cuts;
        const Job job = compile_layout_job(options, fresh_directory("cut"));
        const Recording cut = record(job);
        for (const auto& [key, rollout] : whole.rollouts) {
          EXPECT_EQ(rollout.rollout.tokens, cut.rollouts.at(key).rollout.tokens);
        }
        EXPECT_THAT(differences(cut, whole), IsEmpty());
        EXPECT_THAT(check_trace(job, load_trace(job.config.runtime.trace_dir)), IsEmpty());
      }
      options.structure.cuts = 0;
    }
  }
}

/// The first event of a vertex in an iteration.
TraceEvent event_of(const Trace& trace, const std::string& vertex, std::int64_t iteration) {
  for (const TraceEvent& event : all_events(trace)) {
    if (event.vertex == vertex && event.iteration == iteration && event.kind != "send" &&
        event.kind != "receive") {
      return event;
    }
  }
  throw std::runtime_error("no event of " + vertex);
}

TEST(Cuts, InferenceOfEarlyChunksOverlapsGeneration) {
  LayoutJob options = ppo_job("r0 n[0-0] g[1-1] dp1", {{"g_pi", "r0 n[0-0] g[0-0] dp1"}});
  options.prompts = 16;
  options.generation_length = 24;
  options.fuse = true;
  options.structure.cuts = 1;
  const Job job = compile_layout_job(options, fresh_directory("overlap"));
  record(job);
  const Trace trace = load_trace(job.config.runtime.trace_dir);
  int overlaps = 0;
  for (std::int64_t k = 0; k < options.iterations; ++k) {
    if (event_of(trace, "i_ref.1", k).start_s < event_of(trace, "g_pi.2", k).end_s) {
      ++overlaps;
    }
  }
  EXPECT_GT(overlaps, 0);
}

TEST(Sharing, LearnsWithOneTrunkUnderAnyLayout) {
  Recording first;
  for (const auto& [elsewhere, layouts] : placements()) {
    SCOPED_TRACE(elsewhere);
    LayoutJob options = ppo_job(elsewhere);
    options.structure.ac_share = true;
    const Job job = compile_layout_job(options, fresh_directory("shared"));
    const Recording run =
        first.rollouts.empty() ? record(job) : record(job, "shared_rollouts.jsonl");
    if (first.rollouts.empty()) {
      first = run;
      write_file_atomic("shared_rollouts.jsonl", read_file(job.config.runtime.rollouts));
    } else {
      EXPECT_THAT(differences(run, first), IsEmpty());
    }
  }
}

}  // namespace
}  // namespace rpeg
