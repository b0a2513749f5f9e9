#include <fmt/format.h>

#include <vector>

#include "rpeg/base/units.h"
#include "rpeg/calibrate/calibrate.h"

namespace rpeg {
namespace {

/// One line of the table: parameters that come from one fit.
struct Row {
  std::string name;
  std::string values;
  std::string key;  ///< in HardwareProfile::fit; "": measured directly
};

std::string link_text(const AlphaBeta& link) {
  return fmt::format(
      "{} + {}", format_seconds(link.alpha_s), format_bandwidth(1.0 / link.beta_s_per_byte));
}

std::vector<Row> compute_rows(const HardwareProfile& p) {
  return {
      {"memory read", format_bandwidth(p.memory_bandwidth), ""},
      {"matrix products",
       fmt::format("{}, half at {:.3g} rows, {:.0f} % of memory at decode",
                   format_flop_rate(p.flops_per_gpu),
                   p.gemm_m_half,
                   100.0 * p.decode_bw_eff),
       "flops_per_gpu"},
      {"norms, residual",
       fmt::format("{} per layer at {:g} tokens",
                   format_seconds(p.non_gemm_replicated),
                   p.non_gemm_batch_cal),
       "non_gemm_replicated"},
      {"rotations, gates",
       fmt::format(
           "{} per layer at {:g} tokens", format_seconds(p.non_gemm_scaling), p.non_gemm_batch_cal),
       "non_gemm_scaling"},
      {"per layer and call", format_seconds(p.non_gemm_constant), ""},
      {"attention", fmt::format("{:.0f} % of matrix products", 100.0 * p.attention_eff), ""},
      {"key-value cache", fmt::format("{:.0f} % of memory", 100.0 * p.kv_bw_eff), ""},
      {"optimizer", fmt::format("{:.0f} % of memory", 100.0 * p.vector_eff), ""},
      {"decode step, rest", format_seconds(p.host_step_s), ""},
  };
}

std::vector<Row> link_rows(const HardwareProfile& p) {
  std::vector<Row> rows;
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    static constexpr std::array<const char*, kTiers> kNames = {"in node", "nodes", "racks"};
    static constexpr std::array<const char*, kTiers> kSuffix = {"g", "n", "r"};
    rows.push_back({fmt::format("collective, {}", kNames[tier]),
                    link_text(p.collective[tier]),
                    fmt::format("alpha_coll_{}", kSuffix[tier])});
    rows.push_back({fmt::format("message, {}", kNames[tier]),
                    link_text(p.point_to_point[tier]),
                    fmt::format("alpha_p2p_{}", kSuffix[tier])});
  }
  return rows;
}

std::string quality_text(const HardwareProfile& profile, const std::string& key) {
  const auto fit = profile.fit.find(key);
  if (fit != profile.fit.end()) {
    return fmt::format("{:>7} {:>9.1f} % {:>8.4f}",
                       fit->second.samples,
                       100.0 * fit->second.relative_rms,
                       fit->second.r_squared);
  }
  return key.empty() ? "measured" : "estimated";
}

}  // namespace

std::string fit_table(const HardwareProfile& profile) {
  std::string text =
      fmt::format("{:<20} {:<52} {:>7} {:>11} {:>8}\n", "", "", "samples", "rms error", "R2");
  std::vector<Row> rows = compute_rows(profile);
  for (Row& row : link_rows(profile)) {
    rows.push_back(std::move(row));
  }
  for (const Row& row : rows) {
    text += fmt::format("{:<20} {:<52} {}\n", row.name, row.values, quality_text(profile, row.key));
  }
  return text;
}

}  // namespace rpeg
