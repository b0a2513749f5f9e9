#include "rpeg/kernels/attention.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/eigen.h"

namespace rpeg::cpu {
namespace {

// Queries whose scores are held at a time.
constexpr std::int64_t kQueryBlock = 64;

std::int64_t longest(std::span<const std::int64_t> starts) {
  std::int64_t length = 0;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    length = std::max(length, starts[i] - starts[i - 1]);
  }
  return length;
}

/// out (+)= a . b. Eigen's blocked product has a fixed cost that tiny operands do not repay.
template <bool kAdd, typename Out, typename A, typename B>
void multiply(Out&& out, const A& a, const B& b) {
  const bool tiny = a.rows() * a.cols() * b.cols() <= 2048;
  if constexpr (kAdd) {
    if (tiny) {
      out += a.lazyProduct(b);
    } else {
      out.noalias() += a * b;
    }
  } else {
    if (tiny) {
      out = a.lazyProduct(b);
    } else {
      out.noalias() = a * b;
    }
  }
}

// Sequences up to this length, heads up to this width go through multiply_short.
constexpr int kShort = 16;
constexpr int kShortWidth = 128;

/// out = a . b^T for few rows of b: with b transposed a row of `out` is one vector that grows by
/// scaled vectors, where Eigen would sum up every entry across a vector.
template <typename T>
void multiply_short(MatrixMap<T>& out, const ConstWindowMap<T>& a, const ConstWindowMap<T>& b) {
  Eigen::Array<T, kShort, kShortWidth> transposed;
  for (Eigen::Index c = 0; c < b.cols(); ++c) {
    for (Eigen::Index j = 0; j < kShort; ++j) {
      transposed(j, c) = j < b.rows() ? b(j, c) : T(0);
    }
  }
  for (Eigen::Index i = 0; i < a.rows(); ++i) {
    Eigen::Array<T, kShort, 1> row = Eigen::Array<T, kShort, 1>::Zero();
    for (Eigen::Index c = 0; c < a.cols(); ++c) {
      row += a(i, c) * transposed.col(c);
    }
    std::copy_n(row.data(), b.rows(), out.data() + i * b.rows());
  }
}

/// out = a . b^T, both (., d).
template <typename T>
void multiply_transposed(MatrixMap<T> out, const ConstWindowMap<T>& a, const ConstWindowMap<T>& b) {
  if (b.rows() <= kShort && b.cols() <= kShortWidth) {
    multiply_short(out, a, b);
  } else {
    multiply<false>(out, a, b.transpose());
  }
}

/// Where the heads of one sequence lie inside the packed rows.
template <typename T>
struct HeadWindow {
  const AttentionShape& shape;
  std::int64_t begin;  // first row of the sequence
  std::int64_t head;   // query head

