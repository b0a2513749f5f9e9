#include "profile/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "profile/parameters.h"
#include "rpeg/base/units.h"

namespace rpeg {
namespace {

constexpr int kLargestTp = 64;
constexpr Bounds kAny{-std::numeric_limits<double>::max(), std::numeric_limits<double>::max()};
constexpr PlausibleRange kMessageBytes{1.0, 1e14};
constexpr PlausibleRange kMessageSeconds{1e-8, 1e4};

struct TpTable {
  std::string key;
  Quantity quantity;
  std::map<int, double> HardwareProfile::* field;
  std::string meaning;
};

const std::vector<TpTable>& tp_tables() {
  static const std::vector<TpTable> kTables = {
      {"gemm_m_half_tp", Quantity::kRows, &HardwareProfile::gemm_m_half_tp, "gemm_m_half by tp"},
      {"decode_bw_eff_tp",
       Quantity::kShare,
       &HardwareProfile::decode_bw_eff_tp,
       "decode_bw_eff by tp"},
      {"flops_eff_tp",
       Quantity::kEfficiency,
       &HardwareProfile::flops_eff_tp,
       "of flops_per_gpu, by tp"},
  };
  return kTables;
}

using MessageRows = std::vector<std::pair<double, double>>;

struct MessageTable {
  std::string key;
  std::array<MessageRows, kTiers> HardwareProfile::* field;
  std::size_t tier;
};

const std::vector<MessageTable>& message_tables() {
  static const std::vector<MessageTable> kTables = {
      {"coll_table_g", &HardwareProfile::collective_table, 0},
      {"coll_table_n", &HardwareProfile::collective_table, 1},
      {"coll_table_r", &HardwareProfile::collective_table, 2},
      {"p2p_table_g", &HardwareProfile::point_to_point_table, 0},
      {"p2p_table_n", &HardwareProfile::point_to_point_table, 1},
      {"p2p_table_r", &HardwareProfile::point_to_point_table, 2},
  };
  return kTables;
}

bool is_inside(PlausibleRange range, double value) {
  return value >= range.low && value <= range.high;
}

std::string implausible(PlausibleRange range, double value) {
  return fmt::format("{} is implausible, expected {} to {}",
                     format_exact(value),
                     format_exact(range.low),
                     format_exact(range.high));
}

/// The size that a key names, or 0.
int tp_of(const std::string& key) {
  for (int tp = 1; tp <= kLargestTp; ++tp) {
    if (key == fmt::format("{}", tp)) {
      return tp;
    }
  }
  return 0;
}

void read_tp_table(const TpTable& table, MapReader& reader, HardwareProfile& profile) {
  const YamlValue* block = reader.value(table.key, false);
  if (block == nullptr) {
    return;
  }
  MapReader map = reader.map(table.key, false);
  if (block->kind == YamlValue::Kind::kMap && block->fields.empty()) {
    reader.fault(table.key, "expected a value by tensor-parallel size, such as {2: 0.7, 4: 0.6}");
  }
  const PlausibleRange range = plausible_range(table.quantity);
  for (const auto& [key, item] : block->fields) {
    const int tp = tp_of(key);
    if (tp == 0) {
      map.fault(
          key,
          fmt::format("is not a tensor-parallel size, expected 1 to {}, each once", kLargestTp));
      continue;
    }
    const std::size_t before = reader.faults().count();
    const double value = map.number(key, kAny);
    if (reader.faults().count() == before && !is_inside(range, value)) {
      map.fault(key, implausible(range, value) + slip_hint(table.quantity, value));
    }
    (profile.*table.field)[tp] = value;
  }
}

/// What is wrong with a row behind `rows`, or "".
std::string row_fault(const MessageRows& rows, double bytes, double seconds) {
  if (!is_inside(kMessageBytes, bytes)) {
    return "bytes: " + implausible(kMessageBytes, bytes);
  }
  if (!is_inside(kMessageSeconds, seconds)) {
    return "seconds: " + implausible(kMessageSeconds, seconds) +
           slip_hint(Quantity::kLatency, seconds);
  }
  if (!rows.empty() && bytes <= rows.back().first) {
    return fmt::format("bytes must ascend from row to row: {} after {}",
                       format_exact(bytes),
                       format_exact(rows.back().first));
  }
  if (!rows.empty() && seconds < rows.back().second) {
    return fmt::format("more bytes cannot take less time: {} s after {} s",
                       format_exact(seconds),
                       format_exact(rows.back().second));
  }
  return "";
}

void read_message_table(const MessageTable& table, MapReader& reader, HardwareProfile& profile) {
  if (!reader.has(table.key)) {
    reader.ignore(table.key);
    return;
  }
  MessageRows& rows = (profile.*table.field)[table.tier];
  const std::size_t before = reader.faults().count();
  reader.sequence(table.key, false, [&](const YamlValue& item, const std::string& path) {
    if (item.kind != YamlValue::Kind::kSequence || item.items.size() != 2) {
      reader.faults().add(item, path, "expected a pair [bytes, seconds]");
      return;
    }
    const std::size_t faults = reader.faults().count();
    const double bytes = yaml_number(item.items[0], path + "[0]", reader.faults(), kAny);
    const double seconds = yaml_number(item.items[1], path + "[1]", reader.faults(), kAny);
    if (reader.faults().count() != faults) {
      return;
    }
    const std::string fault = row_fault(rows, bytes, seconds);
    if (!fault.empty()) {
      reader.faults().add(item, path, fault);
      return;
    }
    rows.emplace_back(bytes, seconds);
  });
  if (rows.size() < 2 && reader.faults().count() == before) {
    reader.fault(table.key, "expected at least two rows [bytes, seconds] to interpolate between");
  }
}

}  // namespace

bool is_table(const std::string& key) {
  const auto has_key = [&](const auto& table) { return table.key == key; };
  return std::any_of(tp_tables().begin(), tp_tables().end(), has_key) ||
         std::any_of(message_tables().begin(), message_tables().end(), has_key);
}

void read_tables(MapReader& reader, HardwareProfile& profile) {
  for (const TpTable& table : tp_tables()) {
    read_tp_table(table, reader, profile);
  }
  for (const MessageTable& table : message_tables()) {
    read_message_table(table, reader, profile);
  }
}

void write_tp_tables(YamlWriter& writer, const HardwareProfile& profile) {
  for (const TpTable& table : tp_tables()) {
    std::vector<std::string> parts;
    for (const auto& [tp, value] : profile.*table.field) {
      parts.push_back(fmt::format("{}: {}", tp, yaml_scalar(value)));
    }
    if (!parts.empty()) {
      writer.raw(table.key, fmt::format("{{{}}}", fmt::join(parts, ", ")), table.meaning);
    }
  }
}

void write_message_tables(YamlWriter& writer, const HardwareProfile& profile) {
  bool is_first = true;
  for (const MessageTable& table : message_tables()) {
    const MessageRows& rows = (profile.*table.field)[table.tier];
    if (rows.empty()) {
      continue;
    }
    if (is_first) {
      writer.blank();
      writer.comment("Measured times by size: [bytes that a rank sends, s]");
      is_first = false;
    }
    writer.begin_sequence(table.key);
    for (const auto& [bytes, seconds] : rows) {
      writer.raw_item(yaml_flow({yaml_scalar(bytes), yaml_scalar(seconds)}));
    }
    writer.end_sequence();
  }
}

}  // namespace rpeg
