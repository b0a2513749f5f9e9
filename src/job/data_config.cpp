#include <fmt/format.h>

#include "job/config_yaml.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

/// The keys that preference pairs have and prompts do not, or the other way round.
void read_data_fields(MapReader& data, DataConfig* config, const ConfigContext& context) {
  DatasetOptions& train = config->train;
  if (trains_on_preferences(context.plan.policy)) {
    train.chosen_field = data.string("chosen_field", train.chosen_field);
    train.rejected_field = data.string("rejected_field", train.rejected_field);
    train.max_response_tokens = data.integer("max_response_tokens", kAtLeastZero, 0);
    for (const char* key : {"answer_field", "eval", "eval_every"}) {
      refuse_key(data, key, "offline dpo generates no responses to compare with an answer");
    }
    return;
  }
  for (const char* key : {"chosen_field", "rejected_field", "max_response_tokens"}) {
    refuse_key(data, key, "only offline dpo reads preference pairs");
  }
  train.answer_field = data.string("answer_field", train.answer_field);
  config->eval = resolve_path(context.folder, data.string("eval", ""));
  config->eval_every = data.integer("eval_every", kAtLeastZero, 0);
  if (config->eval_every > 0 && config->eval.empty()) {
    data.fault("eval_every", "needs data.eval, the prompts to evaluate on");
  }
}

/// A pattern that does not compile is a fault of its key; a missing one is reported already.
void check_pattern(MapReader& reward, const VerifierSpec& spec) {
  if (spec.pattern.empty()) {
    return;
  }
  try {
    check_verifier(spec);
  } catch (const Error& error) {
    reward.fault("pattern", error.message());
  }
}

/// An external program and its arguments. One named with a slash starts at the file's folder.
void read_command(MapReader& reward, const fs::path& folder, VerifierSpec* spec) {
  spec->kind = VerifierKind::kCommand;
  reward.sequence("command", true, [&](const YamlValue& item, const std::string& path) {
    spec->command.push_back(yaml_string(item, path, reward.faults()));
  });
  if (spec->command.empty() || spec->command[0].empty()) {
    reward.fault("command", "expected a program and its arguments, such as [\"./score\", \"-v\"]");
  } else if (spec->command[0].find('/') != std::string::npos) {
    spec->command[0] = resolve_path(folder, spec->command[0]).string();
  }
  spec->timeout_s = reward.number("timeout", {1e-3, 1e6}, spec->timeout_s);
}

VerifierSpec read_verifier(MapReader reward, const ConfigContext& context) {
  VerifierSpec result;
  if (reward.has("command") && reward.has("verifier")) {
    reward.fault("command", "stands beside `verifier`; a job has one of them");
  }
  if (reward.has("command")) {
    read_command(reward, context.folder, &result);
    reward.ignore("verifier");
  } else {
    refuse_key(reward, "timeout", "only a `command` has a time limit");
    if (reward.value("verifier", true) != nullptr) {
      result.kind = static_cast<VerifierKind>(reward.choice("verifier", kVerifierNames));
    }
  }
  if (result.kind == VerifierKind::kRegex) {
    result.pattern = reward.string("pattern");
    check_pattern(reward, result);
  } else {
    refuse_key(reward, "pattern", "only `verifier: regex` has a pattern");
  }
  reward.finish();
  return result;
}

}  // namespace

DataConfig read_data_config(MapReader data, const ConfigContext& context) {
  DataConfig result;
  DatasetOptions& train = result.train;
  train.path = resolve_path(context.folder, data.string("prompts"));
  train.prompt_field = data.string("prompt_field", train.prompt_field);
  train.prompt_template = data.string("template", "");
  if (train.prompt_template == "chat") {
    data.fault("template",
               "chat templates are not supported by this version; write one such as "
               "\"{question}\\n\"");
  }
  train.max_prompt_tokens = data.integer("max_prompt_tokens", kAtLeastZero, 0);
  train.over_long = static_cast<OverLong>(data.choice("over_long", kOverLongNames, 0));
  result.shuffle = data.boolean("shuffle", true);
  read_data_fields(data, &result, context);
  if (data.has("over_long") && train.max_prompt_tokens == 0 && train.max_response_tokens == 0) {
    data.fault("over_long",
               trains_on_preferences(context.plan.policy)
                   ? "needs data.max_prompt_tokens or data.max_response_tokens, the limits it "
                     "applies to"
                   : "needs data.max_prompt_tokens, the limit it applies to");
  }
  reject_key(data,
             "messages_field",
             "data.prompt_field may name a list of messages, of which the last one counts");
  data.finish();
  return result;
}

VerifierSpec read_reward_config(MapReader& root, const ConfigContext& context) {
  const PolicySpec& policy = context.plan.policy;
  if (!trains_on_preferences(policy) && policy.reward == RewardSource::kVerifier) {
    return read_verifier(root.map("reward", true), context);
  }
  if (trains_on_preferences(policy)) {
    if (root.has("reward")) {
      context.warnings.emplace_back("reward is not used: offline dpo has no rewards");
    }
    root.ignore("reward");
  } else {
    refuse_key(root,
               "reward",
               "the plan takes rewards from a model (policy.reward: model): leave the block out, "
               "or plan with policy.reward: verifier");
  }
  VerifierSpec none;
  none.kind = VerifierKind::kNone;
  return none;
}

}  // namespace rpeg
