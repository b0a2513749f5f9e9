#include "rpeg/job/compile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <cstdlib>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "support/test_directory.h"
#include "support/tiny_job.h"

namespace rpeg {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;

class CompileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = test::test_directory();
    fs::remove_all(folder_);
  }

  /// Writes the files of a job; tests then damage some of them.
  void write(const PlanFile& plan, const std::map<std::string, std::string>& replace = {}) {
    job_yaml_ = write_tiny_job(folder_, plan, replace);
  }

  Job compile() {
    std::vector<std::string> warnings;
    const JobConfig config = load_job_config(job_yaml_, warnings);
    return compile_job(config, load_plan_file(config.plan), folder_ / "run");
  }

  std::string fault() {
    try {
      compile();
    } catch (const Error& error) {
      EXPECT_EQ(exit_code(error.kind()), 2);
      return error.what();
    }
    ADD_FAILURE() << "compiled";
    return "";
  }

  void replace_in(const fs::path& file, const std::string& from, const std::string& to) {
    std::string text = read_file(folder_ / file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    write_file_atomic(folder_ / file, text.replace(at, from.size(), to));
  }

  Job round_trip(const Job& job) {
    write_file_atomic(folder_ / "run/run.yaml", job_text(job, nullptr));
    return load_job(folder_ / "run/run.yaml");
  }

  fs::path folder_;
  fs::path job_yaml_;
};

PlanFile split_plan(Algorithm algorithm) {
  WorkloadConfig inputs = tiny_inputs(algorithm);
  inputs.policy.minibatches = 2;
  return tiny_plan(inputs,
                   {{"g_pi", "r0 n[0-1] g[0-1]"},
                    {"i_V", "r0 n[0-0] g[2-3]"},
                    {"t_V", "r0 n[0-0] g[1-2]"},
                    {"t_pi", "r0 n[0-0] g[0-2]"}});
}

/// Cut, stale, with tensor and pipeline parallelism.
PlanFile deep_plan() {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.workload.gen_quantiles = {{0.5, 2}, {1.0, 4}};
  PlanFile plan = tiny_plan(inputs,
                            {{"g_pi", "r0 n[0-1] g[0-1] as 2 1 2"},
                             {"i_ref", "r0 n[0-0] g[2-3] as 1 2 1"},
                             {"t_pi", "r0 n[1-1] g[0-3] as 1 2 2"}},
                            {.tau_actor = 1, .cuts = 1});
  plan.schedule.back().shift = 1;  // t_pi beside the generation of the next iteration
  plan.predicted.breakdown["t_pi->g_pi"].bytes = 1000.0;
  return plan;
}

TEST_F(CompileTest, TakesNumbersAndPathsFromTheFiles) {
  PlanFile plan = split_plan(Algorithm::kPpo);
  plan.inputs.models[0]->rope_theta = 5000.0;  // the plan does not care; config.json says 10000
  write(plan);
  const Job job = compile();
  EXPECT_EQ(job.inputs.model(ModelRole::kActor).rope_theta, 10000.0);
  EXPECT_EQ(job.config.runtime.trace_dir, folder_ / "run/trace");
  EXPECT_EQ(job.seed, 7U);
  // GPUs 0 1 2 3 of node 0, 0 1 of node 1.
  ASSERT_EQ(job.ranks.size(), 6U);
  EXPECT_EQ(job.ranks[4].gpu, 4);
  EXPECT_EQ(job.ranks[4].node, 1);
  EXPECT_EQ(job.ranks[4].slot, 0);
  check_inputs(job);
}

TEST_F(CompileTest, RunYamlReadsBackEqual) {
  for (const PlanFile& plan :
       {split_plan(Algorithm::kPpo), split_plan(Algorithm::kGrpo), deep_plan()}) {
    write(plan,
          {{"sampling: {temperature: 1.0}", "sampling: {temperature: 0.7, top_p: 0.9, top_k: 4}"},
           {"reward: {verifier: copy}", "reward: {verifier: regex, pattern: \"^[0-9]+: \\\\w\"}"},
           {"  prompts: data.jsonl", "  prompts: data.jsonl\n  template: \"{prompt}\\n\""}});
    const Job job = compile();
    const Job back = round_trip(job);
    EXPECT_EQ(job_text(back, nullptr), job_text(job, nullptr));
    EXPECT_EQ(back.ranks, job.ranks);
    EXPECT_EQ(back.blocks, job.blocks);
    EXPECT_EQ(back.copies, job.copies);
    EXPECT_EQ(back.vertex_copy, job.vertex_copy);
    EXPECT_EQ(back.transfers, job.transfers);
    EXPECT_EQ(back.graph, job.graph);
    EXPECT_EQ(back.plan, job.plan);
    EXPECT_EQ(back.inputs, job.inputs);
    EXPECT_EQ(back.schedule, job.schedule);
    EXPECT_EQ(back.config.models, job.config.models);
    EXPECT_EQ(back.config.verifier.pattern, "^[0-9]+: \\w");
    EXPECT_EQ(back.config.data.train.prompt_template, "{prompt}\n");
    EXPECT_EQ(back.seed, job.seed);
    check_programs(back, 3);
  }
}

