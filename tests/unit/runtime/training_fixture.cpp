#include "training_fixture.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <numeric>

#include "recorded_batch.h"
#include "runtime/training.h"

namespace rpeg {
namespace {

/// Puts the part that a rank holds into the whole tensors; equal copies must have equal bits.
void place(const std::string& vertex,
           const ParameterLayout& layout,
           std::span<const float> flat,
           WholeTensors& whole) {
  for (const ParameterTensor& tensor : layout.tensors) {
    const auto total = std::accumulate(
        tensor.part.shape.begin(), tensor.part.shape.end(), std::int64_t{1}, std::multiplies<>());
    const float nothing = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> held(static_cast<std::size_t>(total), nothing);
    place_shard<float>(tensor.part,
                       flat.subspan(static_cast<std::size_t>(tensor.offset),
                                    static_cast<std::size_t>(tensor.count)),
                       held);
    std::vector<float>& values = whole[vertex + " " + tensor.name];
    values.resize(held.size(), nothing);
    for (std::size_t i = 0; i < held.size(); ++i) {
      if (!std::isnan(held[i])) {
        EXPECT_TRUE(std::isnan(values[i]) || values[i] == held[i])
            << tensor.name << ": copies differ";
        values[i] = held[i];
      }
    }
  }
}

/// What all rank threads write to.
struct Shared {
  const Job& job;
  std::mutex mutex;
  TrainingOutcome outcome{};
  std::map<std::pair<int, std::string>, std::size_t> updates{};  ///< seen of a rank and vertex
};

RunOptions capture_gradients(Shared& shared) {
  RunOptions options;
  options.on_gradient = [&shared](const GradientView& view) {
    const std::lock_guard lock(shared.mutex);
    const std::size_t update = shared.updates[{view.rank, view.vertex}]++;
    auto& gradients = shared.outcome.gradients;
    gradients.resize(std::max(gradients.size(), update + 1));
    place(view.vertex, view.layout, view.gradient, gradients[update]);
  };
  return options;
}

void record_weights(Shared& shared, const RankContext& context, WholeTensors& whole) {
  const std::lock_guard lock(shared.mutex);
  for (const auto& [copy, model] : context.models) {
    if (model.training.has_value()) {
      const auto role = shared.job.copies[static_cast<std::size_t>(copy)].model;
      place(to_string(role), model.layout, model.weights, whole);
      shared.outcome.most_moments =
          std::max(shared.outcome.most_moments,
                   static_cast<std::int64_t>(model.training->optimizer.m.size()));
    }
  }
}

void record_kl_coef(Shared& shared, const RankContext& context) {
  const std::lock_guard lock(shared.mutex);
  for (const auto& [copy, model] : context.models) {
    if (model.training.has_value()) {
      shared.outcome.kl_coefs.insert(model.training->reward_kl_coef.value());
    }
  }
}

void train_iteration(Shared& shared, RankContext& context, std::int64_t iteration) {
  const Job& job = shared.job;
  IterationData& data = recorded_iteration(context, iteration);
  for (const Instruction& instruction :
       job.ranks[static_cast<std::size_t>(context.world.rank())].program) {
    if (instruction.kind != InstructionKind::kTrain) {
      continue;
    }
    if (context.groups_of(instruction.vertex).is_leader()) {
      for (const std::int64_t s : sequence_list(instruction.sequences)) {
        data.sequences[s] = recorded_sequence(job.inputs, iteration, s);
      }
    }
    train_vertex(context, instruction, iteration);
  }
  const Report& report = context.reports[iteration];
  const std::lock_guard lock(shared.mutex);
  auto& losses = shared.outcome.losses;
  losses.resize(std::max(losses.size(), static_cast<std::size_t>(iteration) + 1));
  auto& loss = losses[static_cast<std::size_t>(iteration)];
  loss["policy"] += report[Sum::kPolicyLoss];
  loss["value"] += report[Sum::kValueLoss];
  loss["norm"] += report[Sum::kGradientNormActor] + report[Sum::kGradientNormCritic];
  loss["entropy"] += report[Sum::kEntropy];
  loss["margin"] += report[Sum::kPairMargin];
  loss["pairs"] += report[Sum::kPairs];
  loss["reference"] += report[Sum::kReferenceKl];
  loss["clipped"] += report[Sum::kClippedTokens];
}

void train_rank(Shared& shared, Comm& world, const RunOptions& options) {
  const auto context = rank_context(shared.job, world, options);
  record_weights(shared, *context, shared.outcome.initial);
  for (std::int64_t k = 0; k < shared.job.config.train.iterations; ++k) {
    train_iteration(shared, *context, k);
  }
  record_kl_coef(shared, *context);
  record_weights(shared, *context, shared.outcome.final_weights);
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return difference == 0.0 ? 0.0 : std::sqrt(difference / size);
}

WholeTensors updates_of(const TrainingOutcome& outcome) {
  WholeTensors updates = outcome.final_weights;
  for (auto& [name, values] : updates) {
    const auto& before = outcome.initial.at(name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] -= before[i];
    }
  }
  return updates;
}

double worst_distance(const WholeTensors& a, const WholeTensors& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0.0;
  for (const auto& [name, values] : b) {
    worst = std::max(worst, distance(a.at(name), values));
  }
  return worst;
}

}  // namespace

TrainingOutcome train_on_threads(const Job& job) {
  Shared shared{.job = job, .mutex = {}};
  const RunOptions options = capture_gradients(shared);
  on_threads(job, [&](Comm& world) { train_rank(shared, world, options); });
  return std::move(shared.outcome);
}

double gradient_distance(const TrainingOutcome& a, const TrainingOutcome& b) {
  EXPECT_EQ(a.gradients.size(), b.gradients.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < b.gradients.size(); ++i) {
    worst = std::max(worst, worst_distance(a.gradients[i], b.gradients[i]));
  }
  return worst;
}

double update_distance(const TrainingOutcome& a, const TrainingOutcome& b) {
  return worst_distance(updates_of(a), updates_of(b));
}

double loss_distance(const TrainingOutcome& a, const TrainingOutcome& b) {
  EXPECT_EQ(a.losses.size(), b.losses.size());
  double worst = 0.0;
  for (std::size_t k = 0; k < b.losses.size(); ++k) {
    for (const auto& [name, loss] : b.losses[k]) {
      worst = std::max(worst, std::abs(a.losses[k].at(name) - loss));
    }
  }
  return worst;
}

}  // namespace rpeg
