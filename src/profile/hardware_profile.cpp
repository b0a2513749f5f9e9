#include "rpeg/profile/hardware_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "profile/parameters.h"
#include "profile/tables.h"
#include "rpeg/base/error.h"
#include "rpeg/base/file.h"
#include "rpeg/base/text.h"
#include "rpeg/base/units.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {
namespace {

constexpr Bounds kAny{-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};

/// Without `units`, two kinds of numbers are off by 10³: rates in kFLOP/s, betas in s/kB.
double dialect_factor(Quantity quantity, bool is_si) {
  if (is_si) {
    return 1.0;
  }
  if (quantity == Quantity::kFlopRate) {
    return 1e3;
  }
  return quantity == Quantity::kInverseBandwidth ? 1e-3 : 1.0;
}

void check_plausible(const Parameter& parameter, double written, bool is_si, MapReader& reader) {
  const double factor = dialect_factor(parameter.quantity, is_si);
  const double value = written * factor;
  const PlausibleRange range = plausible_range(parameter.quantity);
  if (value >= range.low && value <= range.high) {
    return;
  }
  std::string message = fmt::format("{} is implausible, expected {} to {}",
                                    format_exact(written),
                                    format_exact(range.low / factor),
                                    format_exact(range.high / factor));
  const bool plausible_as_si = written >= range.low && written <= range.high;
  if (factor != 1.0 && plausible_as_si) {
    message += fmt::format(
        ": without `units:` this file is read in the published dialect ({}), {}; for SI values add "
        "`units: si`",
        parameter.quantity == Quantity::kFlopRate ? "kFLOP/s" : "s/kB",
        human_text(parameter.quantity, value));
  } else if (is_si || factor == 1.0) {
    message += slip_hint(parameter.quantity, written);
  }
  reader.fault(parameter.key, message);
}

void read_parameter(const Parameter& parameter,
                    bool is_si,
                    MapReader& reader,
                    HardwareProfile& profile) {
  if (!parameter.required && !reader.has(parameter.key)) {
    reader.ignore(parameter.key);
    return;
  }
  const std::size_t before = reader.faults().count();
  const double written = reader.number(parameter.key, kAny);
  if (reader.faults().count() == before) {
    check_plausible(parameter, written, is_si, reader);
    parameter.field(profile) = written * dialect_factor(parameter.quantity, is_si);
  }
}

/// With non_gemm_form: bytes the widths of the model take the place of these numbers; a file that
/// has both would change predictions without a word.
bool is_replaced_by_bytes(const Parameter& parameter) {
  return parameter.key == "non_gemm_scaling" || parameter.key == "non_gemm_batch_cal" ||
         parameter.key == "non_gemm_replicated";
}

void read_parameters(bool is_si, MapReader& reader, HardwareProfile& profile) {
  for (const Parameter& parameter : hardware_parameters()) {
    if (!profile.non_gemm_bytes || !is_replaced_by_bytes(parameter)) {
      read_parameter(parameter, is_si, reader, profile);
      continue;
    }
    if (reader.has(parameter.key)) {
      reader.fault(parameter.key,
                   "has no effect beside `non_gemm_form: bytes`; remove one of the two");
    }
    reader.ignore(parameter.key);
  }
}

bool is_parameter(const std::string& key) {
  const auto& all = hardware_parameters();
  return is_table(key) ||
         std::any_of(all.begin(), all.end(), [&](const Parameter& p) { return p.key == key; });
}

void read_estimated(MapReader& reader, HardwareProfile& profile) {
  reader.sequence("estimated", false, [&](const YamlValue& item, const std::string& path) {
    const std::string key = yaml_string(item, path, reader.faults());
    if (!is_parameter(key)) {
      reader.faults().add(item, path, fmt::format("`{}` is not a measured key of hw.yaml", key));
    }
    profile.estimated.push_back(key);
  });
}

void read_fit(MapReader& reader, HardwareProfile& profile) {
  const YamlValue* block = reader.value("fit", false);
  if (block == nullptr) {
    return;
  }
  MapReader fit = reader.map("fit", false);
  for (const auto& [key, item] : block->fields) {
    MapReader quality = fit.map(key, false);
    if (!is_parameter(key)) {
      fit.fault(key, "is not a measured key of hw.yaml");
    }
    FitQuality& result = profile.fit[key];
    result.samples = quality.integer("samples", {0, 1e12});
    result.relative_rms = quality.number("relative_rms", {0, 1e12});
    result.r_squared = quality.number("r_squared", {-1e12, 1});
    quality.finish();
  }
}

std::map<std::string, std::string> read_facts(MapReader& reader, const std::string& key) {
  std::map<std::string, std::string> facts;
  const YamlValue* block = reader.value(key, false);
  if (block == nullptr) {
    return facts;
  }
  MapReader map = reader.map(key, false);
  for (const auto& [name, item] : block->fields) {
    if (item.kind == YamlValue::Kind::kScalar) {
      facts[name] = item.scalar;
    } else {
      map.fault(name, "expected a word, a number or a quoted text");
    }
  }
  return facts;
}

std::string dialect_warning(const std::string& file, const HardwareProfile& profile) {
  return fmt::format(
      "{} has no `units:` key and is read in the published dialect, flops in kFLOP/s and betas in "
      "s/kB: {}. If that is right, silence this by writing SI values: `units: si`, "
      "flops_per_gpu x 1000 ({:.4g}), every beta / 1000 (beta_coll_g {:.4g}) and "
      "`non_gemm_batch_unit: sequences`. If the values are SI already, add `units: si` alone.",
      file,
      describe(profile),
      profile.flops_per_gpu,
      profile.collective[0].beta_s_per_byte);
}

std::string link_text(const AlphaBeta& link) {
  return fmt::format("{}, {}",
                     human_text(Quantity::kInverseBandwidth, link.beta_s_per_byte),
                     format_seconds(link.alpha_s));
}

}  // namespace

