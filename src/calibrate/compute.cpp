#include "calibrate/compute.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <numeric>

#include "calibrate/timing.h"
#include "rpeg/base/error.h"
#include "rpeg/kernels/attention.h"
#include "rpeg/kernels/linear.h"
#include "rpeg/kernels/rmsnorm.h"
#include "rpeg/kernels/rope.h"
#include "rpeg/kernels/silu_gate.h"
#include "rpeg/model/optimizer.h"

namespace rpeg {
namespace {

// Weights, caches and arrays that are measured stay below this, per rank.
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;
constexpr std::int64_t kElementBytes = sizeof(float);
constexpr std::int64_t kReadBlock = 4096;  // values

/// `count` ordinary values: no zeros, no denormals, nothing a processor treats specially.
std::vector<float> ordinary_values(std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = 0.01F + 0.0001F * static_cast<float>(i % 97);
  }
  return values;
}

cpu::AttentionShape attention_shape(const ModelSpec& model) {
  return {.heads = model.num_heads, .kv_heads = model.num_kv_heads, .head_dim = model.head_dim};
}

std::int64_t ffn_matrices(const ModelSpec& model) { return model.gated_ffn ? 3 : 2; }

/// (out, in) of the matrix products of a layer, as the model multiplies them.
std::array<std::pair<std::int64_t, std::int64_t>, 4> layer_matrices(const ModelSpec& model) {
  const cpu::AttentionShape attention = attention_shape(model);
  const std::int64_t up = (ffn_matrices(model) - 1) * model.ffn_dim;
  return {{{attention.qkv_width(), model.hidden_dim},
           {model.hidden_dim, attention.query_width()},
           {up, model.hidden_dim},
           {model.hidden_dim, model.ffn_dim}}};
}

// From two rows on: a single row is a matrix-vector product, another kernel than batches get.
std::vector<std::int64_t> row_counts(const CalibrationEffort& effort) {
  std::vector<std::int64_t> rows;
  for (std::int64_t count = 2; count <= effort.most_rows; count *= 2) {
    rows.push_back(count);
  }
  return rows;
}

/// As many layers as the model has, at most kMostBytes of weights, at least one layer.
std::int64_t measured_layers(const ModelSpec& model) {
  const double layer_bytes = layer_matrix_parameters(model) * kElementBytes;
  return std::clamp<std::int64_t>(
      static_cast<std::int64_t>(static_cast<double>(kMostBytes) / layer_bytes), 1, model.layers);
}

}  // namespace

double layer_matrix_parameters(const ModelSpec& model) {
  double count = 0.0;
  for (const auto& [out, in] : layer_matrices(model)) {
    count += static_cast<double>(out) * static_cast<double>(in);
  }
  return count;
}

double read_bandwidth(Comm& world, const ModelSpec& model, const CalibrationEffort& effort) {
  const double weights = layer_matrix_parameters(model) * static_cast<double>(model.layers);
  const auto count = static_cast<std::int64_t>(
      std::clamp(weights, 16.0 * kReadBlock, double(kMostBytes / kElementBytes)));
  const std::int64_t blocks = count / kReadBlock;
  const std::vector<float> array = ordinary_values(blocks * kReadBlock);
  volatile float sink = 0.0F;
  std::int64_t block = 0;
  const double seconds = call_seconds_together(world, 2.0 * effort.point_s, [&] {
    // Short calls that walk through the array: few of them are interrupted.
    sink = Eigen::Map<const Eigen::ArrayXf>(array.data() + block * kReadBlock, kReadBlock).sum();
    block = (block + 1) % blocks;
  });
  return static_cast<double>(kReadBlock * kElementBytes) / seconds;
}

std::vector<TimedPoint> gemm_times(Comm& world,
                                   const ModelSpec& model,
                                   const CalibrationEffort& effort,
                                   const Announce& announce) {
  const auto matrices = layer_matrices(model);
  const auto parameters = static_cast<std::int64_t>(layer_matrix_parameters(model));
  const std::int64_t layers = measured_layers(model);
  const std::vector<float> weights = ordinary_values(layers * parameters);
  std::int64_t widest = 0;
  for (const auto& [out, in] : matrices) {
    widest = std::max({widest, out, in});
  }
  std::vector<TimedPoint> times;
  for (const std::int64_t rows : row_counts(effort)) {
    announce(fmt::format("{} rows", rows));
    const std::vector<float> x = ordinary_values(rows * widest);
    std::vector<float> y(x.size());
    std::int64_t layer = 0;
    const double seconds = call_seconds_together(world, effort.point_s, [&] {
      const float* w = weights.data() + layer * parameters;
      for (const auto& [out, in] : matrices) {
        cpu::linear_forward({.rows = rows, .out = out, .in = in}, x.data(), w, y.data());
        w += out * in;
      }
      layer = (layer + 1) % layers;
    });
    times.push_back({static_cast<double>(rows), seconds});
    if (rows >= 64 && seconds > effort.slowest_call_s) {
      break;
    }
  }
  return times;
}

