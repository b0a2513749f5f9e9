// Temporary bodies until the search module brings its own (pins, named plans). Weak, so that the
// real ones win; to be deleted with the merge.
#include "rpeg/base/error.h"
#include "rpeg/search/baseline.h"
#include "rpeg/search/search.h"

namespace rpeg {

__attribute__((weak)) const std::vector<std::string>& plan_names() {
  static const std::vector<std::string> names{"greedy", "concurrent"};
  return names;
}

__attribute__((weak)) Plan named_plan(const std::string& name,
                                      const WorkloadConfig& config,
                                      const HardwareProfile& profile) {
  if (name == "greedy") return greedy_plan(config, profile);
  if (name == "concurrent") return concurrent_plan(config, profile);
  throw Error(ErrorKind::kUsage, "no plan is called " + name);
}

__attribute__((weak)) Pin parse_pin(const std::string& text) {
  throw Error(ErrorKind::kUsage, "pin `" + text + "`: not yet");
}

}  // namespace rpeg
