#pragma once

#include <string>

#include "rpeg/plan/plan.h"
#include "rpeg/yaml/reader.h"

namespace rpeg {

/// Reads `structure` of plan.yaml. Faults go to the reader; what the inputs allow is checked only
/// when `inputs` is not null.
Structure read_structure(MapReader reader, const WorkloadConfig* inputs);

/// `structure` as read_structure reads it, in flow style.
std::string structure_yaml(const Structure& structure, const WorkloadSpec& workload);

}  // namespace rpeg
