#pragma once

/// Module `model`: one rank's part of a transformer of the Llama family (docs/models.md). All
/// parameters of a part lie in one flat buffer; `ParameterLayout` says where each tensor stands,
/// under its Hugging Face name. The same layout serves weights, gradients and optimizer state,
/// checkpoints and weight transfers. Start at stage.h (training and scoring; transformer.h for a
/// model of one stage) and generate.h (sampling).

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "rpeg/spec/model_shard.h"
#include "rpeg/spec/model_spec.h"

namespace rpeg {

/// One tensor in the flat buffer.
struct ParameterTensor {
  std::string name;                 ///< Hugging Face name, e.g. model.layers.0.mlp.up_proj.weight
  std::vector<std::int64_t> shape;  ///< of the part held, row-major: (out, in) for matrices
  std::int64_t offset = 0;          ///< first element in the flat buffer
  std::int64_t count = 0;           ///< product of the shape
  ShardTensor part;                 ///< which part of the whole tensor this is
};

/// All tensors of a shard in a fixed order; `total` elements.
struct ParameterLayout {
  std::vector<ParameterTensor> tensors;
  std::int64_t total = 0;
  Head head = Head::kLanguageModel;
  ModelShard shard;
  std::int64_t model_layers = 0;  ///< of the whole model
};

/// Returns the layout of a shard (`shard_tensors` says which tensors in which order).
ParameterLayout build_parameter_layout(const ModelSpec& spec, Head head, const ModelShard& shard);
/// The same of the whole model.
ParameterLayout build_parameter_layout(const ModelSpec& spec, Head head);

/// Copies the elements that a shard holds of a tensor out of the whole tensor, or back into it.
/// `whole` has the product of part.shape elements, `held` part.count.
template <typename T>
void take_shard(const ShardTensor& part, std::span<const T> whole, std::span<T> held);
template <typename T>
void place_shard(const ShardTensor& part, std::span<const T> held, std::span<T> whole);

/// Fills `weights` (layout.total) at random: norms 1, biases and a scalar head 0, matrices
/// normal(0, spec.initializer_range), each tensor from its own counter-based stream keyed by (seed,
/// tensor name): the trunk of a critic and of an actor with the same seed are equal, and a shard
/// holds the numbers that the whole model would have in its place.
void initialise_parameters(const ModelSpec& spec,
                           const ParameterLayout& layout,
                           std::uint64_t seed,
                           std::span<float> weights);

/// What to do when a scalar head is asked for and the files have none.
enum class MissingScalarHead {
  kError,  ///< a reward model or a trained critic
  kZero,   ///< a critic that starts from an actor
};

/// Fills `weights` (layout.total) from the *.safetensors of a Hugging Face directory (single file
/// or several with an index; F32, F16 or BF16), reading only what the shard holds. A tied model
/// needs no lm_head. Throws kUsage naming the tensor and file for a missing tensor, one that is not
/// part of the model, a wrong shape or an unknown dtype.
void load_parameters(const std::filesystem::path& directory,
                     const ParameterLayout& layout,
                     std::span<float> weights,
                     MissingScalarHead missing = MissingScalarHead::kError);

/// Copies every tensor of `to` that `from` has as well; both are of the same shard. Takes the actor
/// or the critic out of a model with both heads, and puts them back. Throws kInternal when they
/// share no tensor or a shape differs.
void copy_parameters(const ParameterLayout& from,
                     std::span<const float> source,
                     const ParameterLayout& to,
                     std::span<float> target);

/// How a Hugging Face directory is written.
struct SaveOptions {
  bool bf16 = false;                                ///< weights rounded to BF16; else F32
  std::int64_t file_bytes = std::int64_t{5} << 30;  ///< more data are split over several files
};

/// Writes a Hugging Face directory that other tools load unchanged: config.json, the tensors of a
/// whole model with one head (safetensors), and copies of the tokenizer files and
/// generation_config.json of `tokenizer_source` (may be empty). Each file is written atomically.
void save_hf_directory(const std::filesystem::path& directory,
                       const ModelSpec& spec,
                       const ParameterLayout& layout,
                       std::span<const float> weights,
                       const std::filesystem::path& tokenizer_source,
                       const SaveOptions& options = {});

}  // namespace rpeg
