#include "rpeg/calibrate/calibrate.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <fstream>

#include "calibrate/compute.h"
#include "calibrate/network.h"
#include "calibrate/timing.h"
#include "rpeg/base/error.h"
#include "rpeg/base/units.h"
#include "rpeg/comm/mpi.h"
#include "rpeg/kernels/linear.h"

namespace rpeg {
namespace {

constexpr std::array<const char*, kTiers> kTierSuffix = {"g", "n", "r"};
constexpr std::array<const char*, kTiers> kTierName = {
    "links inside a node", "links between nodes", "links between racks"};
constexpr double kReferenceRows = 1024.0;  // non_gemm_batch_cal
// Share of a node's memory that its ranks may plan with; the rest is the system's.
constexpr double kUsableMemory = 0.9;
// Worse than these, the user is warned. Waiting for other ranks between points costs some share.
constexpr double kAcceptedRms = 0.5;
constexpr double kLeastCoreShare = 0.75;
// Efficiencies relative to measured rates; caches lift them above 1. hw.yaml refuses what lies
// outside.
constexpr double kLeastEfficiency = 1e-3;
constexpr double kMostEfficiency = 4.0;

CalibrationEffort effort_of(bool quick) {
  if (quick) {
    return {.point_s = 0.12,
            .slowest_call_s = 0.2,
            .most_rows = 2048,
            .most_message_bytes = std::int64_t{4} << 20};
  }
  return {.point_s = 1.0,
          .slowest_call_s = 2.0,
          .most_rows = 4096,
          .most_message_bytes = std::int64_t{16} << 20};
}

double share(double measured, double reference) {
  return std::clamp(measured / reference, kLeastEfficiency, kMostEfficiency);
}

/// One calibration under way.
struct Calibration {
  Comm& world;
  const CalibrationOptions& options;
  const CalibrationProgress& progress;
  CalibrationEffort effort;
  CalibrationStep step;
  HardwareProfile profile;

  const ModelSpec& model() const { return options.workload.model; }

