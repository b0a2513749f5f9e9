#include "job/verify_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <set>

#include "job/input_digest.h"
#include "rpeg/base/error.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/hf/tokenizer.h"
#include "rpeg/job/tensors.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

std::size_t slot(ModelRole role) { return static_cast<std::size_t>(role); }

/// Collects faults, so that the user sees them all at once.
class Verifier {
 public:
  explicit Verifier(Job* job) : job_(*job) {}

  void run() {
    for (const ModelRole role : {ModelRole::kActor, ModelRole::kCritic, ModelRole::kReference}) {
      if (job_.config.models[slot(role)]) {
        attempt([&] { check_model(role); });
      }
    }
    if (faults_.empty()) {
      attempt([&] { check_texts(); });
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

  void check_model(ModelRole role) {
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
    const ModelSource& source = *job_.config.models[slot(role)];
    if (!source.random_init && !source.init_from) {
      check_weights(role, found, path);
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
    if (role != ModelRole::kCritic) {  // a value head replaces the tied or untied one
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
    for (const ModelTensor& tensor : model_tensors(spec, role == ModelRole::kCritic)) {
      const auto entry = entries.find(tensor.name);
      if (entry == entries.end()) {
        if (tensor.name != "score.weight") {  // a fresh value head starts at zero
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

  void check_texts() {
    const fs::path& path = model_directory(job_.config, ModelRole::kActor);
    const Tokenizer tokenizer = Tokenizer::load(path);
    files_.insert(path / "tokenizer.json");
    check_vocabulary(tokenizer.vocab_size(), path);
    DatasetOptions held_out = job_.config.data.train;
    held_out.path = job_.config.data.eval;
    check_prompts("data.prompts", job_.config.data.train, tokenizer);
    if (!held_out.path.empty()) {
      check_prompts("data.eval", held_out, tokenizer);
    }
  }

  void check_vocabulary(std::int64_t tokenizer_size, const fs::path& path) {
    const std::int64_t model_size = job_.inputs.model(ModelRole::kActor).vocab_size;
    if (tokenizer_size > model_size) {
      faults_.push_back(
          fmt::format("models.actor: the vocabularies of model and tokenizer disagree: {} has {} "
                      "tokens, the model's embedding {}; use the tokenizer that belongs to the "
                      "model",
                      (path / "tokenizer.json").string(),
                      tokenizer_size,
                      model_size));
    } else if (tokenizer_size < model_size) {
      spdlog::warn(
          "the tokenizer has {} tokens, the model's embedding {}: the last {} can be "
          "sampled but mean nothing",
          tokenizer_size,
          model_size,
          model_size - tokenizer_size);
    }
  }

  void check_prompts(const char* key, const DatasetOptions& options, const Tokenizer& tokenizer) {
    const std::vector<Prompt> prompts = load_dataset(options, tokenizer);
    files_.insert(options.path);
    std::int64_t longest = 0;
    for (const Prompt& prompt : prompts) {
      longest = std::max(longest, static_cast<std::int64_t>(prompt.tokens.size()));
    }
    const WorkloadSpec& workload = job_.inputs.workload;
    if (longest > workload.context_length) {
      faults_.push_back(fmt::format(
          "{}: the longest prompt has {} tokens, the plan was made for context_length {}; set "
          "data.max_prompt_tokens: {} (with over_long: drop or truncate) or plan for longer "
          "prompts",
          key,
          longest,
          workload.context_length,
          workload.context_length));
    }
    for (const ModelRole role : {ModelRole::kActor, ModelRole::kCritic, ModelRole::kReference}) {
      if (!job_.config.models[slot(role)]) {
        continue;
      }
      const std::int64_t positions = job_.inputs.model(role).max_positions;
      if (longest + workload.generation_length > positions) {
        faults_.push_back(fmt::format(
            "{}: the longest prompt of {} tokens and generation_length {} need {} positions, "
            "models.{} has max_position_embeddings {}",
            key,
            longest,
            workload.generation_length,
            longest + workload.generation_length,
            to_string(role),
            positions));
      }
    }
  }

  Job& job_;
  std::vector<std::string> faults_;
  std::set<fs::path> files_;
};

}  // namespace

void verify_inputs(Job* job) { Verifier(job).run(); }

}  // namespace rpeg
