// rpeg-calibrate --fit-profile on small folders of measurements; it starts no ranks.

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "rpeg/base/file.h"
#include "rpeg/profile/hardware_profile.h"
#include "support/command.h"
#include "support/test_directory.h"
#include "support/text.h"

namespace rpeg {
namespace {

using test::replaced;
using testing::HasSubstr;
using testing::Not;

const std::string kHeader =
    "time_stats.input_layernorm.median,time_stats.attn_pre_proj.median,"
    "time_stats.attn_rope.median,time_stats.attn_post_proj.median,"
    "time_stats.post_attention_layernorm.median,time_stats.mlp_up_proj.median,"
    "time_stats.mlp_act.median,time_stats.mlp_down_proj.median,time_stats.add.median,n_head,"
    "n_kv_head,n_embd,n_expanded_embd,use_gated_mlp,num_tokens,num_tensor_parallel_workers\n";

/// Milliseconds of a layer of width 4096: a matrix product never takes less than 0.05 ms.
std::string layer_rows() {
  std::string rows;
  for (const int tp : {1, 2}) {
    for (int tokens = 1; tokens <= 4096; tokens *= 2) {
      const double gemm = std::max(0.05, 0.004 * (tokens + 100)) / tp;
      const double other = 0.003 + 1e-5 * tokens;
      rows += fmt::format("{1},{0},{1},{0},{1},{0},{1},{0},{1},32,32,4096,11008,True,{2},{3}\n",
                          gemm,
                          other,
                          tokens,
                          tp);
    }
  }
  return rows;
}

std::string messages(const std::string& operation) {
  std::string text =
      fmt::format("time_stats.{}.median,rank,num_workers,size,devices_per_node\n", operation);
  for (int size = 1024; size <= (1 << 26); size *= 4) {
    text += fmt::format("{},0,2,{},2\n", 0.02 + 1e-8 * size, size);
  }
  return text;
}

class CalibrateFit : public testing::Test {
 protected:
  CalibrateFit() {
    folder_ = test::test_directory();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ / "data");
  }
  ~CalibrateFit() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    write_file_atomic(folder_ / "data" / name, text);
  }
  void write_all(const std::string& header, const std::string& rows) const {
    write("a100_model.csv", header + rows);
    write("a100_dgx_all_reduce.csv", messages("all_reduce"));
    write("a100_dgx_send_recv.csv", messages("send_recv"));
  }
  CommandResult fit(const std::string& flags) const {
    const std::string command = fmt::format(
        "cd {} && " RPEG_BIN_DIR "/rpeg-calibrate --fit-profile data {}", path(""), flags);
    return run_command(command, 100);
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(CalibrateFit, WritesAFileThatDependsOnItsInputsAlone) {
  write_all(kHeader, layer_rows());
  const CommandResult outcome = fit("--gpu a100 --out a.yaml --fit-report a.md");
  ASSERT_EQ(outcome.code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("| matrix products"));
  EXPECT_THAT(read_file(path("a.md")), HasSubstr("| all-reduce inside a node"));
  const std::string text = read_file(path("a.yaml"));
  EXPECT_THAT(text, Not(HasSubstr("host:")));
  EXPECT_THAT(text, Not(HasSubstr("date:")));
  EXPECT_THAT(text, Not(HasSubstr(path(""))));
  const HardwareProfile profile = load_hardware_profile(path("a.yaml"));
  EXPECT_TRUE(profile.warnings.empty());
  EXPECT_NEAR(profile.gemm_m_half, 100.0, 20.0);
  EXPECT_TRUE(profile.gemm_m_half_tp.contains(2));

  ASSERT_EQ(fit("--gpu a100 --out b.yaml").code, 0);
  EXPECT_EQ(read_file(path("b.yaml")), text);
}

TEST_F(CalibrateFit, SuspectsOtherUnitsBehindAnImplausibleFit) {
  write_all(kHeader, layer_rows());
  // Messages a billion times too fast.
  std::string seconds = "time_stats.send_recv.median,rank,num_workers,size,devices_per_node\n";
  for (int size = 1024; size <= (1 << 26); size *= 4) {
    seconds += fmt::format("{},0,2,{},2\n", 1e-9 * (0.02 + 1e-8 * size), size);
  }
  write("a100_dgx_send_recv.csv", seconds);
  const CommandResult outcome = fit("--gpu a100");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("are its times in milliseconds"));
  EXPECT_THAT(outcome.output, HasSubstr("`alpha_p2p_g`"));
  EXPECT_FALSE(std::filesystem::exists(path("hw.yaml")));
}

TEST_F(CalibrateFit, NamesWhatAFolderLacks) {
  const CommandResult empty = fit("--gpu h100");
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.output, HasSubstr("no measurements in data: expected h100_<model>.csv"));

  write("a100_model.csv", kHeader + layer_rows());
  const CommandResult no_messages = fit("--gpu a100");
  EXPECT_EQ(no_messages.code, 2);
  EXPECT_THAT(no_messages.output, HasSubstr("a100_dgx_all_reduce.csv"));

  const CommandResult no_gpu = fit("--gpu b200");
  EXPECT_EQ(no_gpu.code, 2);
  EXPECT_THAT(no_gpu.output, HasSubstr("a100"));
  EXPECT_EQ(fit("").code, 2);
}

TEST_F(CalibrateFit, NamesFileLineAndColumnOfABadTable) {
  const std::string rows = layer_rows();
  const auto failure = [&](const std::string& header, const std::string& text) {
    write_all(header, text);
    const CommandResult outcome = fit("--gpu a100");
    EXPECT_EQ(outcome.code, 2) << outcome.output;
    EXPECT_FALSE(std::filesystem::exists(path("hw.yaml")));
    return outcome.output;
  };
  EXPECT_THAT(failure(replaced(kHeader, "mlp_act.median", "mlp_act.mean"), rows),
              HasSubstr("a100_model.csv:1: no column `time_stats.mlp_act.median`"));
  EXPECT_THAT(failure(kHeader, replaced(rows, ",4096,11008,", ",4096,wide,")),
              HasSubstr("a100_model.csv:2: column `n_expanded_embd`: expected a number above 0, "
                        "found `wide`"));
  EXPECT_THAT(failure(kHeader, replaced(rows, "0.404,", "-0.404,")),
              HasSubstr("column `time_stats.attn_pre_proj.median`: expected a number above 0"));
  EXPECT_THAT(failure(kHeader, replaced(rows, ",True,", ",yes,")),
              HasSubstr("expected True or False, found `yes`"));
  EXPECT_THAT(failure(kHeader, rows + "1,2,3\n"), HasSubstr("expected 16 fields"));
  EXPECT_THAT(failure(kHeader, replaced(rows, ",1,2\n", ",1,128\n")),
              HasSubstr("column `num_tensor_parallel_workers`: expected at most 64, found 128"));
  EXPECT_THAT(failure(kHeader, ""), HasSubstr("expected a line of column names"));
  EXPECT_THAT(failure(kHeader, replaced(rows, ",32,32,4096,", ",32,8,4096,")),
              HasSubstr("a100_model.csv:3: another model shape than in line 2"));
}

}  // namespace
}  // namespace rpeg
