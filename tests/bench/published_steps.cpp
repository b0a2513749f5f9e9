// Published PPO step times beside the model's: predicts the plan that is known exactly (all
// operations one after the other on all GPUs, tp = 8, pp = nodes, dp = 1), and searches for a
// better one. Prints one row per published row, residuals by vertex, and the summary.
//   rpeg_published_steps --data FOLDER --hw configs/hw/a100-80g-dgx.yaml [--search EVALUATIONS]
// FOLDER holds ppo_step_times_a100.csv: scaling, gpus, actor_and_ref, critic_and_reward,
// batch_prompts, prompt_tokens, generated_tokens, …, real_heuristic_s, real_searched_s.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "rpeg/base/error.h"
#include "rpeg/search/search.h"

namespace {

using namespace rpeg;

struct PublishedRow {
  std::string scaling, actor, critic;
  int gpus = 0;
  std::int64_t prompts = 0, prompt_tokens = 0, generated = 0;
  double heuristic_s = 0.0, searched_s = 0.0;
};

std::vector<PublishedRow> read_rows(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorKind::kUsage, "cannot read " + path);
  std::string line;
  std::getline(file, line);  // the header
  std::vector<PublishedRow> rows;
  while (std::getline(file, line)) {
    std::vector<std::string> cells;
    std::stringstream stream(line);
    for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
    if (cells.size() < 11) throw Error(ErrorKind::kUsage, path + ": a row needs 11 cells: " + line);
    rows.push_back({cells[0],
                    cells[2],
                    cells[3],
                    std::stoi(cells[1]),
                    std::stoll(cells[4]),
                    std::stoll(cells[5]),
                    std::stoll(cells[6]),
                    std::stod(cells[9]),
                    std::stod(cells[10])});
  }
  return rows;
}

/// Shapes of Llama-2 (7B, 13B, 70B) and CodeLlama (34B), from their Hugging Face configurations.
ModelSpec llama(const std::string& size) {
  ModelSpec model;
  model.vocab_size = 32000;
  model.head_dim = 128;
  const auto set = [&](std::int64_t layers,
                       std::int64_t hidden,
                       std::int64_t ffn,
                       std::int64_t heads,
                       std::int64_t kv_heads) {
    model.layers = layers;
    model.hidden_dim = hidden;
    model.ffn_dim = ffn;
    model.num_heads = heads;
    model.num_kv_heads = kv_heads;
  };
  if (size == "7B") set(32, 4096, 11008, 32, 32);
  if (size == "13B") set(40, 5120, 13824, 40, 40);
  if (size == "34B") set(48, 8192, 22016, 64, 8);
  if (size == "70B") set(80, 8192, 28672, 64, 8);
  if (model.layers == 0) throw Error(ErrorKind::kUsage, "unknown model size " + size);
  return model;
}

/// Published with the rows: sequence parallelism, full recomputation, four mini-batches, responses
/// of exactly `generated` tokens. At dp = 1 the ZeRO stage changes nothing. Reference and reward
/// weights came from host memory, which RPEG does not price: 2 GB a GPU at most, 0.1 s.
WorkloadConfig make_config(const PublishedRow& row) {
  WorkloadConfig config;
  config.hardware.racks = 1;
  config.hardware.nodes_per_rack = row.gpus / 8;
  config.hardware.gpus_per_node = 8;
  for (const ModelRole role : {ModelRole::kActor, ModelRole::kReference}) {
    config.models[static_cast<std::size_t>(role)] = llama(row.actor);
  }
  for (const ModelRole role : {ModelRole::kCritic, ModelRole::kReward}) {
    config.models[static_cast<std::size_t>(role)] = llama(row.critic);
  }
  config.workload.batch_size = row.prompts;
  config.workload.context_length = row.prompt_tokens;
  config.workload.generation_length = row.generated;
  config.policy.algorithm = Algorithm::kPpo;
  config.policy.allow_fusion = false;
  config.policy.minibatches = 4;
  config.optimizer.recompute = Recompute::kFull;
  config.optimizer.sequence_parallel = true;
  config.optimizer.zero_stage = 1;
  config.seed = 1;
  return config;
}

