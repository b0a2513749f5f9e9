#include "rpeg/calibrate/kernel_measurements.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "calibrate/csv_table.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr double kMillisecond = 1e-3;
constexpr std::int64_t kLargestTp = 64;  // that hw.yaml has values for
constexpr std::array<const char*, 4> kGemms = {
    "attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj"};
/// `add` is one residual sum, of which a layer has two.
constexpr std::array<const char*, 6> kNonGemms = {
    "input_layernorm", "post_attention_layernorm", "attn_rope", "mlp_act", "add", "add"};

std::string median_of(const std::string& operation) {
  return fmt::format("time_stats.{}.median", operation);
}

template <std::size_t N>
std::vector<std::size_t> medians(const CsvTable& table, const std::array<const char*, N>& names) {
  std::vector<std::size_t> columns;
  for (const char* name : names) {
    columns.push_back(column_of(table, median_of(name)));
  }
  return columns;
}

double sum_s(const CsvTable& table, std::size_t row, const std::vector<std::size_t>& columns) {
  double sum = 0.0;
  for (const std::size_t column : columns) {
    sum += positive_number(table, row, column) * kMillisecond;
  }
  return sum;
}

std::int64_t whole(const CsvTable& table, std::size_t row, std::size_t column) {
  const double value = positive_number(table, row, column);
  const auto number = static_cast<std::int64_t>(value < 1e12 ? value : 0.0);
  if (static_cast<double>(number) != value) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}:{}: column `{}`: expected a whole number, found `{}`",
                            table.file,
                            row + 2,
                            table.columns[column],
                            table.rows[row][column]));
  }
  return number;
}

struct ShapeColumns {
  std::size_t heads, kv_heads, hidden, ffn, gated;
};

ModelSpec shape_of(const CsvTable& table, std::size_t row, const ShapeColumns& columns) {
  ModelSpec model;
  model.layers = 1;
  model.num_heads = whole(table, row, columns.heads);
  model.num_kv_heads = whole(table, row, columns.kv_heads);
  model.hidden_dim = whole(table, row, columns.hidden);
  model.ffn_dim = whole(table, row, columns.ffn);
  model.gated_ffn = truth(table, row, columns.gated);
  model.head_dim = model.hidden_dim / model.num_heads;
  return model;
}

int tensor_size(const CsvTable& table, std::size_t row, std::size_t column) {
  const std::int64_t tp = whole(table, row, column);
  if (tp > kLargestTp) {
    throw Error(ErrorKind::kUsage,
                fmt::format("{}:{}: column `{}`: expected at most {}, found {}",
                            table.file,
                            row + 2,
                            table.columns[column],
                            kLargestTp,
                            tp));
  }
  return static_cast<int>(tp);
}

LayerMeasurements load_layers(const std::filesystem::path& path, const std::string& name) {
  const CsvTable table = load_csv(path);
  const auto gemms = medians(table, kGemms);
  const auto others = medians(table, kNonGemms);
  const ShapeColumns columns{.heads = column_of(table, "n_head"),
                             .kv_heads = column_of(table, "n_kv_head"),
                             .hidden = column_of(table, "n_embd"),
                             .ffn = column_of(table, "n_expanded_embd"),
                             .gated = column_of(table, "use_gated_mlp")};
  const std::size_t tokens = column_of(table, "num_tokens");
  const std::size_t tp = column_of(table, "num_tensor_parallel_workers");
  LayerMeasurements result{.name = name, .model = shape_of(table, 0, columns), .points = {}};
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    if (shape_of(table, row, columns) != result.model) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("{}:{}: another model shape than in line 2; one file holds one model",
                              table.file,
                              row + 2));
    }
    result.points.push_back({.tp = tensor_size(table, row, tp),
                             .tokens = positive_number(table, row, tokens),
                             .gemm_s = sum_s(table, row, gemms),
                             .non_gemm_s = sum_s(table, row, others)});
  }
  return result;
}

std::vector<MessagePoint> load_messages(const std::filesystem::path& path,
                                        const std::string& operation) {
  const CsvTable table = load_csv(path);
  const std::size_t time = column_of(table, median_of(operation));
  const std::size_t ranks = column_of(table, "num_workers");
  const std::size_t size = column_of(table, "size");
  const std::size_t per_node = column_of(table, "devices_per_node");
  std::vector<MessagePoint> points;
  for (std::size_t row = 0; row < table.rows.size(); ++row) {
    points.push_back({.ranks = static_cast<int>(whole(table, row, ranks)),
                      .ranks_per_node = static_cast<int>(whole(table, row, per_node)),
                      .bytes = positive_number(table, row, size),
                      .seconds = positive_number(table, row, time) * kMillisecond});
  }
  return points;
}

/// Model files of a GPU in a folder, by name.
std::vector<std::filesystem::path> model_files(const std::filesystem::path& folder,
                                               const std::string& prefix) {
  std::error_code error;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && !name.starts_with(prefix + "dgx_") && name.ends_with(".csv")) {
      files.push_back(entry.path());
    }
  }
  if (error) {
    throw Error(ErrorKind::kUsage,
                fmt::format("cannot read the folder {}: {}", folder.string(), error.message()));
  }
  if (files.empty()) {
    throw Error(ErrorKind::kUsage,
                fmt::format("no measurements in {}: expected {}<model>.csv, {}dgx_all_reduce.csv "
                            "and {}dgx_send_recv.csv",
                            folder.string(),
                            prefix,
                            prefix,
                            prefix));
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

KernelMeasurements load_kernel_measurements(const std::filesystem::path& folder,
                                            const std::string& gpu) {
  const std::string prefix = gpu + "_";
  KernelMeasurements result;
  for (const auto& file : model_files(folder, prefix)) {
    result.models.push_back(load_layers(file, file.stem().string().substr(prefix.size())));
    result.files.push_back(file);
  }
  const auto all_reduce = folder / (prefix + "dgx_all_reduce.csv");
  const auto send_recv = folder / (prefix + "dgx_send_recv.csv");
  result.all_reduce = load_messages(all_reduce, "all_reduce");
  result.send_recv = load_messages(send_recv, "send_recv");
  result.files.push_back(all_reduce);
  result.files.push_back(send_recv);
  return result;
}

}  // namespace rpeg
