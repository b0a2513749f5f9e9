#include "report/task_vertices.h"

#include <string>

#include "rpeg/base/error.h"

namespace rpeg::report {
namespace {

/// "g_pi" of "g_pi.2".
std::string whole_vertex(const std::string& task) { return task.substr(0, task.rfind('.')); }

}  // namespace

std::vector<std::int32_t> task_vertices(const Evaluation& evaluation) {
  // Tasks begin with the vertices in the plan's order, the stages of one after another; transfers
  // follow.
  const auto& tasks = evaluation.priced.tasks.tasks;
  std::vector<std::int32_t> vertices(tasks.size(), -1);
  const auto count = static_cast<std::int32_t>(evaluation.plan.vertices.size());
  std::int32_t vertex = -1;
  for (std::size_t id = 0; id < tasks.size(); ++id) {
    const bool continues =
        id > 0 && whole_vertex(tasks[id].name) == whole_vertex(tasks[id - 1].name);
    if (!continues && ++vertex == count) break;
    vertices[id] = vertex;
  }
  return vertices;
}

const MemoryUse& task_memory(const Evaluation& evaluation, std::size_t task) {
  const std::int32_t vertex = task_vertices(evaluation)[task];
  check(vertex >= 0, "report: a transfer has no memory of its own");
  return evaluation.priced.memory.at(static_cast<std::size_t>(vertex));
}

}  // namespace rpeg::report
