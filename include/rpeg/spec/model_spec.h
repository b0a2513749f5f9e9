#pragma once

/// Module `spec`: what the user asks for, as plain data: the models (this header), the cluster, the
/// workload, the policy and the search (workload_config.h). Read from YAML or from a Hugging Face
/// config.json; no other module parses these files.

#include <cstdint>
#include <filesystem>
#include <string>

namespace rpeg {

/// Shape of a decoder-only transformer of the Llama family.
struct ModelSpec {
  std::int64_t layers = 0;        ///< L
  std::int64_t hidden_dim = 0;    ///< h
  std::int64_t ffn_dim = 0;       ///< f
  std::int64_t vocab_size = 0;    ///< V, as in the embedding table
  std::int64_t head_dim = 0;      ///< d, not always h / a
  std::int64_t num_heads = 0;     ///< a, query heads
  std::int64_t num_kv_heads = 0;  ///< n_kv; num_heads is a multiple of it
  bool gated_ffn = true;          ///< SwiGLU (three matrices) or two matrices
  bool tied_embeddings = false;   ///< the LM head is the embedding table
  bool qkv_bias = false;          ///< Q, K and V have biases (Qwen2)
  bool qk_norm = false;           ///< query and key heads are normed before rotation (Qwen3)
  // Numbers that only execution needs.
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-5;
  std::int64_t max_positions = 2048;
  double initializer_range = 0.02;  ///< standard deviation of a random initialisation

  bool operator==(const ModelSpec&) const = default;
};

/// Reads a Hugging Face `config.json` (the file or the directory that holds it). Throws kUsage
/// naming the file for a missing or ill-typed key, and naming the feature for an architecture that
/// RPEG cannot train yet (anything but LlamaForCausalLM and, for critics,
/// LlamaForSequenceClassification; biases, RoPE scaling, mixture of experts).
ModelSpec load_hf_config(const std::filesystem::path& path);

/// Returns the text of a `config.json` that Hugging Face tools load as LlamaForCausalLM, or with a
/// scalar head as LlamaForSequenceClassification of one label (fp32).
std::string hf_config_text(const ModelSpec& spec, bool scalar_head = false);

}  // namespace rpeg