/// The heuristic of the ReaL paper: pipelines cut inference and generation into pp micro-batches,
/// training into 2·pp (the defaults of its public code).
Plan heuristic_plan(const WorkloadConfig& config) {
  const int nodes = config.hardware.nodes_per_rack;
  Plan plan;
  for (const Vertex& vertex : build_graph(config.policy, {}).vertices) {
    const std::int64_t m = nodes == 1 ? 1 : (is_training(vertex.op) ? 2 * nodes : nodes);
    plan.vertices.push_back({{1, nodes, 8}, m, {{0, 0}, {0, nodes - 1}, {0, 7}}});
  }
  return plan;
}

/// The A800 is an A100 whose NVLink has 400 instead of 600 GB/s.
HardwareProfile as_a800(HardwareProfile profile) {
  constexpr double kSlower = 600.0 / 400.0;
  profile.collective[0].beta_s_per_byte *= kSlower;
  profile.point_to_point[0].beta_s_per_byte *= kSlower;
  for (auto* table : {&profile.collective_table[0], &profile.point_to_point_table[0]}) {
    if (table->empty()) continue;
    const double latency_s = table->front().second;
    for (auto& [bytes, seconds] : *table) seconds = latency_s + (seconds - latency_s) * kSlower;
  }
  return profile;
}

double iteration_s(const WorkloadConfig& config, const HardwareProfile& profile) {
  return evaluate_plan(heuristic_plan(config), config, profile).metrics.iteration_time_s;
}

bool is_fitted(const PublishedRow& row) { return row.gpus == 8 && row.actor == "7B"; }

/// Host seconds per layer and decode step by least squares of relative errors on the 8-GPU rows;
/// the prediction is linear in it.
double fit_host_s(const std::vector<PublishedRow>& rows, HardwareProfile profile) {
  double numerator = 0.0;
  double denominator = 0.0;
  for (const PublishedRow& row : rows) {
    if (!is_fitted(row)) continue;
    const WorkloadConfig config = make_config(row);
    profile.host_step_per_layer_s = 0.0;
    const double without = iteration_s(config, profile);
    constexpr double kProbe = 1e-4;
    profile.host_step_per_layer_s = kProbe;
    const double slope = (iteration_s(config, profile) - without) / kProbe / row.heuristic_s;
    numerator += slope * (1.0 - without / row.heuristic_s);
    denominator += slope * slope;
  }
  return std::max(0.0, numerator / denominator);
}