HardwareProfile parse_hardware_profile(const std::string& text, const std::string& file) {
  HardwareProfile profile;
  Faults faults(file);
  const YamlValue root = parse_yaml(text, file);
  MapReader reader(root, "", faults);
  faults.throw_if_any();  // what is no map lacks nothing else
  reader.choice("schema", {"rpeg-hw/1"}, 0);
  const bool is_si = reader.has("units");
  reader.choice("units", {"si"}, 0);
  profile.non_gemm_bytes = reader.choice("non_gemm_form", {"per_layer", "bytes"}, 0) == 1;
  read_parameters(is_si, reader, profile);
  read_tables(reader, profile);
  profile.non_gemm_per_sequence =
      reader.choice("non_gemm_batch_unit", {"tokens", "sequences"}, is_si ? 0 : 1) == 1;
  if (profile.non_gemm_bytes && reader.has("non_gemm_batch_unit")) {
    reader.fault("non_gemm_batch_unit", "has no effect beside `non_gemm_form: bytes`; remove it");
  }
  profile.non_gemm_per_sequence = profile.non_gemm_per_sequence && !profile.non_gemm_bytes;
  profile.observed = read_observed_factors(reader);
  read_estimated(reader, profile);
  read_fit(reader, profile);
  profile.device = read_facts(reader, "device");
  profile.software = read_facts(reader, "software");
  reader.ignore("provenance");
  reader.finish();
  faults.throw_if_any();
  if (!is_si) {
    profile.warnings.push_back(dialect_warning(file, profile));
  }
  return profile;
}

HardwareProfile load_hardware_profile(const std::string& path_or_builtin) {
  const std::string prefix = "builtin:";
  if (!path_or_builtin.starts_with(prefix)) {
    return parse_hardware_profile(read_file(path_or_builtin), path_or_builtin);
  }
  const std::string name = path_or_builtin.substr(prefix.size());
  if (auto profile = builtin_profile(name)) {
    return *profile;
  }
  const std::string near = nearest(name, builtin_names());
  throw Error(ErrorKind::kUsage,
              fmt::format("no built-in hardware `{}`; there are {}{}",
                          name,
                          fmt::join(builtin_names(), ", "),
                          near.empty() ? "" : fmt::format("; did you mean `{}`?", near)));
}

std::string describe(const HardwareProfile& profile) {
  return fmt::format("{}, {} at {}; inside a node {}; between nodes {}; between racks {}",
                     format_flop_rate(profile.flops_per_gpu),
                     format_bytes(profile.memory_per_gpu),
                     format_bandwidth(profile.memory_bandwidth),
                     link_text(profile.collective[0]),
                     link_text(profile.collective[1]),
                     link_text(profile.collective[2]));
}

}  // namespace rpeg
