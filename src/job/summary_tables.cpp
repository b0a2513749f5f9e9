#include "job/summary_tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "job/layout.h"
#include "rpeg/base/units.h"
#include "rpeg/job/memory.h"
#include "rpeg/plan/plan_text.h"

namespace rpeg {
namespace {

/// "0-7 16 18": ascending runs of neighbours as ranges.
std::string rank_text(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += i == 0 ? "" : " ";
    text += last == i ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[last]);
    i = last + 1;
  }
  return text;
}

const char* to_string(Head head) {
  switch (head) {
    case Head::kLanguageModel:
      return "language";
    case Head::kScalar:
      return "scalar";
    case Head::kBoth:
      return "language and scalar";
  }
  return "";
}

double predicted_s(const Job& job, const std::string& id) {
  const auto at = job.predicted.breakdown.find(id);
  return at == job.predicted.breakdown.end()
             ? 0.0
             : at->second.compute_s + at->second.comm_s + at->second.bubble_s;
}

std::string names_of(const Job& job, const std::vector<VertexId>& vertices) {
  std::vector<std::string> names;
  for (const VertexId vertex : vertices) {
    names.push_back(job.graph.vertices[index(vertex)].name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

/// Predictions name the vertices of the uncut graph.
std::string base_name(const Vertex& vertex) { return vertex.name.substr(0, vertex.name.find('.')); }

/// Compiled weights are fp32; the prediction counts elements of optimizer.dtype. It leaves out what
/// stays on its GPU, as the compiler does, and moves no padding of the vocabulary either.
std::string prediction_text(const Job& job, const WeightTransfer& transfer, double moved_bytes) {
  const auto& copy = job.copies[static_cast<std::size_t>(transfer.to)];
  const auto& vertices = job.graph.vertices;
  for (const VertexId vertex : copy.vertices) {
    const auto found = job.predicted.breakdown.find(base_name(vertices[index(transfer.producer)]) +
                                                    "->" + base_name(vertices[index(vertex)]));
    if (found == job.predicted.breakdown.end() || found->second.bytes <= 0.0) {
      continue;
    }
    const bool is_half = job.inputs.optimizer.dtype == TrainDtype::kBf16;
    const double bytes = found->second.bytes * (is_half ? 2.0 : 1.0);
    const double excess = moved_bytes / bytes - 1.0;
    if (std::abs(excess) < 1e-6) {
      return fmt::format("{} predicted, equal", format_bytes(bytes));
    }
    return fmt::format("{} predicted, {:+.2f} %{}",
                       format_bytes(bytes),
                       100.0 * excess,
                       copy.vertices.size() > 1 ? ": several vertices read this copy" : "");
  }
  return "no prediction";
}

}  // namespace

std::string vertex_table(const Job& job) {
  std::string text =
      "| vertex | operation | model | (dp,pp,tp) | micro-batches | placement | ranks | period "
      "shift | predicted |\n|---|---|---|---|---|---|---|---|---|\n";
  const std::vector<TaskPosition> positions = task_positions(job);
  for (const VertexId id : period_order(positions)) {
    const Vertex& vertex = job.graph.vertices[index(id)];
    const VertexPlan& plan = plan_of(job, id);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                        vertex.name,
                        to_string(vertex.op),
                        to_string(vertex.model),
                        split_text(plan.parallelism),
                        plan.micro_batches,
                        placement_text(plan.placement),
                        rank_text(block_of(job, id).ranks),
                        positions[index(id)].shift,
                        format_seconds(predicted_s(job, vertex.name)));
  }
  return text;
}

std::string group_table(const Job& job) {
  constexpr int kShownReplicas = 8;
  std::string text = "| vertices | replica | stage | tensor-parallel ranks |\n|---|---|---|---|\n";
  for (std::size_t b = 0; b < job.blocks.size(); ++b) {
    std::vector<VertexId> vertices;
    for (std::size_t v = 0; v < job.vertex_block.size(); ++v) {
      if (static_cast<std::size_t>(job.vertex_block[v]) == b) {
        vertices.push_back(VertexId{static_cast<std::int32_t>(v)});
      }
    }
    const Block& block = job.blocks[b];
    const Parallelism& p = block.parallelism;
    for (int dp = 0; dp < std::min(p.dp, kShownReplicas); ++dp) {
      for (int pp = 0; pp < p.pp; ++pp) {
        text += fmt::format("| {} | {} | {} | {} |\n",
                            dp == 0 && pp == 0 ? names_of(job, vertices) : "",
                            dp,
                            pp,
                            rank_text(tensor_ranks(block, {dp, pp, 0})));
      }
    }
    if (p.dp > kShownReplicas) {
      text += fmt::format("| | and {} more replicas | | |\n", p.dp - kShownReplicas);
    }
  }
  return text;
}

std::string copy_table(const Job& job) {
  std::string text =
      "| model | head | read by | version of iteration k | ranks |\n"
      "|---|---|---|---|---|\n";
  for (const WeightCopy& copy : job.copies) {
    const std::string version = copy.is_frozen  ? "0"
                                : copy.tau == 0 ? "k"
                                                : fmt::format("k - {} (0 before)", copy.tau);
    text += fmt::format("| {}{} | {} | {} | {} | {} |\n",
                        to_string(copy.model),
                        copy.is_trained ? ", trained here" : "",
                        to_string(copy.head),
                        names_of(job, copy.vertices),
                        version,
                        rank_text(job.blocks[static_cast<std::size_t>(copy.block)].ranks));
  }
  return text;
}

std::string transfer_text(const Job& job) {
  std::size_t count = 0;
  double data_bytes = 0.0;
  for (const RankSpec& rank : job.ranks) {
    for (const Instruction& instruction : rank.program) {
      if (instruction.kind == InstructionKind::kSend) {
        ++count;
        data_bytes += static_cast<double>(instruction.capacity_bytes);
      }
    }
  }
  std::string text = fmt::format(
      "- Data: {} messages, at most {} in an iteration.\n", count, format_bytes(data_bytes));
  for (const WeightTransfer& transfer : job.transfers) {
    double bytes = 0.0;
    std::size_t messages = 0;
    for (const WeightMessage& message : transfer.messages) {
      if (message.from != message.to) {
        bytes += static_cast<double>(message.bytes);
        ++messages;
      }
    }
    text += fmt::format("- Weights {} to {}: {} messages between ranks, {} in an iteration ({}).\n",
                        job.graph.vertices[index(transfer.producer)].name,
                        job.graph.vertices[index(transfer.consumer)].name,
                        messages,
                        format_bytes(bytes),
                        prediction_text(job, transfer, bytes));
  }
  if (job.transfers.empty()) {
    text += "- Weights stay where they are trained: nothing moves.\n";
  }
  return text;
}

std::string rank_table(const Job& job) {
  std::vector<std::vector<VertexId>> vertices(job.ranks.size());
  for (std::size_t i = 0; i < job.graph.vertices.size(); ++i) {
    const VertexId vertex{static_cast<std::int32_t>(i)};
    for (const int rank : block_of(job, vertex).ranks) {
      vertices[static_cast<std::size_t>(rank)].push_back(vertex);
    }
  }
  const std::vector<RankMemory> memory = rank_memory(job);
  std::string text = "| rank | node | slot | runs | at most | of it |\n|---|---|---|---|---|---|\n";
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n",
                        r,
                        job.ranks[r].node,
                        job.ranks[r].slot,
                        names_of(job, vertices[r]),
                        format_bytes(static_cast<double>(memory[r].total())),
                        memory_text(memory[r], job.graph));
  }
  return text;
}

}  // namespace rpeg
