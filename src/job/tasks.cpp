#include "rpeg/job/tasks.h"

#include <algorithm>
#include <limits>

namespace rpeg {

std::string transfer_name(const Graph& graph, const WeightTransfer& transfer) {
  return graph.vertices[index(transfer.producer)].name + "->" +
         graph.vertices[index(transfer.consumer)].name;
}

std::string task_of(const Job& job, const Instruction& instruction) {
  if (instruction.transfer < 0) {
    return job.graph.vertices[index(instruction.vertex)].name;
  }
  return transfer_name(job.graph, job.transfers.at(static_cast<std::size_t>(instruction.transfer)));
}

std::vector<std::string> task_names(const Job& job) {
  std::vector<std::string> names;
  for (const Vertex& vertex : job.graph.vertices) {
    names.push_back(vertex.name);
  }
  for (const WeightTransfer& transfer : job.transfers) {
    names.push_back(transfer_name(job.graph, transfer));
  }
  return names;
}

bool records_sequences(const Job& job, const Instruction& instruction) {
  if (instruction.kind == InstructionKind::kGenerate) {
    return true;
  }
  const bool generates = std::ranges::any_of(
      job.graph.vertices, [](const Vertex& vertex) { return vertex.op == Op::kGenerate; });
  return !generates && instruction.kind == InstructionKind::kInfer &&
         job.graph.vertices[index(instruction.vertex)].op == Op::kInferReference;
}

double predicted_task_s(const Job& job, const std::string& task) {
  const auto found = job.predicted.breakdown.find(task);
  if (found == job.predicted.breakdown.end()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return found->second.compute_s + found->second.comm_s + found->second.bubble_s;
}

}  // namespace rpeg
