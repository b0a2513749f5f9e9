#pragma once

/// Rules between the fields of a workload configuration. Each records its faults, with the
/// arithmetic shown, at the reader of the map that holds the fields; the fields themselves are
/// known to be in range.

#include "rpeg/spec/workload_config.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {

void check_cluster(const ClusterSpec& cluster, MapReader& reader);
void check_heads(const ModelSpec& model, MapReader& reader);
void check_quantiles(const WorkloadSpec& workload, MapReader& reader);
void check_policy(const PolicySpec& policy, MapReader& reader);
void check_temperatures(const OptimizerSpec& optimizer, MapReader& reader);
/// Rules between the sections, whose readers have the sections' names.
void check_workload_config(const WorkloadConfig& config,
                           MapReader& models,
                           MapReader& workload,
                           MapReader& policy);

}  // namespace rpeg
