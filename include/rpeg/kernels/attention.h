#pragma once

#include <cstdint>
#include <span>

namespace rpeg::cpu {

/// Grouped-query attention: query head i reads key-value head i / (heads / kv_heads). A row of
/// `qkv` holds the query heads, then the key heads, then the value heads: width (a + 2 n) d.
struct AttentionShape {
  std::int64_t heads = 0;     ///< a
  std::int64_t kv_heads = 0;  ///< n, divides a
  std::int64_t head_dim = 0;  ///< d

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return 2 * kv_heads * head_dim; }
  std::int64_t qkv_width() const { return query_width() + kv_width(); }
};

/// Elements of scratch that attention_forward and attention_backward need for this batch.
std::int64_t attention_scratch_size(std::span<const std::int64_t> starts);

/// Causal softmax(q k^T / sqrt(d)) v inside each packed sequence: sequence i owns the rows
/// [starts[i], starts[i+1]). Scores exist for one block of queries of one head at a time.
template <typename T>
void attention_forward(const AttentionShape& shape,
                       std::span<const std::int64_t> starts,  // (B + 1)
                       const T* qkv,                          // (T, (a + 2 n) d), rotated
                       T* out,                                // (T, a d)
                       T* log_sum_exp,                        // (T, a), kept for the backward pass
                       T* scratch);

/// The gradient by qkv; probabilities are recomputed from log_sum_exp.
template <typename T>
void attention_backward(const AttentionShape& shape,
                        std::span<const std::int64_t> starts,
                        const T* qkv,
                        const T* out,
                        const T* log_sum_exp,
                        const T* dout,  // (T, a d)
                        T* dqkv,        // (T, (a + 2 n) d), overwritten
                        T* scratch);

/// One query and the stretch of the key-value cache that it sees: `length` rows from row `first`.
/// During chunked prefill several queries of a sequence share `first` and differ in `length`.
struct CachedQuery {
  std::int64_t first = 0;
  std::int64_t length = 0;
};

/// Attention of single queries over a cache of one layer whose rows are the key heads, then the
/// value heads, of one position: (positions, 2 n d).
template <typename T>
void cached_attention(const AttentionShape& shape,
                      std::span<const CachedQuery> queries,  // (rows)
                      const T* qkv,    // (rows, (a + 2 n) d): queries are read
                      const T* cache,  // (positions, 2 n d)
                      T* out,          // (rows, a d)
                      T* scratch);     // at least the longest length

}  // namespace rpeg::cpu
