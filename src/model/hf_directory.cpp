#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/hf/generation_config.h"
#include "rpeg/hf/safetensors.h"
#include "rpeg/model/parameters.h"

namespace rpeg {
namespace {

constexpr std::string_view kLayerPrefix = "model.layers.";
constexpr const char* kScalarHead = "score.weight";

/// A layer's number and the rest of a tensor's name ("3", "mlp.up_proj.weight"), or layer -1.
std::pair<std::int64_t, std::string> split_layer_name(const std::string& name) {
  if (!name.starts_with(kLayerPrefix)) {
    return {-1, name};
  }
  std::int64_t layer = -1;
  const char* begin = name.data() + kLayerPrefix.size();
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(begin, end, layer);
  if (parsed.ec != std::errc{} || parsed.ptr == end || *parsed.ptr != '.') {
    return {-1, name};
  }
  return {layer, std::string(parsed.ptr + 1, end)};
}

/// Requires every tensor of the directory to be one of the whole model's, or one that it may leave
/// out: the other kind of head, or rotation frequencies that old checkpoints carry though the
/// configuration determines them.
void check_known(const std::map<std::string, SafetensorsEntry>& entries,
                 const ParameterLayout& layout) {
  std::set<std::string> outside = {
      "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", kScalarHead};
  std::set<std::string> inside = {"self_attn.rotary_emb.inv_freq"};  // names within a layer
  for (const ParameterTensor& tensor : layout.tensors) {
    const auto [layer, rest] = split_layer_name(tensor.name);
    if (layer >= 0) {
      inside.insert(rest);
    }
  }
  for (const auto& [name, entry] : entries) {
    const auto [layer, rest] = split_layer_name(name);
    const bool is_known =
        layer < 0 ? outside.contains(rest) : layer < layout.model_layers && inside.contains(rest);
    if (!is_known) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' is not part of a model of this configuration; RPEG "
                              "cannot train this checkpoint",
                              name),
                  entry.file.string());
    }
  }
}

/// Copies what tells other tools how to use the model, its stop tokens above all: they may stand in
/// the config.json that is not copied.
void copy_tokenizer(const std::filesystem::path& source, const std::filesystem::path& directory) {
  for (const char* name : {"tokenizer.json",
                           "tokenizer_config.json",
                           "special_tokens_map.json",
                           "chat_template.jinja"}) {
    if (std::filesystem::exists(source / name)) {
      write_file_atomic(directory / name, read_file(source / name));
    }
  }
  const std::string generation = generation_config_text(source);
  if (!generation.empty()) {
    write_file_atomic(directory / "generation_config.json", generation);
  }
}

}  // namespace

void load_parameters(const std::filesystem::path& directory,
                     const ParameterLayout& layout,
                     std::span<float> weights,
                     MissingScalarHead missing) {
  check(static_cast<std::int64_t>(weights.size()) == layout.total,
        "load_parameters needs a buffer of the layout's size");
  const std::map<std::string, SafetensorsEntry> entries = read_safetensors_headers(directory);
  check_known(entries, layout);
  for (const ParameterTensor& tensor : layout.tensors) {
    const auto out = weights.subspan(static_cast<std::size_t>(tensor.offset),
                                     static_cast<std::size_t>(tensor.count));
    const auto found = entries.find(tensor.name);
    if (found == entries.end()) {
      if (tensor.name != kScalarHead || missing == MissingScalarHead::kError) {
        throw Error(ErrorKind::kUsage,
                    fmt::format("tensor '{}' is missing from the safetensors files", tensor.name),
                    directory.string());
      }
      std::fill(out.begin(), out.end(), 0.0F);
      continue;
    }
    if (found->second.shape != tensor.part.shape) {
      throw Error(ErrorKind::kUsage,
                  fmt::format("tensor '{}' has shape [{}], but config.json implies [{}]",
                              tensor.name,
                              fmt::join(found->second.shape, ", "),
                              fmt::join(tensor.part.shape, ", ")),
                  found->second.file.string());
    }
    read_tensor_part(found->second, shard_runs(tensor.part), out);
  }
}

void save_hf_directory(const std::filesystem::path& directory,
                       const ModelSpec& spec,
                       const ParameterLayout& layout,
                       std::span<const float> weights,
                       const std::filesystem::path& tokenizer_source,
                       const SaveOptions& options) {
  check(static_cast<std::int64_t>(weights.size()) == layout.total &&
            layout.shard == whole_model(spec) && layout.head != Head::kBoth,
        "save_hf_directory writes a whole model with one head");
  ensure_directory(directory);
  if (!tokenizer_source.empty()) {
    copy_tokenizer(tokenizer_source, directory);
  }
  write_file_atomic(
      directory / "config.json",
      hf_config_text(spec, {.scalar_head = layout.head == Head::kScalar, .bf16 = options.bf16}));
  std::vector<TensorView> tensors;
  tensors.reserve(layout.tensors.size());
  for (const ParameterTensor& tensor : layout.tensors) {
    tensors.push_back({tensor.name,
                       tensor.shape,
                       weights.subspan(static_cast<std::size_t>(tensor.offset),
                                       static_cast<std::size_t>(tensor.count))});
  }
  write_safetensors(
      directory, tensors, options.bf16 ? Dtype::kBf16 : Dtype::kF32, options.file_bytes);
}

}  // namespace rpeg
