#include "parity/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>

#include "rpeg/base/error.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/model/parameters.h"
#include "support/copy_job.h"

namespace rpeg {
namespace {

/// Puts a shard's part of a tensor where it belongs in the whole.
void place(const ParameterTensor& tensor, std::span<const float> part, std::vector<float>& whole) {
  const ShardTensor& shard = tensor.part;
  std::size_t count = 1;
  for (const std::int64_t extent : shard.shape) {
    count *= static_cast<std::size_t>(extent);
  }
  whole.resize(count);
  const std::size_t rows = shard.split_dim == 1 ? static_cast<std::size_t>(shard.shape[0]) : 1;
  const std::size_t width = part.size() / rows;
  const std::size_t stride = count / rows;
  const std::size_t extent =
      shard.split_dim < 0 ? 1 : static_cast<std::size_t>(shard.shape[shard.split_dim]);
  const std::size_t first =
      shard.split_dim < 0 ? 0 : static_cast<std::size_t>(shard.begin) * (stride / extent);
  for (std::size_t row = 0; row < rows; ++row) {
    std::copy_n(part.begin() + static_cast<std::ptrdiff_t>(row * width),
                width,
                whole.begin() + static_cast<std::ptrdiff_t>(row * stride + first));
  }
}

/// Collects the shards that the ranks, threads of this process, hand in.
class Collector {
 public:
  void add(const GradientView& view, int rank) {
    const std::lock_guard lock(mutex_);
    auto& updates = gradients[view.vertex];
    const std::size_t update = seen_[{view.vertex, rank}]++;
    if (updates.size() <= update) {
      updates.resize(update + 1);
    }
    for (const ParameterTensor& tensor : view.layout.tensors) {
      place(tensor,
            view.gradient.subspan(static_cast<std::size_t>(tensor.offset),
                                  static_cast<std::size_t>(tensor.count)),
            updates[update][tensor.name]);
    }
  }

  std::map<std::string, std::vector<WholeTensors>> gradients;

 private:
  std::mutex mutex_;
  std::map<std::pair<std::string, int>, std::size_t> seen_;
};

/// Saved minus initial weights of a trained model.
WholeTensors update_of(const Job& job, ModelRole role, const std::string& name) {
  const auto directory = job.config.runtime.save_dir / name;
  const ModelSpec spec = load_hf_config(directory);
  const bool scalar = role == ModelRole::kCritic;
  const ParameterLayout layout =
      build_parameter_layout(spec, scalar ? Head::kScalar : Head::kLanguageModel);
  std::vector<float> first(static_cast<std::size_t>(layout.total));
  std::vector<float> last(first.size());
  const auto& source = job.config.models[static_cast<std::size_t>(ModelRole::kActor)];
  if (source->random_init) {
    initialise_parameters(spec, layout, source->seed, first);
  } else {
    load_parameters(source->path, layout, first);
  }
  load_parameters(directory, layout, last);
  WholeTensors update;
  for (const ParameterTensor& tensor : layout.tensors) {
    auto& out = update[tensor.name];
    for (std::int64_t i = tensor.offset; i < tensor.offset + tensor.count; ++i) {
      out.push_back(last[static_cast<std::size_t>(i)] - first[static_cast<std::size_t>(i)]);
    }
  }
  return update;
}

void compare(const std::string& what,
             const WholeTensors& run,
             const WholeTensors& reference,
             double tolerance,
             std::vector<std::string>* out) {
  for (const auto& [name, tensor] : reference) {
    const auto found = run.find(name);
    if (found == run.end()) {
      out->push_back(fmt::format("{}: no {}", what, name));
      continue;
    }
    const double distance = relative_distance(found->second, tensor);
    if (!(distance <= tolerance)) {
      out->push_back(fmt::format("{}: {} differs by {:.2e}", what, name, distance));
    }
  }
}

}  // namespace

Recording record(const Job& job, const std::filesystem::path& replay) {
  Collector collector;
  RunOptions options;
  options.replay = replay;
  options.on_gradient = [&](const GradientView& view) { collector.add(view, view.rank); };
  Recording result;
  result.summary = run_on_threads(job, options);
  result.gradients = std::move(collector.gradients);
  for (const WeightCopy& copy : job.copies) {
    if (copy.is_trained) {
      result.updates[to_string(copy.model)] = update_of(job, copy.model, to_string(copy.model));
    }
  }
  if (replay.empty() && std::filesystem::exists(job.config.runtime.rollouts)) {
    result.rollouts = load_rollouts(job.config.runtime.rollouts);
  }
  return result;
}

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  check(a.size() == b.size(), "tensors of different sizes");
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    norm += static_cast<double>(b[i]) * b[i];
  }
  return std::sqrt(difference) / (norm > 0.0 ? std::sqrt(norm) : 1.0);
}

std::vector<std::string> differences(const Recording& run,
                                     const Recording& reference,
                                     const Tolerances& tolerances) {
  std::vector<std::string> out;
  if (run.summary.iterations.size() != reference.summary.iterations.size()) {
    return {"different numbers of iterations"};
  }
  for (std::size_t k = 0; k < run.summary.iterations.size(); ++k) {
    const IterationMetrics& x = run.summary.iterations[k];
    const IterationMetrics& y = reference.summary.iterations[k];
    const auto loss = [&](const char* name, double a, double b) {
      if (std::isnan(a) != std::isnan(b) || std::abs(a - b) > tolerances.loss) {
        out.push_back(fmt::format("iteration {}: {} is {} instead of {}", k, name, a, b));
      }
    };
    loss("policy_loss", x.policy_loss, y.policy_loss);
    loss("value_loss", x.value_loss, y.value_loss);
    loss("kl_reference", x.kl_reference, y.kl_reference);
  }
  for (const auto& [vertex, updates] : reference.gradients) {
    const auto found = run.gradients.find(vertex);
    if (found == run.gradients.end() || found->second.size() != updates.size()) {
      out.push_back(fmt::format("{}: not as many updates", vertex));
      continue;
    }
    for (std::size_t i = 0; i < updates.size(); ++i) {
      compare(fmt::format("gradient {} of {}", i, vertex),
              found->second[i],
              updates[i],
              tolerances.gradient,
              &out);
    }
  }
  for (const auto& [model, update] : reference.updates) {
    const auto found = run.updates.find(model);
    if (found == run.updates.end()) {
      out.push_back(fmt::format("no update of the {}", model));
      continue;
    }
    compare(fmt::format("update of the {}", model), found->second, update, tolerances.update, &out);
  }
  return out;
}

}  // namespace rpeg
