// rpeg-jobplan: compiles a plan and a job configuration into a run that rpeg-run executes.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <optional>

#include "common.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/job/compile.h"

namespace {

namespace fs = std::filesystem;

struct Flags {
  std::string config;
  std::string out_dir;
  std::string plan;
  std::optional<std::uint64_t> seed;
  double device_gb = 0.0;
  bool emit_sbatch = false;
  bool quiet = false;
  bool debug = false;
};

constexpr const char* kExamples = R"(Examples:
  rpeg-jobplan --config job.yaml --out-dir run
  rpeg-jobplan --config job.yaml --plan plans/other.yaml --out-dir run2 --emit-sbatch
Then start the job with run/mpirun.sh, or submit run2/submit.sbatch.)";

bool parse(int argc, const char* const* argv, Flags* flags) {
  CLI::App app(
      "Compiles a plan and a job configuration into run.yaml, after checking both against "
      "the models and the data.",
      "rpeg-jobplan");
  app.add_option("--config", flags->config, "job configuration (job.yaml)")->required();
  app.add_option("--out-dir", flags->out_dir, "directory to write; created when missing")
      ->required();
  app.add_option("--plan", flags->plan, "plan to compile instead of the one job.yaml names");
  app.add_option("--seed", flags->seed, "overrides the seeds of the job and of random weights")
      ->check(rpeg::apps::seed_of_a_file);
  app.add_option("--device-gb",
                 flags->device_gb,
                 "memory of a device (or of a rank's share of its node) in GB: refuse a job in "
                 "which a rank needs more")
      ->check(CLI::PositiveNumber);
  app.add_flag("--emit-sbatch", flags->emit_sbatch, "also write submit.sbatch; never submits");
  app.add_flag("--quiet", flags->quiet, "only warnings");
  app.add_flag("--debug", flags->debug, "more on what is decided");
  app.footer(kExamples);
  return rpeg::apps::parse_flags(app, argc, argv);
}

void set_seed(std::uint64_t seed, rpeg::JobConfig& config) {
  config.seed = seed;
  for (auto& model : config.models) {
    if (model && model->random_init) {
      model->seed = seed;
    }
  }
}

std::optional<std::int64_t> device_bytes(double gigabytes) {
  constexpr double kBytesPerGb = 1e9;
  if (gigabytes <= 0.0) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(gigabytes * kBytesPerGb);
}

void write_script(const fs::path& path, const std::string& text) {
  rpeg::write_file_atomic(path, text);
  fs::permissions(path,
                  fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                  fs::perm_options::add);
}

void run(int argc, const char* const* argv) {
  Flags flags;
  if (!parse(argc, argv, &flags)) {
    return;
  }
  rpeg::apps::set_up_logging({flags.debug, flags.quiet, ""});
  if (flags.out_dir.empty()) {
    throw rpeg::Error(rpeg::ErrorKind::kUsage, "--out-dir is empty; name a directory");
  }
  const fs::path out_dir = fs::absolute(flags.out_dir).lexically_normal();
  const rpeg::ScriptPaths paths{out_dir / "run.yaml",
                                fs::read_symlink("/proc/self/exe").parent_path() / "rpeg-run"};
  std::vector<std::string> warnings;
  rpeg::JobConfig config = rpeg::load_job_config(flags.config, warnings, flags.plan);
  if (flags.seed) {
    set_seed(*flags.seed, config);
  }
  for (const std::string& warning : warnings) {
    spdlog::warn("{}: {}", flags.config, warning);
  }
  const rpeg::Job job = rpeg::compile_job(
      config, rpeg::load_plan_file(config.plan), out_dir, device_bytes(flags.device_gb));
  const rpeg::Provenance provenance =
      rpeg::apps::make_provenance("rpeg-jobplan", argc, argv, {flags.config, config.plan.string()});

  rpeg::write_file_atomic(out_dir / "summary.md", rpeg::job_summary(job));
  write_script(out_dir / "mpirun.sh", rpeg::mpirun_script(job, paths));
  if (flags.emit_sbatch) {
    rpeg::write_file_atomic(out_dir / "submit.sbatch", rpeg::sbatch_script(job, paths));
  }
  rpeg::write_file_atomic(paths.run_yaml, rpeg::job_text(job, &provenance));
  std::cout << fmt::format("compiled and proven for {} ranks\nrun      {}\nstart    {}\n",
                           job.ranks.size(),
                           paths.run_yaml.string(),
                           (out_dir / "mpirun.sh").string());
  if (flags.emit_sbatch) {
    std::cout << fmt::format("submit   sbatch {}\n", (out_dir / "submit.sbatch").string());
  }
  std::cout << fmt::format("summary  {}\n", (out_dir / "summary.md").string());
}

}  // namespace

int main(int argc, char** argv) {
  return rpeg::apps::run_main("rpeg-jobplan", [&] { run(argc, argv); });
}