TEST_F(CompileTest, AnAlteredRunYamlIsRefused) {
  write(split_plan(Algorithm::kGrpo));
  const Job job = compile();
  Provenance provenance;
  provenance.tool = "rpeg-jobplan";
  write_file_atomic(folder_ / "run.yaml", job_text(job, &provenance));
  EXPECT_EQ(load_job(folder_ / "run.yaml").ranks, job.ranks);
  replace_in("run.yaml", "tool: rpeg-jobplan", "tool: other");  // provenance is no content
  EXPECT_EQ(load_job(folder_ / "run.yaml").ranks, job.ranks);
  replace_in("run.yaml", "iterations: 5", "iterations: 6");
  try {
    load_job(folder_ / "run.yaml");
    FAIL() << "loaded";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 2);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("run.yaml"), HasSubstr("altered")));
  }
  write_file_atomic(folder_ / "run.yaml", "schema: rpeg-run/1\n");
  EXPECT_THROW(load_job(folder_ / "run.yaml"), Error);
}

TEST_F(CompileTest, ShapesMustBeThePlannedOnes) {
  PlanFile plan = split_plan(Algorithm::kGrpo);
  plan.inputs.models[0]->ffn_dim = 16;
  plan.inputs.models[0]->layers = 3;
  write(plan);
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("models.actor"),
                    HasSubstr("layers is 3 in the plan, 2 in the model"),
                    HasSubstr("ffn_dim is 16 in the plan, 12 in the model")));
}

TEST_F(CompileTest, WeightsMustFitTheirConfiguration) {
  write(split_plan(Algorithm::kGrpo));
  ModelSpec other = tiny_spec();
  other.num_heads = 4;  // q_proj and o_proj grow
  write_tiny_model(folder_ / "other", other);
  fs::copy_file(folder_ / "other/model.safetensors",
                folder_ / "models/actor/model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(
      fault(),
      HasSubstr("model.layers.0.self_attn.q_proj.weight has shape [16, 8], expected [8, 8]"));
  other = tiny_spec();
  other.layers = 1;
  write_tiny_model(folder_ / "other", other);
  fs::copy_file(folder_ / "other/model.safetensors",
                folder_ / "models/actor/model.safetensors",
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("model.layers.1.input_layernorm.weight is missing"),
                    HasSubstr("and 4 more")));
}

TEST_F(CompileTest, TruncatedWeightsAreReported) {
  write(split_plan(Algorithm::kGrpo));
  fs::resize_file(folder_ / "models/actor/model.safetensors", 2000);
  EXPECT_THAT(fault(), HasSubstr("model.safetensors"));
}

TEST_F(CompileTest, AMissingModelIsReported) {
  write(split_plan(Algorithm::kGrpo));
  fs::remove_all(folder_ / "models/actor");
  EXPECT_THAT(fault(), AllOf(HasSubstr("models.actor"), HasSubstr("is not a directory")));
}

TEST_F(CompileTest, TheTokenizerMustNotExceedTheModel) {
  write(split_plan(Algorithm::kGrpo));
  replace_in("models/actor/tokenizer.json", "\"=\": 7", "\"=\": 11");
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("vocabularies of model and tokenizer disagree"),
                    HasSubstr("12 tokens"),
                    HasSubstr("embedding 8")));
}

TEST_F(CompileTest, PromptsMustFitThePlanAndTheModel) {
  PlanFile plan = split_plan(Algorithm::kGrpo);
  plan.inputs.workload.context_length = 2;  // prompts have 3 tokens
  write(plan);
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("data.prompts"),
                    HasSubstr("has 3 tokens"),
                    HasSubstr("data.max_prompt_tokens: 2")));
  write(plan, {{"  shuffle: true", "  max_prompt_tokens: 2\n  over_long: truncate"}});
  compile();
  plan = split_plan(Algorithm::kGrpo);
  plan.inputs.workload.generation_length = 30;  // of 32 positions
  write(plan);
  EXPECT_THAT(fault(), AllOf(HasSubstr("33 positions"), HasSubstr("32")));
}