std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<double> ranks;
  for (const double value : values) {
    double rank = 0.5;
    for (const double other : values) rank += other < value ? 1.0 : (other == value ? 0.5 : 0.0);
    ranks.push_back(rank);
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0.0, aa = 0.0, bb = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return ab / std::sqrt(aa * bb);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

std::string row_text(const PublishedRow& row) {
  return fmt::format("{:6} {:4} {:>4} {:>4} {:4} x {:4}",
                     row.scaling,
                     row.gpus,
                     row.actor,
                     row.critic,
                     row.prompts,
                     row.generated);
}

void predict(const std::vector<PublishedRow>& rows, const HardwareProfile& profile) {
  fmt::print("{:34} {:>9} {:>9} {:>7}   seconds of g_pi, i_R, i_V, i_ref, t_V, t_pi\n",
             "scaling gpus actor critic",
             "published",
             "predicted",
             "error");
  std::vector<double> errors, published, predicted;
  for (const PublishedRow& row : rows) {
    const WorkloadConfig config = make_config(row);
    const Evaluation evaluation = evaluate_plan(heuristic_plan(config), config, profile);
    const double seconds = evaluation.metrics.iteration_time_s;
    const double error = seconds / row.heuristic_s - 1.0;
    std::string parts;
    for (std::size_t v = 0; v < evaluation.plan.vertices.size(); ++v) {
      parts += fmt::format(" {:6.2f}", evaluation.priced.tasks.tasks[v].time.total_s);
    }
    fmt::print("{} {:9.1f} {:9.1f} {:+6.1f}%  {}{}{}\n",
               row_text(row),
               row.heuristic_s,
               seconds,
               100.0 * error,
               parts,
               is_fitted(row) ? "  (fitted)" : "",
               evaluation.fits() ? "" : "  (over memory)");
    if (is_fitted(row)) continue;
    errors.push_back(std::abs(error));
    published.push_back(row.heuristic_s);
    predicted.push_back(seconds);
  }
  fmt::print("{} rows not fitted: median |error| {:.1f} %, max {:.1f} %, Spearman {:.3f}\n",
             errors.size(),
             100.0 * median(errors),
             100.0 * *std::max_element(errors.begin(), errors.end()),
             correlation(ranks_of(published), ranks_of(predicted)));
}

/// Rows of one set-up differ in the tokens generated and have the same tokens in all: from the
/// shortest and the longest follow the seconds of a token and those of everything else.
void split_by_tokens(const std::vector<PublishedRow>& rows, const HardwareProfile& profile) {
  std::map<std::string, std::vector<const PublishedRow*>> setups;
  for (const PublishedRow& row : rows) {
    setups[fmt::format("{:6} {:4} {:>4} {:>4}", row.scaling, row.gpus, row.actor, row.critic)]
        .push_back(&row);
  }
  fmt::print("\n{:34} {:>19} {:>26}\n", "published / predicted", "ms a token", "all else, s");
  for (auto& [name, of_setup] : setups) {
    std::ranges::sort(of_setup, {}, &PublishedRow::generated);
    const PublishedRow& few = *of_setup.front();
    const PublishedRow& many = *of_setup.back();
    if (few.generated == many.generated) continue;
    const auto tokens = static_cast<double>(many.generated - few.generated);
    const auto line = [&](double few_s, double many_s) {
      const double token_s = (many_s - few_s) / tokens;
      return std::pair(token_s, few_s - static_cast<double>(few.generated) * token_s);
    };
    const auto published = line(few.heuristic_s, many.heuristic_s);
    const auto predicted =
        line(iteration_s(make_config(few), profile), iteration_s(make_config(many), profile));
    fmt::print("{:34} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:5.2f}x\n",
               name,
               1e3 * published.first,
               1e3 * predicted.first,
               published.second,
               predicted.second,
               published.second / predicted.second);
  }
}

void search(const std::vector<PublishedRow>& rows,
            const HardwareProfile& profile,
            std::int64_t evaluations) {
  fmt::print(
      "\nplan of the search against the heuristic plan, predicted, and what ReaL's search "
      "reports\n{:34} {:>9} {:>9} {:>9} {:>6} {:>10}\n",
      "scaling gpus actor critic",
      "heuristic",
      "searched",
      "factor",
      "ReaL",
      "whole space");
  int reached = 0;
  for (const PublishedRow& row : rows) {
    WorkloadConfig config = make_config(row);
    SearchOptions options;
    options.evaluations = evaluations;
    const double heuristic = iteration_s(config, profile);
    const double found = search_plan(config, profile, options).best.metrics.iteration_time_s;
    config.optimizer.staleness_actor = {0, 1};
    config.optimizer.staleness_critic = {0, 1};
    config.policy.allow_ac_share = row.actor == row.critic;
    const double open = search_plan(config, profile, options).best.metrics.iteration_time_s;
    const double real = row.heuristic_s / row.searched_s;
    const bool enough = heuristic / found >= 0.9 * real;
    reached += enough ? 1 : 0;
    fmt::print("{} {:9.1f} {:9.1f} {:8.2f}x {:5.2f}x {:9.2f}x{}\n",
               row_text(row),
               heuristic,
               found,
               heuristic / found,
               real,
               heuristic / open,
               enough ? "" : "  below 0.9 x ReaL");
  }
  fmt::print("{} of {} rows reach 0.9 x the factor of ReaL's search\n", reached, rows.size());
}

void run(const std::string& data, const std::string& hw, std::int64_t evaluations) {
  const std::vector<PublishedRow> rows = read_rows(data + "/ppo_step_times_a100.csv");
  HardwareProfile profile = as_a800(load_hardware_profile(hw));
  profile.host_step_per_layer_s = 0.0;
  fmt::print("without host time:\n");
  predict(rows, profile);
  split_by_tokens(rows, profile);
  profile.host_step_per_layer_s = fit_host_s(rows, profile);
  fmt::print("\nhost_step_per_layer fitted on the three 8-GPU rows: {:.1f} us\n",
             1e6 * profile.host_step_per_layer_s);
  predict(rows, profile);
  if (evaluations > 0) search(rows, profile, evaluations);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Published PPO step times beside predictions", "rpeg_published_steps");
  std::string data, hw;
  std::int64_t evaluations = 0;
  app.add_option("--data", data, "Folder with ppo_step_times_a100.csv")->required();
  app.add_option("--hw", hw, "Hardware profile of an A100 80 GB")->required();
  app.add_option("--search", evaluations, "Also search, with so many evaluations a row");
  CLI11_PARSE(app, argc, argv);
  try {
    run(data, hw, evaluations);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
  return 0;
}