  std::int64_t kv_head() const { return head / (shape.heads / shape.kv_heads); }
  std::int64_t key_column() const { return shape.query_width() + kv_head() * shape.head_dim; }
  std::int64_t value_column() const { return key_column() + shape.kv_heads * shape.head_dim; }
  /// `rows` rows from row `first` of the sequence, the d columns from `column`.
  ConstWindowMap<T> read(const T* base,
                         std::int64_t first,
                         std::int64_t rows,
                         std::int64_t column) const {
    const std::int64_t width = shape.qkv_width();
    return {
        base + (begin + first) * width + column, rows, shape.head_dim, Eigen::OuterStride<>(width)};
  }
  WindowMap<T> write(T* base, std::int64_t first, std::int64_t rows, std::int64_t column) const {
    const std::int64_t width = shape.qkv_width();
    return {
        base + (begin + first) * width + column, rows, shape.head_dim, Eigen::OuterStride<>(width)};
  }
  /// The head's columns of a (T, a d) buffer.
  ConstWindowMap<T> read_output(const T* base, std::int64_t first, std::int64_t rows) const {
    const std::int64_t width = shape.query_width();
    return {base + (begin + first) * width + head * shape.head_dim,
            rows,
            shape.head_dim,
            Eigen::OuterStride<>(width)};
  }
  WindowMap<T> write_output(T* base, std::int64_t first, std::int64_t rows) const {
    const std::int64_t width = shape.query_width();
    return {base + (begin + first) * width + head * shape.head_dim,
            rows,
            shape.head_dim,
            Eigen::OuterStride<>(width)};
  }
};

template <typename T>
T score_scale(const AttentionShape& shape) {
  return T(1) / std::sqrt(static_cast<T>(shape.head_dim));
}

/// One head of one sequence of `length` rows.
template <typename T>
void forward_head(const HeadWindow<T>& window,
                  std::int64_t length,
                  const T* qkv,
                  T* out,
                  T* log_sum_exp,
                  T* scratch) {
  const AttentionShape& shape = window.shape;
  const T scale = score_scale<T>(shape);
  for (std::int64_t first = 0; first < length; first += kQueryBlock) {
    const std::int64_t rows = std::min(kQueryBlock, length - first);
    const std::int64_t keys = first + rows;
    MatrixMap<T> p(scratch, rows, keys);
    multiply_transposed(p,
                        window.read(qkv, first, rows, window.head * shape.head_dim),
                        window.read(qkv, 0, keys, window.key_column()));
    for (std::int64_t i = 0; i < rows; ++i) {
      const std::int64_t visible = first + i + 1;
      ArrayMap<T> row(scratch + i * keys, visible);
      const T largest = row.maxCoeff();
      row = ((row - largest) * scale).exp();
      const T sum = row.sum();
      row *= T(1) / sum;
      std::fill(scratch + i * keys + visible, scratch + (i + 1) * keys, T(0));
      log_sum_exp[(window.begin + first + i) * shape.heads + window.head] =
          largest * scale + std::log(sum);
    }
    multiply<false>(
        window.write_output(out, first, rows), p, window.read(qkv, 0, keys, window.value_column()));
  }
}

/// What the backward pass of one head reads and writes, as in attention_backward.
template <typename T>
struct BackwardBuffers {
  const T* qkv;
  const T* out;
  const T* log_sum_exp;
  const T* dout;
  T* dqkv;
  T* scratch;
};

/// Turns `p` (rows, keys), raw scores, into probabilities and `dp`, d loss / d probabilities, into
/// d loss / d raw scores.
template <typename T>
void backward_softmax(const HeadWindow<T>& window,
                      const BackwardBuffers<T>& buffers,
                      std::int64_t first,
                      MatrixMap<T> p,
                      MatrixMap<T> dp) {
  const AttentionShape& shape = window.shape;
  const T scale = score_scale<T>(shape);
  const auto out = window.read_output(buffers.out, first, p.rows());
  const auto dout = window.read_output(buffers.dout, first, p.rows());
  for (std::int64_t i = 0; i < p.rows(); ++i) {
    const std::int64_t visible = first + i + 1;
    const std::int64_t hidden = p.cols() - visible;
    const T log_sum = buffers.log_sum_exp[(window.begin + first + i) * shape.heads + window.head];
    ArrayMap<T> row(p.data() + i * p.cols(), visible);
    row = (row * scale - log_sum).exp();
    std::fill_n(p.data() + i * p.cols() + visible, hidden, T(0));
    // sum_j p_j dp_j = out . dout
    const T mean = out.row(i).dot(dout.row(i));
    ArrayMap<T> drow(dp.data() + i * p.cols(), visible);
    drow = row * (drow - mean) * scale;
    std::fill_n(dp.data() + i * p.cols() + visible, hidden, T(0));
  }
}

template <typename T>
void backward_head(const HeadWindow<T>& window,
                   std::int64_t length,
                   const BackwardBuffers<T>& buffers) {
  const std::int64_t query_column = window.head * window.shape.head_dim;
  for (std::int64_t first = 0; first < length; first += kQueryBlock) {
    const std::int64_t rows = std::min(kQueryBlock, length - first);
    const std::int64_t keys = first + rows;
    MatrixMap<T> p(buffers.scratch, rows, keys);
    MatrixMap<T> dp(buffers.scratch + rows * keys, rows, keys);
    const auto q = window.read(buffers.qkv, first, rows, query_column);
    const auto k = window.read(buffers.qkv, 0, keys, window.key_column());
    const auto v = window.read(buffers.qkv, 0, keys, window.value_column());
    const auto dout = window.read_output(buffers.dout, first, rows);
    multiply_transposed(p, q, k);
    multiply_transposed(dp, dout, v);
    backward_softmax(window, buffers, first, p, dp);
    multiply<false>(window.write(buffers.dqkv, first, rows, query_column), dp, k);
    multiply<true>(window.write(buffers.dqkv, 0, keys, window.key_column()), dp.transpose(), q);
    multiply<true>(window.write(buffers.dqkv, 0, keys, window.value_column()), p.transpose(), dout);
  }
}

}  // namespace