  void begin(const std::string& stage) {
    ++step.index;
    step.stage = stage;
    announce("");
  }
  void announce(const std::string& detail) {
    step.detail = detail;
    world.set_context(fmt::format("calibration, {} {}", step.stage, detail));
    progress(step);
  }
  Announce announcer() {
    return [this](const std::string& detail) { announce(detail); };
  }
};

void log_points(const char* what, const std::vector<TimedPoint>& points) {
  for (const TimedPoint& point : points) {
    spdlog::debug("{} x={:g} seconds={:.4g}", what, point.x, point.seconds);
  }
}

void warn_of_scatter(const Comm& world, const char* what, const FitQuality& quality) {
  if (world.rank() == 0 && quality.relative_rms > kAcceptedRms) {
    spdlog::warn("{}: the fit misses its points by {:.0f} % (RMS); was the machine busy?",
                 what,
                 100.0 * quality.relative_rms);
  }
}

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Says so when the ranks had to share their cores: times are then those of a busy machine.
void warn_of_busy_cores(Comm& world, double processor_s, double wall_s) {
  const double core_share = mean_over_ranks(world, processor_s / wall_s);
  if (world.rank() == 0 && core_share < kLeastCoreShare) {
    spdlog::warn(
        "a rank got {:.0f} % of a core while it computed: other programs are running, or there are "
        "more ranks than cores; what is measured now holds for that situation only",
        100.0 * core_share);
  }
}

void calibrate_gemm(Calibration& run) {
  run.begin("memory bandwidth");
  HardwareProfile& profile = run.profile;
  profile.memory_bandwidth = read_bandwidth(run.world, run.model(), run.effort);
  run.begin("matrix products");
  const double parameters = layer_matrix_parameters(run.model());
  const auto start = std::chrono::steady_clock::now();
  const double processor_start_s = processor_seconds();
  const std::vector<TimedPoint> times =
      gemm_times(run.world, run.model(), run.effort, run.announcer());
  warn_of_busy_cores(
      run.world,
      processor_seconds() - processor_start_s,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  log_points("gemm", times);
  const GemmFit fit = fit_gemm({.flop_per_row = 2.0 * parameters,
                                .weight_bytes = parameters * sizeof(float),
                                .memory_bytes_per_s = profile.memory_bandwidth},
                               times);
  warn_of_scatter(run.world, "matrix products", fit.quality);
  profile.flops_per_gpu = fit.flop_per_s;
  profile.gemm_m_half = fit.m_half;
  profile.decode_bw_eff = std::max(fit.bandwidth_eff, kLeastEfficiency);
  for (const char* key : {"flops_per_gpu", "gemm_m_half", "decode_bw_eff"}) {
    profile.fit[key] = fit.quality;
  }
}

void calibrate_non_gemm(Calibration& run) {
  run.begin("norms, rotations and gates");
  HardwareProfile& profile = run.profile;
  const NonGemmTimes times = non_gemm_times(run.world, run.model(), run.effort);
  log_points("replicated", times.replicated);
  log_points("split", times.split);
  const LineFit replicated = fit_line(times.replicated);
  const LineFit split = fit_line(times.split);
  profile.non_gemm_constant = replicated.intercept_s + split.intercept_s;
  profile.non_gemm_batch_cal = kReferenceRows;
  profile.non_gemm_replicated = replicated.slope_s * kReferenceRows;
  profile.non_gemm_scaling = split.slope_s * kReferenceRows;
  profile.fit["non_gemm_replicated"] = replicated.quality;
  profile.fit["non_gemm_scaling"] = split.quality;
}

void calibrate_other_kernels(Calibration& run) {
  HardwareProfile& profile = run.profile;
  run.begin("attention");
  profile.attention_eff = share(attention_flop_rate(run.world, run.options.workload, run.effort),
                                profile.flops_per_gpu);
  profile.kv_bw_eff =
      share(kv_bandwidth(run.world, run.options.workload, run.effort), profile.memory_bandwidth);
  run.begin("optimizer");
  profile.vector_eff =
      share(optimizer_bandwidth(run.world, run.model(), run.effort), profile.memory_bandwidth);
}

/// host_step: what a decode step takes beyond the model's terms (sampling, bookkeeping).
void calibrate_decode(Calibration& run) {
  run.begin("generation");
  HardwareProfile& profile = run.profile;
  const DecodeStep step = decode_step(run.world, run.options.workload, run.effort);
  if (step.seconds == 0.0) {
    return;
  }
  const double parameters = layer_matrix_parameters(run.model());
  const auto kv_values = static_cast<double>(2 * run.model().num_kv_heads * run.model().head_dim);
  const double linear_s =
      std::max(parameters * sizeof(float) / (profile.decode_bw_eff * profile.memory_bandwidth),
               2.0 * parameters * (step.sequences + profile.gemm_m_half) / profile.flops_per_gpu);
  const double cache_s = step.context_tokens * kv_values * sizeof(float) /
                         (profile.kv_bw_eff * profile.memory_bandwidth);
  const double other_s =
      profile.non_gemm_constant + step.sequences / profile.non_gemm_batch_cal *
                                      (profile.non_gemm_scaling + profile.non_gemm_replicated);
  const double modelled_s = step.layers * (linear_s + cache_s + other_s) +
                            step.head_flop / profile.flops_per_gpu +
                            step.logits_bytes / (profile.vector_eff * profile.memory_bandwidth);
  profile.host_step_s = std::max(0.0, step.seconds - modelled_s);
}

// hw.yaml refuses latencies below 10 ns and bandwidths beyond 100 TB/s; a fit may reach zero.
AlphaBeta plausible(const LineFit& fit) {
  return {.alpha_s = std::max(fit.intercept_s, 1e-8),
          .beta_s_per_byte = std::max(fit.slope_s, 1e-14)};
}

AlphaBeta scaled(const AlphaBeta& link, double factor) {
  return {.alpha_s = factor * link.alpha_s, .beta_s_per_byte = factor * link.beta_s_per_byte};
}

/// Fills the tiers that the job does not span: each tier costs twice the one below it.
void estimate_tiers(HardwareProfile& profile, const std::array<bool, kTiers>& measured) {
  const auto estimate = [&](std::size_t tier, const AlphaBeta& collective, const AlphaBeta& p2p) {
    profile.collective[tier] = collective;
    profile.point_to_point[tier] = p2p;
    for (const char* key : {"alpha_coll_", "beta_coll_", "alpha_p2p_", "beta_p2p_"}) {
      profile.estimated.push_back(std::string(key) + kTierSuffix[tier]);
    }
  };
  if (!measured[0]) {
    const auto first = std::find(measured.begin(), measured.end(), true);
    if (first == measured.end()) {
      // A single rank has no link: a copy in memory, with the latency of a message between threads.
      const AlphaBeta copy{.alpha_s = 1e-6, .beta_s_per_byte = 1.0 / profile.memory_bandwidth};
      estimate(0, copy, copy);
    } else {
      const auto tier = static_cast<std::size_t>(first - measured.begin());
      const double factor = 1.0 / static_cast<double>(1U << tier);
      estimate(0,
               scaled(profile.collective[tier], factor),
               scaled(profile.point_to_point[tier], factor));
    }
  }
  for (std::size_t tier = 1; tier < kTiers; ++tier) {
    if (!measured[tier]) {
      estimate(tier,
               scaled(profile.collective[tier - 1], 2.0),
               scaled(profile.point_to_point[tier - 1], 2.0));
    }
  }
}

void calibrate_links(Calibration& run, const std::vector<RankLocation>& locations) {
  std::array<bool, kTiers> measured{};
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    const std::vector<int> ranks = tier_ranks(locations, static_cast<Tier>(tier));
    run.begin(kTierName[tier]);
    if (ranks.empty()) {
      continue;
    }
    const LinkTimes times = link_times(run.world, ranks, run.effort, run.announcer());
    log_points("collective", times.collective);
    log_points("message", times.point_to_point);
    const LineFit collective = fit_line(times.collective);
    const LineFit p2p = fit_line(times.point_to_point);
    run.profile.collective[tier] = plausible(collective);
    run.profile.point_to_point[tier] = plausible(p2p);
    for (const char* coefficient : {"alpha", "beta"}) {
      run.profile.fit[fmt::format("{}_coll_{}", coefficient, kTierSuffix[tier])] =
          collective.quality;
      run.profile.fit[fmt::format("{}_p2p_{}", coefficient, kTierSuffix[tier])] = p2p.quality;
    }
    measured[tier] = true;
  }
  estimate_tiers(run.profile, measured);
}

/// Physical memory of this node, or less where a control group limits it; bytes.
double node_memory() {
  const auto physical =
      static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  double limit = 0.0;  // the file says "max" without a limit
  return limit_file >> limit ? std::min(limit, physical) : physical;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  utsname system{};
  return ::uname(&system) == 0 ? system.machine : "unknown";
}

int most_ranks_on_a_node(const std::vector<RankLocation>& locations) {
  int ranks = 1;
  for (const RankLocation& location : locations) {
    ranks = std::max(ranks, location.slot + 1);
  }
  return ranks;
}

void describe_machine(Calibration& run, int ranks_per_node) {
  HardwareProfile& profile = run.profile;
  profile.memory_per_gpu =
      mean_over_ranks(run.world, kUsableMemory * node_memory() / ranks_per_node);
  profile.device = {{"name", processor_name()},
                    {"backend", "cpu"},
                    {"dtype", "fp32"},
                    {"count_per_node", std::to_string(ranks_per_node)}};
  profile.software = {{"mpi", MpiSession::library_version()},
                      {"compiler", __VERSION__},
                      {"matrix_products", cpu::matrix_libraries()}};
}

}  // namespace

CalibrationWorkload default_calibration_workload() {
  CalibrationWorkload workload;
  workload.model = {.layers = 4,
                    .hidden_dim = 1024,
                    .ffn_dim = 2816,
                    .vocab_size = 8192,
                    .head_dim = 64,
                    .num_heads = 16,
                    .num_kv_heads = 16};
  workload.context_length = 256;
  workload.response_length = 256;
  workload.sequences = 8;
  return workload;
}

CalibrationWorkload calibration_workload(const WorkloadConfig& config) {
  const std::int64_t gpus = config.hardware.gpu_count();
  return {.model = config.model(ModelRole::kActor),
          .context_length = config.workload.context_length,
          .response_length = config.workload.generation_length,
          .sequences = std::max<std::int64_t>(1, (config.workload.sequences() + gpus - 1) / gpus)};
}

HardwareProfile calibrate(Comm& world,
                          const CalibrationOptions& options,
                          const CalibrationProgress& progress) {
  constexpr int kStages = 9;
  Calibration run{world, options, progress, effort_of(options.quick), {0, kStages, "", ""}, {}};
  const auto locations = discover_locations(world, options.racks, options.topology_address);
  describe_machine(run, most_ranks_on_a_node(locations));
  calibrate_gemm(run);
  calibrate_non_gemm(run);
  calibrate_other_kernels(run);
  calibrate_decode(run);
  calibrate_links(run, locations);
  check(run.step.index == kStages, "the number of calibration stages is announced right");
  world.set_context("");
  return run.profile;
}

}  // namespace rpeg
