#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "profile/parameters.h"
#include "profile/tables.h"
#include "rpeg/profile/hardware_profile.h"

namespace rpeg {
namespace {

bool is_estimated(const HardwareProfile& profile, const std::string& key) {
  return std::find(profile.estimated.begin(), profile.estimated.end(), key) !=
         profile.estimated.end();
}

const Parameter* find_parameter(const std::string& key) {
  for (const Parameter& parameter : hardware_parameters()) {
    if (parameter.key == key) {
      return &parameter;
    }
  }
  return nullptr;
}

/// "; estimated: 2x cross-node" for an unmeasured tier that doubles the one below it.
std::string estimate_note(const HardwareProfile& profile, const Parameter& parameter) {
  if (!is_estimated(profile, parameter.key)) {
    return "";
  }
  const bool is_node = parameter.key.ends_with("_n");
  if (is_node || parameter.key.ends_with("_r")) {
    const std::string base =
        parameter.key.substr(0, parameter.key.size() - 1) + (is_node ? "g" : "n");
    const Parameter* below = find_parameter(base);
    const double value = value_of(parameter, profile);
    if (below != nullptr && std::abs(value - 2.0 * value_of(*below, profile)) <= 1e-9 * value) {
      return is_node ? "; estimated: 2x intra-node" : "; estimated: 2x cross-node";
    }
  }
  return "; estimated";
}

std::string section_of(const std::string& key) {
  if (key == "flops_per_gpu") {
    return "Compute and memory of one GPU";
  }
  if (key == "alpha_coll_g") {
    return "Ring collectives: latency of a call (s), inverse bandwidth per rank (s/byte)";
  }
  if (key == "alpha_p2p_g") {
    return "Point-to-point messages";
  }
  if (key == "gemm_m_half") {
    return "Efficiency of matrix products and of decoding";
  }
  if (key == "non_gemm_constant") {
    return "Everything in a layer that is not a matrix product";
  }
  return key == "non_gemm_replicated" ? "Refinements" : "";
}

void write_parameters(YamlWriter& writer, const HardwareProfile& profile) {
  const HardwareProfile defaults;
  for (const Parameter& parameter : hardware_parameters()) {
    const double value = value_of(parameter, profile);
    if (parameter.key == "non_gemm_replicated" && profile.non_gemm_bytes) {
      writer.field("non_gemm_form", "bytes", "plus the layer's elementwise traffic at vector_eff");
    } else if (parameter.key == "non_gemm_replicated") {
      writer.field("non_gemm_batch_unit",
                   profile.non_gemm_per_sequence ? "sequences" : "tokens",
                   "what non_gemm_batch_cal counts");
    }
    const std::string section = section_of(parameter.key);
    if (!section.empty()) {
      writer.blank();
      writer.comment(section);
    }
    const bool is_replaced = profile.non_gemm_bytes && (parameter.key == "non_gemm_scaling" ||
                                                        parameter.key == "non_gemm_batch_cal");
    const bool is_default = !parameter.required && value == value_of(parameter, defaults);
    if (is_replaced || (is_default && !is_estimated(profile, parameter.key))) {
      continue;
    }
    writer.field(parameter.key,
                 value,
                 fmt::format("{} {}{}",
                             human_text(parameter.quantity, value),
                             parameter.meaning,
                             estimate_note(profile, parameter)));
    if (parameter.key == "decode_bw_eff") {
      write_tp_tables(writer, profile);
    }
  }
  write_message_tables(writer, profile);
}

void write_facts(YamlWriter& writer,
                 const char* key,
                 const std::map<std::string, std::string>& facts) {
  if (facts.empty()) {
    return;
  }
  writer.begin_map(key);
  for (const auto& [name, value] : facts) {
    writer.field(name, value);
  }
  writer.end_map();
}

}  // namespace

std::string hardware_profile_text(const HardwareProfile& profile, const Provenance& provenance) {
  YamlWriter writer;
  writer.field("schema", "rpeg-hw/1");
  writer.field("units", "si");
  write_parameters(writer, profile);
  writer.blank();
  if (!profile.fit.empty()) {
    writer.begin_map("fit");
    for (const auto& [key, quality] : profile.fit) {
      writer.raw(key,
                 fmt::format("{{samples: {}, relative_rms: {}, r_squared: {}}}",
                             yaml_scalar(quality.samples),
                             yaml_scalar(quality.relative_rms),
                             yaml_scalar(quality.r_squared)));
    }
    writer.end_map();
  }
  write_observed_factors(writer, profile.observed);
  if (!profile.estimated.empty()) {
    writer.raw("estimated", yaml_flow(profile.estimated));
  }
  write_facts(writer, "device", profile.device);
  write_facts(writer, "software", profile.software);
  write_provenance(writer, provenance);
  return writer.text();
}

}  // namespace rpeg