std::int64_t attention_scratch_size(std::span<const std::int64_t> starts) {
  const std::int64_t length = longest(starts);
  return 2 * std::min(kQueryBlock, length) * length;
}

template <typename T>
void attention_forward(const AttentionShape& shape,
                       std::span<const std::int64_t> starts,
                       const T* qkv,
                       T* out,
                       T* log_sum_exp,
                       T* scratch) {
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const HeadWindow<T> window{shape, starts[i], head};
      forward_head(window, starts[i + 1] - starts[i], qkv, out, log_sum_exp, scratch);
    }
  }
}

template <typename T>
void attention_backward(const AttentionShape& shape,
                        std::span<const std::int64_t> starts,
                        const T* qkv,
                        const T* out,
                        const T* log_sum_exp,
                        const T* dout,
                        T* dqkv,
                        T* scratch) {
  std::fill_n(dqkv, starts.back() * shape.qkv_width(), T(0));
  const BackwardBuffers<T> buffers{qkv, out, log_sum_exp, dout, dqkv, scratch};
  for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      backward_head(HeadWindow<T>{shape, starts[i], head}, starts[i + 1] - starts[i], buffers);
    }
  }
}

template <typename T>
void cached_attention(const AttentionShape& shape,
                      std::span<const CachedQuery> queries,
                      const T* qkv,
                      const T* cache,
                      T* out,
                      T* scratch) {
  const std::int64_t d = shape.head_dim;
  const std::int64_t group = shape.heads / shape.kv_heads;
  const T scale = score_scale<T>(shape);
  using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  for (const CachedQuery& query : queries) {
    const T* rows = cache + query.first * shape.kv_width();
    const Eigen::OuterStride<> stride(shape.kv_width());
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const T* key_rows = rows + head / group * d;
      const ConstWindowMap<T> keys(key_rows, query.length, d, stride);
      const ConstWindowMap<T> values(key_rows + shape.kv_heads * d, query.length, d, stride);
      Eigen::Map<Vector> p(scratch, query.length);
      p.noalias() = keys * Eigen::Map<const Vector>(qkv + head * d, d);
      p.array() = ((p.array() - p.maxCoeff()) * scale).exp();
      p *= T(1) / p.sum();
      Eigen::Map<Vector>(out + head * d, d).noalias() = values.transpose() * p;
    }
    qkv += shape.qkv_width();
    out += shape.query_width();
  }
}

template void attention_forward(
    const AttentionShape&, std::span<const std::int64_t>, const float*, float*, float*, float*);
template void attention_forward(
    const AttentionShape&, std::span<const std::int64_t>, const double*, double*, double*, double*);
template void attention_backward(const AttentionShape&,
                                 std::span<const std::int64_t>,
                                 const float*,
                                 const float*,
                                 const float*,
                                 const float*,
                                 float*,
                                 float*);
template void attention_backward(const AttentionShape&,
                                 std::span<const std::int64_t>,
                                 const double*,
                                 const double*,
                                 const double*,
                                 const double*,
                                 double*,
                                 double*);
template void cached_attention(const AttentionShape&,
                               std::span<const CachedQuery>,
                               const float*,
                               const float*,
                               float*,
                               float*);
template void cached_attention(const AttentionShape&,
                               std::span<const CachedQuery>,
                               const double*,
                               const double*,
                               double*,
                               double*);

}  // namespace rpeg::cpu
