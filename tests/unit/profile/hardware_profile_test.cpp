#include "rpeg/profile/hardware_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/rng.h"
#include "support/text.h"

namespace rpeg {
namespace {

using test::replaced;
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
  EXPECT_THAT(error_of(si_text() + "observed: {g_pi: 1.1}\n"),
              HasSubstr("unknown key `observed.g_pi`"));
  EXPECT_THAT(error_of(si_text() + "non_gemm_form: bytes\n"),
              HasSubstr("`non_gemm_scaling`: has no effect beside `non_gemm_form: bytes`"));
  EXPECT_THAT(error_of(si_text() + "non_gemm_form: bytes\n"),
              HasSubstr("`non_gemm_batch_unit`: has no effect"));
  EXPECT_THAT(error_of(replaced(si_text(), "gemm_m_half", "gemm_m_hlf")),
              HasSubstr("did you mean `gemm_m_half`?"));
  EXPECT_THAT(error_of(replaced(si_text(), "rpeg-hw/1", "rpeg-hw/2")), HasSubstr("rpeg-hw/1"));
  EXPECT_THAT(error_of(replaced(si_text(), "units: si", "units: cgs")), HasSubstr("`units`"));
}

TEST(HardwareProfile, ReadsValuesByTensorParallelSize) {
  const HardwareProfile profile = parse_hardware_profile(
      si_text() +
          "gemm_m_half_tp: {2: 120, 8: 160}\ndecode_bw_eff_tp:\n  4: 0.6\n"
          "flops_eff_tp: {64: 0.9}\ngemm_call: 2e-06\n"
          "fit: {flops_eff_tp: {samples: 3, relative_rms: 0.1, r_squared: 0.9}}\n",
      "hw.yaml");
  EXPECT_EQ(profile.gemm_m_half_tp, (std::map<int, double>{{2, 120}, {8, 160}}));
  EXPECT_EQ(profile.decode_bw_eff_tp, (std::map<int, double>{{4, 0.6}}));
  EXPECT_EQ(profile.flops_eff_tp, (std::map<int, double>{{64, 0.9}}));
  EXPECT_DOUBLE_EQ(profile.gemm_call_s, 2e-6);
}

TEST(HardwareProfile, ReportsEveryFaultOfATable) {
  const auto fault = [](const std::string& lines) { return error_of(si_text() + lines + "\n"); };
  EXPECT_THAT(fault("gemm_m_half_tp: {0: 1}"), HasSubstr("expected 1 to 64"));
  EXPECT_THAT(fault("gemm_m_half_tp: {65: 1}"), HasSubstr("`gemm_m_half_tp.65`"));
  EXPECT_THAT(fault("gemm_m_half_tp: {02: 1}"), HasSubstr("is not a tensor-parallel size"));
  EXPECT_THAT(fault("gemm_m_half_tp: {2: -1}"), HasSubstr("-1 is implausible, expected 0 to"));
  EXPECT_THAT(fault("gemm_m_half_tp: {}"), HasSubstr("such as {2: 0.7, 4: 0.6}"));
  EXPECT_THAT(fault("gemm_m_half_tp: [1]"), HasSubstr("expected a map"));
  EXPECT_THAT(fault("decode_bw_eff_tp: {2: 70}"), HasSubstr("is it in percent? then write 0.7"));
  EXPECT_THAT(fault("flops_eff_tp: {2: x}"), HasSubstr("expected a number"));
  EXPECT_THAT(fault("node_bytes_per_s: 25"), HasSubstr("is it in GB/s? then write 2.5e+10"));
  EXPECT_THAT(fault("coll_table_g: 3"), HasSubstr("expected a sequence"));
  EXPECT_THAT(fault("coll_table_g: []"), HasSubstr("at least two rows"));
  EXPECT_THAT(fault("coll_table_g: [[1, 1e-5]]"), HasSubstr("at least two rows"));
  EXPECT_THAT(fault("coll_table_n: [[1, 1e-5, 2], 7]"), HasSubstr("`coll_table_n[1]`"));
  EXPECT_THAT(fault("p2p_table_r: [[8, 1e-5], [8, 2e-5]]"), HasSubstr("ascend from row to row"));
  EXPECT_THAT(fault("p2p_table_r: [[8, 3e-5], [9, 2e-5]]"), HasSubstr("cannot take less time"));
  EXPECT_THAT(fault("p2p_table_g: [[0, 1e-5], [9, 2e-5]]"), HasSubstr("bytes: 0 is implausible"));
  EXPECT_THAT(fault("p2p_table_g: [[1, 1e-5], [9, 0]]"), HasSubstr("seconds: 0 is implausible"));
  EXPECT_THAT(fault("coll_tabel_g: [[1, 1e-5]]"), HasSubstr("did you mean `coll_table_g`?"));
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

double between(Rng& rng, double low, double high) {
  return low * std::pow(high / low, rng.uniform());
}

void add_random_tables(Rng& rng, HardwareProfile& p) {
  for (auto* table : {&p.decode_bw_eff_tp, &p.gemm_m_half_tp, &p.flops_eff_tp}) {
    for (std::int64_t entries = rng.below(4); entries > 0; --entries) {
      (*table)[static_cast<int>(1 + rng.below(64))] = between(rng, 1e-3, 1);
    }
  }
  for (auto* tiers : {&p.collective_table, &p.point_to_point_table}) {
    for (auto& rows : *tiers) {
      double bytes = between(rng, 1, 1e3);
      double seconds = between(rng, 1e-8, 1e-5);
      for (std::int64_t n = rng.below(2) * (2 + rng.below(8)); n > 0; --n) {
        rows.emplace_back(bytes, seconds);
        bytes *= between(rng, 1.01, 10);
        seconds *= rng.below(4) == 0 ? 1.0 : between(rng, 1.01, 10);
      }
    }
  }
}

/// A profile with plausible random values in every field.
HardwareProfile random_profile(Rng& rng) {
  HardwareProfile p;
  p.flops_per_gpu = between(rng, 1e9, 1e17);
  p.memory_per_gpu = between(rng, 1e7, 1e14);
  p.memory_bandwidth = between(rng, 1e8, 1e14);
  for (std::size_t i = 0; i < kTiers; ++i) {
    p.collective[i] = {between(rng, 1e-8, 1), between(rng, 1e-14, 1e-6)};
    p.point_to_point[i] = {between(rng, 1e-8, 1), between(rng, 1e-14, 1e-6)};
    p.alpha_step_s[i] = rng.below(2) == 0 ? 0.0 : between(rng, 1e-8, 1e-3);
  }
  p.gemm_m_half = between(rng, 1, 1e4);
  p.decode_bw_eff = between(rng, 0.01, 1);
  p.non_gemm_constant = between(rng, 1e-7, 1e-2);
  p.non_gemm_bytes = rng.below(3) == 0;
  if (!p.non_gemm_bytes) {
    p.non_gemm_scaling = between(rng, 1e-7, 1e-2);
    p.non_gemm_batch_cal = between(rng, 1, 1e5);
    p.non_gemm_per_sequence = rng.below(2) == 1;
  }
  add_random_tables(rng, p);
  p.gemm_call_s = rng.below(2) == 0 ? 0.0 : between(rng, 1e-8, 1e-4);
  p.gemm_call_floor_s = rng.below(2) == 0 ? 0.0 : between(rng, 1e-8, 1e-4);
  p.node_bytes_per_s = rng.below(2) == 0 ? 0.0 : between(rng, 1e6, 1e16);
  p.rack_bytes_per_s = rng.below(2) == 0 ? 0.0 : between(rng, 1e6, 1e16);
  p.attention_eff = between(rng, 0.1, 1);
  p.kv_bw_eff = rng.below(2) == 0 ? 0.0 : between(rng, 0.1, 1);
  p.host_step_s = between(rng, 1e-6, 1e-2);
  p.overlap_slowdown = between(rng, 1, 3);
  p.reserve_bytes = between(rng, 1, 1e10);
  p.grad_buckets = static_cast<double>(1 + rng.below(64));
  p.estimated = {"alpha_coll_r", "coll_table_g", "decode_bw_eff_tp"};
  p.fit["flops_per_gpu"] = {rng.below(1000), between(rng, 1e-4, 1), rng.uniform()};
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
  Rng profiles(29);
  const std::string published = read_file(kPublished);
  const std::string alphabet = "{}[]:,-#&'\" \n.eE+0123456789az\x01";
  Rng rng(23);
  for (int round = 0; round < 3000; ++round) {
    std::string text =
        round % 2 == 0 ? published : hardware_profile_text(random_profile(profiles), {});
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