TEST_F(CompileTest, AnswersMustSuitTheVerifier) {
  write(split_plan(Algorithm::kGrpo), {{"  shuffle: true", "  answer_field: solution"}});
  EXPECT_THAT(fault(), AllOf(HasSubstr("data.prompts"), HasSubstr("solution")));
}

TEST_F(CompileTest, EpochsMustAgreeWithThePlan) {
  write(split_plan(Algorithm::kGrpo),
        {{"  iterations: 5", "  iterations: 5\n  grpo: {minibatches: 3}"}});
  EXPECT_THAT(fault(),
              HasSubstr("train.grpo.minibatches is 3, but the plan was made for "
                        "policy.minibatches = 2"));
}

TEST_F(CompileTest, PlansThatTheRuntimeCannotRunAreRefusedByName) {
  PlanFile plan = tiny_plan(tiny_inputs(Algorithm::kGrpo), {});
  plan.inputs.optimizer.zero_stage = 2;
  plan.inputs.models[0]->gated_ffn = false;
  write(plan);
  EXPECT_THAT(fault(),
              AllOf(HasSubstr("optimizer.zero_stage: 2"),
                    HasSubstr("set optimizer.zero_stage: 1"),
                    HasSubstr("models.actor.gated_ffn: false")));
}

TEST_F(CompileTest, ChangedInputsAreNoticed) {
  write(split_plan(Algorithm::kGrpo));
  const Job job = compile();
  replace_in("data.jsonl", "\"12\"", "\"13\"");
  try {
    check_inputs(job);
    FAIL() << "unnoticed";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("data.jsonl"), HasSubstr("has changed")));
  }
}

/// 32 nodes with 8 GPUs: everything on all of them, or training apart from the rest.
Job large_job(const std::string& generation, const std::string& training) {
  WorkloadConfig inputs = tiny_inputs(Algorithm::kGrpo);
  inputs.hardware.nodes_per_rack = 32;
  inputs.hardware.gpus_per_node = 8;
  inputs.workload.batch_size = 256;
  return tiny_job(
      tiny_plan(inputs, {{"g_pi", generation}, {"i_ref", generation}, {"t_pi", training}}));
}

TEST_F(CompileTest, RunYamlOfManyRanksStaysSmall) {
  const std::string all = "r0 n[0-31] g[0-7]";
  const Job together = large_job(all, all);
  const Job apart = large_job("r0 n[0-15] g[0-7]", "r0 n[16-31] g[0-7]");
  for (const Job& job : {together, apart}) {
    ASSERT_EQ(job.ranks.size(), 256U);
    check_programs(job, 3);
    EXPECT_LT(job_text(job, nullptr).size(), 1024U * 1024U);  // 50 MB at 1,024 ranks
  }
}

TEST_F(CompileTest, ScriptsStartTheRightNumberOfRanks) {
  write(split_plan(Algorithm::kGrpo),
        {{"  trace: {dir: trace}",
          "  trace: {dir: trace}\n"
          "slurm: {partition: gpu, time: \"04:00:00\", account: a01, gres_per_node: \"gpu:4\","
          " modules: [openmpi], container: img.sqsh, extra: [\"--exclusive\"]}"}});
  const Job job = compile();
  const ScriptPaths paths{"/some dir/run.yaml", "/opt/rpeg/bin/rpeg-run"};
  const std::string local = mpirun_script(job, paths);
  EXPECT_THAT(local,
              AllOf(HasSubstr("mpirun -np 5 "),
                    HasSubstr("\"$here\"/'run.yaml' \"$@\""),
                    HasSubstr("rpeg_run='/opt/rpeg/bin/rpeg-run'")));
  const std::string batch = sbatch_script(job, paths);
  // Ranks 0 to 2 on node 0, two on node 1: unequal, so that hosts are listed.
  EXPECT_THAT(batch,
              AllOf(HasSubstr("#SBATCH --nodes=2\n#SBATCH --ntasks=5\n#SBATCH --ntasks-per-node=3"),
                    HasSubstr("#SBATCH --gres=gpu:4\n"),
                    HasSubstr("#SBATCH --exclusive\n"),
                    HasSubstr("#SBATCH --signal=USR1@60\n"),
                    HasSubstr("module load 'openmpi'\n"),
                    HasSubstr("counts=(3 2)"),
                    HasSubstr("srun --mpi=pmix --ntasks=5 --distribution=arbitrary "
                              "--container-image='img.sqsh'"),
                    HasSubstr("--config '/some dir/run.yaml' \"$@\"")));
  for (const std::string& script : {local, batch}) {
    write_file_atomic(folder_ / "script.sh", script);
    EXPECT_EQ(std::system(("bash -n " + (folder_ / "script.sh").string()).c_str()), 0) << script;
  }
  EXPECT_THAT(
      job_summary(job),
      AllOf(HasSubstr("grpo on 5 ranks of 2 nodes"),
            HasSubstr("| t_pi | train | actor | (3,1,1) | 1 | r0 n[0-0] g[0-2] | 0-2 | 0 |"),
            HasSubstr("1024 per second, 8.847e+07 per day")));
}

