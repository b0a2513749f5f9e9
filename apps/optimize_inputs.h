#pragma once

#include <string>
#include <vector>

#include "optimize_flags.h"
#include "rpeg/profile/hardware_profile.h"
#include "rpeg/report/report.h"

namespace rpeg::apps {

/// The configuration with what the flags override.
WorkloadConfig load_config(const OptimizeFlags& flags);

/// The profile, scaled by --observed; its warnings are logged.
HardwareProfile load_hardware(const OptimizeFlags& flags);

/// A plan for `config`: a named one, or that of a file, which must suit the configuration. Throws
/// kUsage with every reason why it does not.
NamedPlan load_plan(const std::string& name_or_path,
                    const WorkloadConfig& config,
                    const HardwareProfile& profile);

/// What --evaluate names: a plan file with the inputs embedded in it, or a named plan of --config.
PlanFile load_plan_to_evaluate(const OptimizeFlags& flags, const HardwareProfile& profile);

/// Whether the text is one of plan_names().
bool is_plan_name(const std::string& text);

/// Start, pins, budget and limits of a search. `start` and `progress` are left alone.
SearchOptions search_options(const OptimizeFlags& flags,
                             const WorkloadConfig& config,
                             const HardwareProfile& profile);

/// The sizes of "gpus=8,16,32", ascending. Throws kUsage.
std::vector<int> parse_sweep(const std::string& text);

/// Throws kUsage when an output of a search could not be written in the end.
void check_outputs(const WorkloadConfig& config);

}  // namespace rpeg::apps
