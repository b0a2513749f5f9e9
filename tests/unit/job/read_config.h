#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "job/config_yaml.h"
#include "rpeg/base/file.h"

namespace rpeg {

/// Reads a job.yaml for the inputs of a plan, without looking at the plan or at what this version
/// can run.
inline JobConfig read_config(const std::filesystem::path& path,
                             const WorkloadConfig& inputs,
                             std::vector<std::string>& warnings) {
  const YamlValue document = parse_yaml(read_file(path), path.string());
  Faults faults(path.string());
  MapReader root(document, "", faults);
  root.ignore("schema");
  JobConfig config = read_job_config(root, {inputs, path.parent_path(), warnings, inputs.seed});
  faults.throw_if_any();
  return config;
}

}  // namespace rpeg
