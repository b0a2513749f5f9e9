#pragma once

/// The keys of hw.yaml that hold more than one number: values by tensor-parallel size
/// (`gemm_m_half_tp: {2: 120, 4: 140}`) and measured times of messages (`coll_table_g`, rows of
/// [bytes, s]).

#include <string>

#include "rpeg/profile/hardware_profile.h"
#include "rpeg/yaml/reader.h"
#include "rpeg/yaml/writer.h"

namespace rpeg {

bool is_table(const std::string& key);

/// Reads all of them; what is malformed or implausible becomes a fault of `reader`.
void read_tables(MapReader& reader, HardwareProfile& profile);

/// Write those that are not empty.
void write_tp_tables(YamlWriter& writer, const HardwareProfile& profile);
void write_message_tables(YamlWriter& writer, const HardwareProfile& profile);

}  // namespace rpeg
