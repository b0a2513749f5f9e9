#include "job/verify_texts.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>

#include "rpeg/base/error.h"
#include "rpeg/data/preferences.h"
#include "rpeg/hf/tokenizer.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

/// A job and where its faults go.
struct TextCheck {
  const Job& job;
  std::vector<std::string>& faults;
  std::set<fs::path>& files;
};

bool has_model(const Job& job, ModelRole role) {
  return job.config.models[static_cast<std::size_t>(role)].has_value();
}

/// All models read the tokens of the actor's tokenizer; those of the actor's shape are checked with
/// it.
void check_vocabulary(TextCheck& check, std::int64_t tokenizer_size, const fs::path& path) {
  for (const ModelRole role : {ModelRole::kActor, ModelRole::kReward}) {
    const std::int64_t model_size =
        has_model(check.job, role) ? check.job.inputs.model(role).vocab_size : tokenizer_size;
    if (tokenizer_size > model_size) {
      check.faults.push_back(
          fmt::format("models.{}: the vocabularies of model and tokenizer disagree: {} has {} "
                      "tokens, the model's embedding {}; use the tokenizer that belongs to the "
                      "model",
                      to_string(role),
                      (path / "tokenizer.json").string(),
                      tokenizer_size,
                      model_size));
    } else if (role == ModelRole::kActor && tokenizer_size < model_size) {
      spdlog::warn(
          "the tokenizer has {} tokens, the model's embedding {}: the last {} can be "
          "sampled but mean nothing",
          tokenizer_size,
          model_size,
          model_size - tokenizer_size);
    }
  }
}

/// Reports the first prompt whose ground truth the verifier cannot use.
void check_answers(TextCheck& check, const char* key, const std::vector<Prompt>& prompts) {
  for (const Prompt& prompt : prompts) {
    try {
      check_answer(check.job.config.verifier, prompt.answer);
    } catch (const Error& error) {
      check.faults.push_back(fmt::format("{}: {} (prompt \"{}\"); is data.answer_field `{}` right?",
                                         key,
                                         error.message(),
                                         prompt.text.substr(0, 40),
                                         check.job.config.data.train.answer_field));
      return;
    }
  }
}

void check_longest_prompt(TextCheck& check, const char* key, std::int64_t longest) {
  const std::int64_t planned = check.job.inputs.workload.context_length;
  if (longest > planned) {
    check.faults.push_back(fmt::format(
        "{}: the longest prompt has {} tokens, the plan was made for context_length {}; set "
        "data.max_prompt_tokens: {} (with over_long: drop or truncate) or plan for longer prompts",
        key,
        longest,
        planned,
        planned));
  }
}

/// Every model that sees whole sequences must have `needed` positions; `what` says of what.
void check_positions(TextCheck& check,
                     const char* key,
                     const std::string& what,
                     std::int64_t needed) {
  for (std::size_t i = 0; i < kModelRoles; ++i) {
    const auto role = static_cast<ModelRole>(i);
    if (!has_model(check.job, role)) {
      continue;
    }
    const std::int64_t positions = check.job.inputs.model(role).max_positions;
    if (needed > positions) {
      check.faults.push_back(
          fmt::format("{}: {} need {} positions, models.{} has "
                      "max_position_embeddings {}",
                      key,
                      what,
                      needed,
                      to_string(role),
                      positions));
    }
  }
}

void check_prompts(TextCheck& check,
                   const char* key,
                   const DatasetOptions& options,
                   const Tokenizer& tokenizer) {
  const std::vector<Prompt> prompts = load_dataset(options, tokenizer);
  check.files.insert(options.path);
  check_answers(check, key, prompts);
  std::int64_t longest = 0;
  for (const Prompt& prompt : prompts) {
    longest = std::max(longest, std::ssize(prompt.tokens));
  }
  check_longest_prompt(check, key, longest);
  const std::int64_t generated = check.job.inputs.workload.generation_length;
  check_positions(
      check,
      key,
      fmt::format("the longest prompt of {} tokens and generation_length {}", longest, generated),
      longest + generated);
}

/// Each response of a pair must fit what the plan has room for.
void check_preferences(TextCheck& check, const Tokenizer& tokenizer) {
  constexpr const char* kKey = "data.prompts";
  const DatasetOptions& options = check.job.config.data.train;
  const fs::path& actor = model_directory(check.job.config, ModelRole::kActor);
  const auto pairs = load_preferences(options, tokenizer, load_stop_tokens(actor));
  check.files.insert(options.path);
  std::int64_t prompt = 0;
  std::int64_t response = 0;
  std::int64_t both = 0;
  for (const PreferencePair& pair : pairs) {
    const std::int64_t longer = std::max(std::ssize(pair.chosen), std::ssize(pair.rejected));
    prompt = std::max(prompt, std::ssize(pair.prompt_tokens));
    response = std::max(response, longer);
    both = std::max(both, std::ssize(pair.prompt_tokens) + longer);
  }
  check_longest_prompt(check, kKey, prompt);
  const std::int64_t planned = check.job.inputs.workload.generation_length;
  if (response > planned) {
    check.faults.push_back(fmt::format(
        "{}: the longest response has {} tokens (with its stop token), the plan was made for "
        "generation_length {}; set data.max_response_tokens: {} (with over_long: drop or truncate) "
        "or plan for longer responses",
        kKey,
        response,
        planned,
        planned));
  }
  check_positions(check, kKey, "the longest prompt and response of a pair", both);
}

/// A program named by its path must be there on every node; one without a slash is looked up when
/// it runs.
void check_command(TextCheck& check) {
  const VerifierSpec& verifier = check.job.config.verifier;
  if (verifier.kind != VerifierKind::kCommand ||
      verifier.command.at(0).find('/') == std::string::npos) {
    return;
  }
  const fs::path program = verifier.command.at(0);
  if (!fs::is_regular_file(program) || ::access(program.c_str(), X_OK) != 0) {
    check.faults.push_back(
        fmt::format("reward.command: {} is not an executable file", program.string()));
    return;
  }
  check.files.insert(program);
}

}  // namespace

void verify_texts(const Job& job, std::vector<std::string>& faults, std::set<fs::path>& files) {
  TextCheck check{job, faults, files};
  check_command(check);
  const fs::path& path = model_directory(job.config, ModelRole::kActor);
  const Tokenizer tokenizer = Tokenizer::load(path);
  files.insert(path / "tokenizer.json");
  check_vocabulary(check, tokenizer.vocab_size(), path);
  if (trains_on_preferences(job.inputs.policy)) {
    check_preferences(check, tokenizer);
    return;
  }
  DatasetOptions held_out = job.config.data.train;
  held_out.path = job.config.data.eval;
  check_prompts(check, "data.prompts", job.config.data.train, tokenizer);
  if (!held_out.path.empty()) {
    check_prompts(check, "data.eval", held_out, tokenizer);
  }
}

}  // namespace rpeg
