#include "rpeg/profile/hardware_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"

namespace rpeg {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const std::string kPublished =
    std::string(RPEG_SOURCE_DIR) + "/tests/golden/data/published/hw.yaml";

std::string error_of(const std::string& text) {
  try {
    parse_hardware_profile(text, "hw.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string si_text() {
  return hardware_profile_text(load_hardware_profile("builtin:h100-sxm"), {});
}

TEST(HardwareProfile, ReadsThePublishedDialect) {
  const HardwareProfile profile = load_hardware_profile(kPublished);
  EXPECT_DOUBLE_EQ(profile.flops_per_gpu, 4.4e14);                       // 4.4e11 kFLOP/s
  EXPECT_DOUBLE_EQ(profile.collective[0].beta_s_per_byte, 4.545e-12);    // 4.545e-9 s/kB
  EXPECT_DOUBLE_EQ(profile.point_to_point[2].beta_s_per_byte, 1.6e-10);  // 1.6e-7 s/kB
  EXPECT_DOUBLE_EQ(profile.collective[0].alpha_s, 78e-6);
  EXPECT_DOUBLE_EQ(profile.memory_per_gpu, 103e9);
  EXPECT_DOUBLE_EQ(profile.memory_bandwidth, 1e12);
  EXPECT_TRUE(profile.non_gemm_per_sequence);
  EXPECT_THAT(describe(profile), HasSubstr("440 TFLOP/s"));
  EXPECT_THAT(describe(profile), HasSubstr("220 GB/s, 78 us"));
  EXPECT_THAT(describe(profile), HasSubstr("12.5 GB/s, 220 us"));
  ASSERT_EQ(profile.warnings.size(), 1u);
  EXPECT_THAT(profile.warnings[0], HasSubstr("440 TFLOP/s"));
  EXPECT_THAT(profile.warnings[0], HasSubstr("220 GB/s"));
  EXPECT_THAT(profile.warnings[0], HasSubstr("units: si"));
}

TEST(HardwareProfile, TheAdviceOfTheWarningSilencesItAndChangesNothing) {
  HardwareProfile published = load_hardware_profile(kPublished);
  const HardwareProfile si =
      parse_hardware_profile(hardware_profile_text(published, {}), "hw.yaml");
  EXPECT_TRUE(si.warnings.empty());
  published.warnings.clear();
  EXPECT_EQ(si, published);
}

TEST(HardwareProfile, BuiltinsArePlausibleAndMarkedEstimated) {
  for (const char* name : {"builtin:h100-sxm", "builtin:h200-sxm", "builtin:a100-80g-sxm"}) {
    const HardwareProfile profile = load_hardware_profile(name);
    EXPECT_TRUE(profile.warnings.empty());
    EXPECT_THAT(profile.estimated, ::testing::Contains("flops_per_gpu"));
    EXPECT_THAT(profile.estimated, ::testing::Contains("beta_p2p_r"));
    EXPECT_EQ(parse_hardware_profile(hardware_profile_text(profile, {}), "f"), profile);
  }
  // 0.76 x 989.4 TFLOP/s; 0.8 x 450 GB/s
  EXPECT_THAT(describe(load_hardware_profile("builtin:h100-sxm")), HasSubstr("752 TFLOP/s"));
  EXPECT_THAT(describe(load_hardware_profile("builtin:h100-sxm")), HasSubstr("360 GB/s"));
  try {
    load_hardware_profile("builtin:h100");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("h100-sxm, h200-sxm, a100-80g-sxm"));
  }
}

TEST(HardwareProfile, NamesTheLikelySlipInUnits) {
  const std::string text = si_text();
  const auto with = [&](const std::string& key, const std::string& value) {
    const std::size_t at = text.find("\n" + key + ": ") + 1;
    return error_of(text.substr(0, at) + key + ": " + value + text.substr(text.find("  #", at)));
  };
  EXPECT_THAT(with("flops_per_gpu", "440"), HasSubstr("is it in TFLOP/s? then write 4.4e+14"));
  EXPECT_THAT(with("memory_per_gpu", "80"), HasSubstr("is it in GB? then write 8e+10"));
  EXPECT_THAT(with("memory_bandwidth", "3.35"), HasSubstr("is it in TB/s? then write 3.35e+12"));
  EXPECT_THAT(with("alpha_coll_g", "78"), HasSubstr("is it in us? then write 7.8e-05"));
  EXPECT_THAT(with("beta_coll_n", "12.5"), HasSubstr("is it a bandwidth in GB/s?"));
  EXPECT_THAT(with("beta_coll_n", "12.5"), HasSubstr("8e-11"));
  EXPECT_THAT(with("decode_bw_eff", "63"), HasSubstr("is it in percent? then write 0.63"));
  EXPECT_THAT(with("flops_per_gpu", "1e30"), HasSubstr("implausible"));
}

TEST(HardwareProfile, SaysOfAnEmptyFileOnlyThatItIsEmpty) {
  EXPECT_THAT(error_of(""), HasSubstr("expected a map of keys and values, found nothing"));
  EXPECT_THAT(error_of(""), Not(HasSubstr("implausible")));
}

TEST(HardwareProfile, SuspectsAMissingUnitsKey) {
  const std::string error = error_of(replaced(si_text(), "units: si\n", ""));
  EXPECT_THAT(error, HasSubstr("flops_per_gpu"));
  EXPECT_THAT(error, HasSubstr("for SI values add `units: si`"));
}

TEST(HardwareProfile, RefusesKeysThatItWouldNotUse) {
  EXPECT_THAT(error_of(si_text() + "gemm_m_half_tp: {2: 100}\n"),
              HasSubstr("`gemm_m_half_tp`: not supported by this version"));
  EXPECT_THAT(error_of(si_text() + "coll_table_n: [[1, 1]]\n"), HasSubstr("not supported"));
  EXPECT_THAT(error_of(replaced(si_text(), "gemm_m_half", "gemm_m_hlf")),
              HasSubstr("did you mean `gemm_m_half`?"));
  EXPECT_THAT(error_of(replaced(si_text(), "rpeg-hw/1", "rpeg-hw/2")), HasSubstr("rpeg-hw/1"));
  EXPECT_THAT(error_of(replaced(si_text(), "units: si", "units: cgs")), HasSubstr("`units`"));
}

TEST(HardwareProfile, CommentsSayWhatAValueMeansAndWhatIsEstimated) {
  HardwareProfile profile = load_hardware_profile(kPublished);
  profile.estimated = {"alpha_coll_r", "beta_coll_r", "alpha_coll_n"};
  const std::string text = hardware_profile_text(profile, {});
  EXPECT_THAT(text, ::testing::StartsWith("schema: rpeg-hw/1\nunits: si\n"));
  EXPECT_THAT(text, HasSubstr("flops_per_gpu: 4.4e+14  # 440 TFLOP/s"));
  EXPECT_THAT(text, HasSubstr("# 440 us between racks; estimated: 2x cross-node"));
  EXPECT_THAT(text, HasSubstr("# 220 us between nodes; estimated\n"));  // 220 is not 2 x 78
  EXPECT_GT(text.find("provenance:"), text.find("estimated: ["));
}

/// A profile with plausible random values in every field.
HardwareProfile random_profile(Rng& rng) {
  const auto between = [&](double low, double high) {
    return low * std::pow(high / low, rng.uniform());
  };
  HardwareProfile p;
  p.flops_per_gpu = between(1e9, 1e17);
  p.memory_per_gpu = between(1e7, 1e14);
  p.memory_bandwidth = between(1e8, 1e14);
  for (std::size_t i = 0; i < kTiers; ++i) {
    p.collective[i] = {between(1e-8, 1), between(1e-14, 1e-6)};
    p.point_to_point[i] = {between(1e-8, 1), between(1e-14, 1e-6)};
    p.alpha_step_s[i] = rng.below(2) == 0 ? 0.0 : between(1e-8, 1e-3);
  }
  p.gemm_m_half = between(1, 1e4);
  p.decode_bw_eff = between(0.01, 1);
  p.non_gemm_constant = between(1e-7, 1e-2);
  p.non_gemm_scaling = between(1e-7, 1e-2);
  p.non_gemm_batch_cal = between(1, 1e5);
  p.non_gemm_per_sequence = rng.below(2) == 1;
  p.attention_eff = between(0.1, 1);
  p.kv_bw_eff = rng.below(2) == 0 ? 0.0 : between(0.1, 1);
  p.host_step_s = between(1e-6, 1e-2);
  p.overlap_slowdown = between(1, 3);
  p.reserve_bytes = between(1, 1e10);
  p.grad_buckets = static_cast<double>(1 + rng.below(64));
  p.estimated = {"alpha_coll_r"};
  p.fit["flops_per_gpu"] = {rng.below(1000), between(1e-4, 1), rng.uniform()};
  p.device = {{"name", "no"}, {"count per node", "4"}, {"dtype", "fp32"}};
  p.software = {{"mpi", "4.1"}, {"blas", "a: b #c"}};
  return p;
}

TEST(HardwareProfile, WhatIsWrittenReadsBackEqual) {
  Rng rng(17);
  const Provenance provenance{"tool", "0.1", "date", "host", "a \"b\" c", {{"x y", "00"}}};
  for (int round = 0; round < 300; ++round) {
    const HardwareProfile profile = random_profile(rng);
    const std::string text = hardware_profile_text(profile, provenance);
    ASSERT_EQ(parse_hardware_profile(text, "f"), profile) << text;
  }
}

TEST(HardwareProfile, MutatedFilesNeverCrash) {
  const std::string seed_text = read_file(kPublished);
  const std::string alphabet = "{}[]:,-#&'\" \n.eE+0123456789az\x01";
  Rng rng(23);
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed_text;
    for (std::int64_t edits = 1 + rng.below(5); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(text.size())));
      text[at] =
          alphabet[static_cast<std::size_t>(rng.below(static_cast<std::int64_t>(alphabet.size())))];
    }
    try {
      parse_hardware_profile(text, "f");
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::kUsage) << text;
    }
  }
}

}  // namespace
}  // namespace rpeg
