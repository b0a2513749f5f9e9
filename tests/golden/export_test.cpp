// What save_hf_directory writes, read by the transformers package itself. Needs a Python that has
// it: `python3`, or the interpreter that RPEG_PYTHON names; skips otherwise.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "rpeg/base/file.h"
#include "rpeg/model/parameters.h"
#include "rpeg/model/transformer.h"
#include "support/test_directory.h"
#include "support/tiny_model.h"

namespace rpeg {
namespace {

namespace fs = std::filesystem;

struct Export {
  std::string name;
  ModelFamily family = ModelFamily::kLlama;
  Head head = Head::kLanguageModel;
  bool tied = false;
  RopeScalingKind scaling = RopeScalingKind::kNone;
  SaveOptions saving{};
};

ModelSpec spec_of(const Export& item) {
  ModelSpec spec = tiny_spec(item.tied);
  spec.family = item.family;
  spec.qkv_bias = item.family == ModelFamily::kQwen2;
  spec.qk_norm = item.family == ModelFamily::kQwen3;
  spec.rope_theta = 500.0;
  spec.rope_scaling.kind = item.scaling;
  spec.rope_scaling.factor = item.scaling == RopeScalingKind::kNone ? 1.0 : 8.0;
  spec.rope_scaling.original_positions = 64;
  return spec;
}

/// Writes the model and the numbers that it must compute: those of the weights as they are read
/// back, in double.
void write_export(const Export& item, const fs::path& directory) {
  const TinyModel<float> tiny(spec_of(item), item.head);
  save_hf_directory(directory, tiny.spec, tiny.layout, tiny.weights, {}, item.saving);
  ASSERT_EQ(load_hf_config(directory).family, item.family);
  std::vector<float> read(tiny.weights.size());
  load_parameters(directory, tiny.layout, read);
  const std::vector<double> weights(read.begin(), read.end());
  const Model<double> model{&tiny.spec, &tiny.layout, weights};
  PackedBatch batch;
  append_sequence(batch, std::vector<std::int32_t>{3, 1, 4, 1, 5, 9, 2, 6, 10, 3, 5, 8});
  std::vector<double> values;
  if (item.head == Head::kScalar) {
    Activations<double> activations;
    forward_values(model, batch, activations, values);
  } else {
    values = forward_logits(model, batch);
  }
  write_file_atomic(directory / "expected.json",
                    nlohmann::json{{"ids", batch.tokens}, {"values", values}}.dump());
}

TEST(Export, TransformersComputesTheSame) {
  using Family = ModelFamily;
  const SaveOptions bf16{.bf16 = true};
  const SaveOptions shards{.bf16 = false, .file_bytes = 2000};
  const SaveOptions bf16_shards{.bf16 = true, .file_bytes = 1000};
  const std::vector<Export> exports = {
      {"llama", Family::kLlama},
      {"llama3", Family::kLlama, Head::kLanguageModel, true, RopeScalingKind::kLlama3, bf16},
      {"linear", Family::kLlama, Head::kLanguageModel, false, RopeScalingKind::kLinear, shards},
      {"llama_critic", Family::kLlama, Head::kScalar},
      {"qwen2", Family::kQwen2, Head::kLanguageModel, true, RopeScalingKind::kNone, shards},
      {"qwen2_bf16", Family::kQwen2, Head::kLanguageModel, false, RopeScalingKind::kNone, bf16},
      {"qwen2_critic", Family::kQwen2, Head::kScalar, true},
      {"qwen3", Family::kQwen3, Head::kLanguageModel, true, RopeScalingKind::kNone, bf16_shards},
      {"qwen3_fp32", Family::kQwen3},
      {"qwen3_critic", Family::kQwen3, Head::kScalar, false, RopeScalingKind::kNone, bf16},
      {"mistral", Family::kMistral, Head::kLanguageModel, false, RopeScalingKind::kNone, shards},
      {"mistral_bf16", Family::kMistral, Head::kLanguageModel, true, RopeScalingKind::kNone, bf16},
      {"mistral_critic", Family::kMistral, Head::kScalar},
  };
  const fs::path directory = test::test_directory();
  fs::remove_all(directory);
  const char* python = std::getenv("RPEG_PYTHON");
  std::string command = std::string(python == nullptr ? "python3" : python) +
                        " " RPEG_SOURCE_DIR "/tests/golden/check_export.py";
  for (const Export& item : exports) {
    write_export(item, directory / item.name);
    command += " " + (directory / item.name).string();
  }
  const fs::path log = directory / "log";
  const int status = std::system((command + " > " + log.string() + " 2>&1").c_str());
  const std::string output = read_file(log);
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  fs::remove_all(directory);
  constexpr int kAbsent = 77;
  constexpr int kNoInterpreter = 127;
  if (code == kAbsent || code == kNoInterpreter) {
    GTEST_SKIP() << "no Python with transformers and torch; set RPEG_PYTHON to one. " << output;
  }
  EXPECT_EQ(code, 0) << output;
}

}  // namespace
}  // namespace rpeg
