// The products of linear.h beside Eigen's in the same process, at shapes of small models: compare
// the rows of equal arguments (rows, out, in).

#include <benchmark/benchmark.h>

#include <Eigen/Core>

#include "rpeg/kernels/linear.h"

namespace rpeg::cpu {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Operands {
  LinearShape shape;
  Matrix x, w, y;

  explicit Operands(const benchmark::State& state)
      : shape{state.range(0), state.range(1), state.range(2)},
        x(Matrix::Random(shape.rows, shape.in)),
        w(Matrix::Random(shape.out, shape.in)),
        y(Matrix::Random(shape.rows, shape.out)) {}
};

void count_flop(benchmark::State& state, const LinearShape& shape) {
  state.counters["flop/s"] =
      benchmark::Counter(static_cast<double>(2 * shape.rows * shape.out * shape.in),
                         benchmark::Counter::kIsIterationInvariantRate);
}

void forward_eigen(benchmark::State& state) {
  Operands o(state);
  for (auto _ : state) {
    o.y.noalias() = o.x * o.w.transpose();
    benchmark::ClobberMemory();
  }
  count_flop(state, o.shape);
}

void forward(benchmark::State& state) {
  Operands o(state);
  for (auto _ : state) {
    linear_forward(o.shape, o.x.data(), o.w.data(), o.y.data());
    benchmark::ClobberMemory();
  }
  count_flop(state, o.shape);
}

void backward_input_eigen(benchmark::State& state) {
  Operands o(state);
  for (auto _ : state) {
    o.x.noalias() = o.y * o.w;
    benchmark::ClobberMemory();
  }
  count_flop(state, o.shape);
}

void backward_input(benchmark::State& state) {
  Operands o(state);
  for (auto _ : state) {
    linear_backward_input(o.shape, o.y.data(), o.w.data(), o.x.data());
    benchmark::ClobberMemory();
  }
  count_flop(state, o.shape);
}

void backward_weight_eigen(benchmark::State& state) {
  Operands o(state);
  for (auto _ : state) {
    o.w.noalias() += o.y.transpose() * o.x;
    benchmark::ClobberMemory();
  }
  count_flop(state, o.shape);
}

void backward_weight(benchmark::State& state) {
  Operands o(state);
  for (auto _ : state) {
    linear_backward_weight(o.shape, o.y.data(), o.x.data(), o.w.data());
    benchmark::ClobberMemory();
  }
  count_flop(state, o.shape);
}

void small_models(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t rows : {1, 8, 64, 512}) {
    bench->Args({rows, 20, 12})->Args({rows, 64, 64})->Args({rows, 344, 64});
    bench->Args({rows, 288, 288})->Args({rows, 512, 512})->Args({rows, 1536, 1536});
  }
  bench->Unit(benchmark::kMicrosecond);
}

BENCHMARK(forward_eigen)->Apply(small_models);
BENCHMARK(forward)->Apply(small_models);
BENCHMARK(backward_input_eigen)->Apply(small_models);
BENCHMARK(backward_input)->Apply(small_models);
BENCHMARK(backward_weight_eigen)->Apply(small_models);
BENCHMARK(backward_weight)->Apply(small_models);

}  // namespace
}  // namespace rpeg::cpu

BENCHMARK_MAIN();