NonGemmTimes non_gemm_times(Comm& world, const ModelSpec& model, const CalibrationEffort& effort) {
  const cpu::AttentionShape attention = attention_shape(model);
  const std::int64_t h = model.hidden_dim;
  const std::int64_t positions = std::min<std::int64_t>(model.max_positions, effort.most_rows);
  std::vector<float> cosine(static_cast<std::size_t>(positions * model.head_dim / 2));
  std::vector<float> sine(cosine.size());
  cpu::rope_table(cpu::rope_frequencies(model.rope_theta, model.head_dim),
                  positions,
                  cosine.data(),
                  sine.data());
  const std::vector<float> norm = ordinary_values(h);
  NonGemmTimes times;
  for (const std::int64_t rows : row_counts(effort)) {
    std::vector<float> stream = ordinary_values(rows * h);
    std::vector<float> normed(stream.size());
    std::vector<float> inverse_rms(static_cast<std::size_t>(rows));
    times.replicated.push_back(
        {static_cast<double>(rows), call_seconds_together(world, effort.point_s / 2.0, [&] {
           for (int block = 0; block < 2; ++block) {  // before attention and before the FFN
             cpu::rmsnorm_forward({.rows = rows, .width = h, .eps = model.rms_norm_eps},
                                  stream.data(),
                                  norm.data(),
                                  normed.data(),
                                  inverse_rms.data());
             std::copy(normed.begin(), normed.end(), stream.begin());
           }
         })});
    std::vector<float> qkv = ordinary_values(rows * attention.qkv_width());
    const std::vector<float> gate_up = ordinary_values(rows * 2 * model.ffn_dim);
    std::vector<float> gated(static_cast<std::size_t>(rows * model.ffn_dim));
    std::vector<std::int32_t> at(static_cast<std::size_t>(rows));
    for (std::size_t i = 0; i < at.size(); ++i) {
      at[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(positions));
    }
    const cpu::RopeShape rope{.rows = rows,
                              .heads = model.num_heads + model.num_kv_heads,
                              .head_dim = model.head_dim,
                              .row_stride = attention.qkv_width()};
    times.split.push_back(
        {static_cast<double>(rows), call_seconds_together(world, effort.point_s / 2.0, [&] {
           cpu::rope_forward<float>(rope, at, cosine.data(), sine.data(), qkv.data());
           cpu::silu_gate_forward(rows, model.ffn_dim, gate_up.data(), gated.data());
         })});
  }
  return times;
}

double attention_flop_rate(Comm& world,
                           const CalibrationWorkload& workload,
                           const CalibrationEffort& effort) {
  const cpu::AttentionShape shape = attention_shape(workload.model);
  const std::int64_t length = std::clamp<std::int64_t>(
      workload.context_length + workload.response_length, 1, effort.most_rows);
  const std::int64_t sequences = std::max<std::int64_t>(1, effort.most_rows / length);
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i <= sequences; ++i) {
    starts.push_back(i * length);
  }
  const std::int64_t rows = sequences * length;
  const std::vector<float> qkv = ordinary_values(rows * shape.qkv_width());
  std::vector<float> out(static_cast<std::size_t>(rows * shape.query_width()));
  std::vector<float> log_sum_exp(static_cast<std::size_t>(rows * shape.heads));
  std::vector<float> scratch(static_cast<std::size_t>(cpu::attention_scratch_size(starts)));
  const double seconds = call_seconds_together(world, 2.0 * effort.point_s, [&] {
    cpu::attention_forward<float>(
        shape, starts, qkv.data(), out.data(), log_sum_exp.data(), scratch.data());
  });
  const double pairs = static_cast<double>(sequences * length * (length + 1)) / 2.0;
  return 4.0 * static_cast<double>(shape.query_width()) * pairs / seconds;
}

double kv_bandwidth(Comm& world,
                    const CalibrationWorkload& workload,
                    const CalibrationEffort& effort) {
  const cpu::AttentionShape shape = attention_shape(workload.model);
  const std::int64_t length = workload.context_length + (workload.response_length + 1) / 2;
  const std::int64_t sequence_bytes = length * shape.kv_width() * kElementBytes;
  const std::int64_t sequences =
      std::clamp<std::int64_t>(kMostBytes / sequence_bytes, 1, workload.sequences);
  std::vector<cpu::CachedQuery> queries;
  for (std::int64_t i = 0; i < sequences; ++i) {
    queries.push_back({.first = i * length, .length = length});
  }
  const std::vector<float> qkv = ordinary_values(sequences * shape.qkv_width());
  const std::vector<float> cache = ordinary_values(sequences * length * shape.kv_width());
  std::vector<float> out(static_cast<std::size_t>(sequences * shape.query_width()));
  std::vector<float> scratch(static_cast<std::size_t>(length));
  const double seconds = call_seconds_together(world, 2.0 * effort.point_s, [&] {
    cpu::cached_attention<float>(
        shape, queries, qkv.data(), cache.data(), out.data(), scratch.data());
  });
  return static_cast<double>(sequences * sequence_bytes) / seconds;
}

double optimizer_bandwidth(Comm& world, const ModelSpec& model, const CalibrationEffort& effort) {
  // Passes over memory, 4 bytes a parameter, as the cost model counts them: the update reads the
  // gradient and reads and writes weights and both moments. The norm's pass is in the time.
  constexpr double kPasses = 7.0;
  const std::int64_t most = kMostBytes / 4 / kElementBytes;
  const auto count = static_cast<std::int64_t>(
      std::min(static_cast<double>(most), layer_matrix_parameters(model) * double(model.layers)));
  const std::vector<float> gradient = ordinary_values(count);
  std::vector<float> weights = gradient;
  AdamWState state;
  volatile double sink = 0.0;
  const double seconds = call_seconds_together(world, 2.0 * effort.point_s, [&] {
    sink = gradient_norm(gradient);
    adamw_update({.learning_rate = 1e-6}, gradient, 1.0, state, weights);
  });
  return kPasses * static_cast<double>(count * kElementBytes) / seconds;
}

}  // namespace rpeg