TEST_F(CompileTest, TheSummaryComparesWithThePrediction) {
  write(deep_plan());
  const std::string summary = job_summary(compile());
  EXPECT_THAT(summary,
              AllOf(HasSubstr("| actor | language | g_pi.1 g_pi.2 | k - 1 (0 before) | 0-1 4-5 |"),
                    HasSubstr("2 kB predicted, "),
                    HasSubstr("| 4 | 1 | 0 | g_pi.1 g_pi.2 t_pi |")));
}

TEST_F(CompileTest, RanksMustFitTheirDevice) {
  write(split_plan(Algorithm::kGrpo));
  std::vector<std::string> warnings;
  const JobConfig config = load_job_config(job_yaml_, warnings);
  const PlanFile plan = load_plan_file(config.plan);
  (void)compile_job(config, plan, folder_ / "run", 1'000'000);
  EXPECT_THROW((void)compile_job(config, plan, folder_ / "run", 1000), Error);
}

TEST_F(CompileTest, EqualNodesNeedNoListOfHosts) {
  write(tiny_plan(tiny_inputs(Algorithm::kGrpo), {{"g_pi", "r0 n[0-1] g[0-1]"}}));
  const std::string batch = sbatch_script(compile(), {"/run.yaml", ""});
  EXPECT_THAT(batch,
              AllOf(HasSubstr("--ntasks-per-node=2\n"),
                    HasSubstr("--distribution=block"),
                    testing::Not(HasSubstr("SLURM_HOSTFILE")),
                    testing::Not(HasSubstr("--gres"))));
}

/// Exit code of rpeg-jobplan; its messages go to `log`.
int jobplan(const std::string& arguments, const fs::path& log) {
  const std::string command = std::string(RPEG_BINARY_DIR) + "/bin/rpeg-jobplan " + arguments +
                              " >" + log.string() + " 2>&1";
  return WEXITSTATUS(std::system(command.c_str()));
}

TEST_F(CompileTest, TheToolWritesEverythingAndReportsInputErrors) {
  write(split_plan(Algorithm::kPpo));
  const fs::path log = folder_ / "log";
  const std::string config = "--config " + job_yaml_.string();
  const fs::path out = folder_ / "out";
  ASSERT_EQ(jobplan(config + " --out-dir " + out.string(), log), 0) << read_file(log);
  EXPECT_EQ(load_job(out / "run.yaml").ranks.size(), 6U);
  EXPECT_NE(fs::status(out / "mpirun.sh").permissions() & fs::perms::owner_exec, fs::perms::none);
  EXPECT_TRUE(fs::exists(out / "summary.md"));
  EXPECT_FALSE(fs::exists(out / "submit.sbatch"));
  ASSERT_EQ(jobplan(config + " --emit-sbatch --out-dir " + out.string(), log), 0);
  EXPECT_TRUE(fs::exists(out / "submit.sbatch"));

  EXPECT_EQ(jobplan(config + " --device-gb 0.000001 --out-dir " + out.string(), log), 2);
  EXPECT_THAT(read_file(log), AllOf(HasSubstr("rank "), HasSubstr("needs"), HasSubstr("1 kB")));

  EXPECT_EQ(jobplan(config, log), 2);
  EXPECT_THAT(read_file(log), HasSubstr("--out-dir"));
  EXPECT_EQ(jobplan(config + " --out-dir " + job_yaml_.string() + "/out", log), 2);
  EXPECT_THAT(read_file(log), HasSubstr("job.yaml"));
  write(split_plan(Algorithm::kPpo), {{"  shuffle: true", "  shufle: true"}});
  EXPECT_EQ(jobplan(config + " --out-dir " + out.string(), log), 2);
  EXPECT_THAT(read_file(log), HasSubstr("did you mean `shuffle`"));
}

}  // namespace
}  // namespace rpeg
