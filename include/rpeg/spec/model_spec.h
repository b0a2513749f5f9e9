#pragma once

/// Module `spec`: what the user asks for, as plain data: the models (this header), the cluster, the
/// workload, the policy and the search (workload_config.h). Read from YAML or from a Hugging Face
/// config.json; no other module parses these files.

#include <cstdint>
#include <filesystem>
#include <string>

namespace rpeg {

/// The Hugging Face architectures that RPEG runs, by their `model_type`.
enum class ModelFamily {
  kLlama,
  kQwen2,    ///< with biases of Q, K and V
  kQwen3,    ///< with norms of query and key heads
  kMistral,  ///< as Llama, within its sliding window
};
/// "llama", "qwen2", …
const char* to_string(ModelFamily family);

/// How rotary frequencies differ from theta^(-2 i / d).
enum class RopeScalingKind { kNone, kLinear, kLlama3 };
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1.0;  ///< linear, llama3: (low) frequencies are divided by it
  // Llama 3 only: wavelengths above original_positions / low_freq_factor count as low, those below
  // original_positions / high_freq_factor stay.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  std::int64_t original_positions = 8192;
  bool operator==(const RopeScaling&) const = default;
};

/// Shape of a decoder-only transformer of the Llama family and its relatives.
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
  // What only execution needs.
  ModelFamily family = ModelFamily::kLlama;
  RopeScaling rope_scaling{};
  double rope_theta = 10000.0;
  double rms_norm_eps = 1e-5;
  std::int64_t max_positions = 2048;
  double initializer_range = 0.02;  ///< standard deviation of a random initialisation

  bool operator==(const ModelSpec&) const = default;
};

/// Reads a Hugging Face `config.json` (the file or the directory that holds it): ...ForCausalLM, or
/// ...ForSequenceClassification with one label, of the families above. A sliding window narrower
/// than the model's positions limits `max_positions` to it: up to there it hides nothing. Throws
/// kUsage naming the file for a missing or ill-typed key, and naming the feature for what RPEG
/// cannot run (other architectures, biases elsewhere, other RoPE scaling, mixture of experts).
ModelSpec load_hf_config(const std::filesystem::path& path);

/// What a written config.json says beside the shape.
struct HfConfigOptions {
  bool scalar_head = false;  ///< ...ForSequenceClassification with one label
  bool bf16 = false;         ///< type of the weights beside it; else fp32
};

/// Returns the text of a `config.json` that Hugging Face tools load as the spec's architecture.
/// Throws kUsage when the family does not go with the spec's biases or head norms.
std::string hf_config_text(const ModelSpec& spec, const HfConfigOptions& options = {});

}  // namespace rpeg
