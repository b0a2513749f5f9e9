#include "job/verify_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "job/input_digest.h"
#include "job/verify_texts.h"
#include "rpeg/base/error.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/job/tensors.h"
#include "rpeg/spec/head_config.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

std::size_t slot(ModelRole role) { return static_cast<std::size_t>(role); }

bool has_scalar_head(ModelRole role) {
  return role == ModelRole::kCritic || role == ModelRole::kReward;
}

/// Collects faults, so that the user sees them all at once.
class Verifier {
 public:
  explicit Verifier(Job* job) : job_(*job) {}

  void run() {
    for (std::size_t i = 0; i < kModelRoles; ++i) {
      const auto& configured = job_.config.models[i];
      if (configured) {
        const ModelSource& source = *configured;
        attempt([&] { check_model(static_cast<ModelRole>(i), source); });
      }
    }
    if (faults_.empty()) {
      attempt([&] { verify_texts(job_, faults_, files_); });
    }
    if (!faults_.empty()) {
      throw Error(ErrorKind::kUsage, fmt::format("{}", fmt::join(faults_, "\n")));
    }
    for (const fs::path& file : files_) {
      job_.input_digests.emplace_back(file.string(), input_digest(file));
    }
  }

 private:
  template <typename Body>
  void attempt(const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kUsage) {
        throw;
      }
      faults_.emplace_back(error.what());
    }
  }

  void check_model(ModelRole role, const ModelSource& source) {
    const fs::path& path = model_directory(job_.config, role);
    if (!fs::is_directory(path)) {
      faults_.push_back(
          fmt::format("models.{}: {} is not a directory", to_string(role), path.string()));
      return;
    }
    const ModelSpec found = load_hf_config(path);
    files_.insert(path / "config.json");
    compare_shapes(role, found, path);
    job_.inputs.models[slot(role)] = found;
    if (role == ModelRole::kReward) {
      check_reward_head(path);
    }
    if (!source.random_init && !source.init_from) {
      check_weights(role, found, path);
    }
  }

  /// Rewards are one number a sequence.
  void check_reward_head(const fs::path& path) {
    const HeadConfig head = load_hf_head(path);
    if (!head.architecture.ends_with("ForSequenceClassification")) {
      faults_.push_back(
          fmt::format("models.reward: {} is of a {}; a reward model has a scalar head: "
                      "...ForSequenceClassification with num_labels 1",
                      (path / "config.json").string(),
                      head.architecture));
    } else if (head.labels.value_or(1) != 1) {
      faults_.push_back(
          fmt::format("models.reward: {} has {} labels; a reward model has num_labels 1",
                      (path / "config.json").string(),
                      *head.labels));
    }
  }

  void compare_shapes(ModelRole role, const ModelSpec& found, const fs::path& path) {
    const ModelSpec planned = job_.inputs.model(role);
    std::vector<std::string> differences;
    const auto compare = [&](const char* field, std::int64_t plan, std::int64_t model) {
      if (plan != model) {
        differences.push_back(
            fmt::format("{} is {} in the plan, {} in the model", field, plan, model));
      }
    };
    compare("layers", planned.layers, found.layers);
    compare("hidden_dim", planned.hidden_dim, found.hidden_dim);
    compare("ffn_dim", planned.ffn_dim, found.ffn_dim);
    compare("vocab_size", planned.vocab_size, found.vocab_size);
    compare("head_dim", planned.head_dim, found.head_dim);
    compare("num_heads", planned.num_heads, found.num_heads);
    compare("num_kv_heads", planned.num_kv_heads, found.num_kv_heads);
    compare("gated_ffn", planned.gated_ffn, found.gated_ffn);
    if (!has_scalar_head(role)) {  // which replaces the tied or untied one
      compare("tied_embeddings", planned.tied_embeddings, found.tied_embeddings);
    }
    if (!differences.empty()) {
      faults_.push_back(fmt::format("models.{} ({}) does not have the shape that was planned: {}",
                                    to_string(role),
                                    (path / "config.json").string(),
                                    fmt::join(differences, "; ")));
    }
  }

  void check_weights(ModelRole role, const ModelSpec& spec, const fs::path& path) {
    const auto entries = read_safetensors_headers(path);
    for (const auto& [name, entry] : entries) {
      files_.insert(entry.file);
    }
    std::vector<std::string> wrong;
    for (const ModelTensor& tensor : model_tensors(spec, has_scalar_head(role))) {
      const auto entry = entries.find(tensor.name);
      if (entry == entries.end()) {
        // A critic's fresh value head starts at zero; a reward model has learnt its own.
        if (tensor.name != "score.weight" || role == ModelRole::kReward) {
          wrong.push_back(fmt::format("{} is missing", tensor.name));
        }
      } else if (entry->second.shape != tensor.shape) {
        wrong.push_back(fmt::format("{} has shape [{}], expected [{}]",
                                    tensor.name,
                                    fmt::join(entry->second.shape, ", "),
                                    fmt::join(tensor.shape, ", ")));
      }
    }
    constexpr std::size_t kShown = 5;
    if (!wrong.empty()) {
      const std::size_t shown = std::min(kShown, wrong.size());
      const std::string more =
          wrong.size() > shown ? fmt::format("; and {} more", wrong.size() - shown) : "";
      faults_.push_back(fmt::format(
          "models.{}: the weights in {} do not fit its config.json: {}{}",
          to_string(role),
          path.string(),
          fmt::join(wrong.begin(), wrong.begin() + static_cast<std::ptrdiff_t>(shown), "; "),
          more));
    }
  }

  Job& job_;
  std::vector<std::string> faults_;
  std::set<fs::path> files_;
};

}  // namespace

void verify_inputs(Job* job) { Verifier(job).run(); }

}  // namespace rpeg
