#include "cost/plan_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "rpeg/base/units.h"
#include "rpeg/plan/cells.h"

namespace rpeg {
namespace {

/// Whether a consumer of these weights takes them while training goes on: what is sent must stay
/// as it is when the next update comes, so the trainer keeps a copy of it.
bool keeps_sent_weights(const PlanSkeleton& skeleton, const Plan& plan, std::size_t vertex) {
  return std::ranges::any_of(skeleton.weights, [&](const PlanSkeleton::WeightsEdge& edge) {
    return edge.from == vertex && edge.delta > 1 &&
           !same_layout(plan.vertices[edge.from], plan.vertices[edge.to]);
  });
}

/// The copies of weights: vertices of one model, layout and staleness share one. A consumer that
/// lags by τ updates holds the version it reads and the τ that follow. An exclusive transfer needs
/// no buffer of its own: it writes into the receiver's copy, which nobody reads meanwhile.
void find_copies(const PlanSkeleton& skeleton, const Plan& plan, Assembly* out) {
  out->static_bytes.fill(0.0);
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    const VertexMemory& use = *out->memory[v];
    std::size_t copy = v;
    for (std::uint32_t rest = skeleton.same_weights[v]; rest != 0; rest &= rest - 1) {
      const auto j = static_cast<std::size_t>(std::countr_zero(rest));
      if (out->atoms.block_of[j] != out->atoms.block_of[v] ||
          plan.vertices[j].parallelism != plan.vertices[v].parallelism) {
        continue;
      }
      copy = out->copy_of[j];
      break;
    }
    out->copy_of[v] = static_cast<std::uint8_t>(copy);
    const double bytes = use.weights * static_cast<double>(1 + skeleton.staleness[v]);
    // Sharers differ only where ZeRO-3 splits the trainer's weights: the full copy counts.
    out->copy_bytes[v] = copy == v ? bytes : 0.0;
    out->copy_bytes[copy] = std::max(out->copy_bytes[copy], bytes);
    out->static_bytes[out->atoms.block_of[v]] += use.optimizer;
  }
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    if (keeps_sent_weights(skeleton, plan, v)) out->copy_bytes[v] += out->memory[v]->weights;
    out->static_bytes[out->atoms.block_of[v]] += out->copy_bytes[v];
  }
}

double resident_bytes(const Assembly& assembly, std::uint32_t users) {
  double bytes = 0.0;
  for (std::uint32_t rest = users; rest != 0; rest &= rest - 1) {
    bytes += assembly.static_bytes[static_cast<std::size_t>(std::countr_zero(rest))];
  }
  return bytes;
}

/// As many sequences of a generating replica as fit beside all that stays on its fullest GPU, at
/// least one for each micro-batch.
std::int64_t count_slots(const PlanSkeleton& skeleton,
                         const Plan& plan,
                         const WorkloadConfig& config,
                         const HardwareProfile& profile,
                         const Assembly& assembly) {
  const std::size_t g = skeleton.generation;
  const VertexMemory& memory = *assembly.memory[g];
  const std::uint32_t block = 1U << assembly.atoms.block_of[g];
  double resident = 0.0;
  for (std::size_t a = 0; a < assembly.atoms.count; ++a) {
    if ((assembly.atoms.users[a] & block) == 0) continue;
    resident = std::max(resident, resident_bytes(assembly, assembly.atoms.users[a]));
  }
  const auto total = [&](std::int64_t slots) {
    return resident + (memory.working() + static_cast<double>(slots) * memory.kv_slot) +
           profile.reserve_bytes;
  };
  const std::int64_t most = replica_batch(plan.vertices[g], config);
  const std::int64_t least =
      std::min(most, std::max<std::int64_t>(1, plan.vertices[g].micro_batches));
  if (total(most) <= profile.memory_per_gpu) return most;
  if (total(least) >= profile.memory_per_gpu) return least;
  auto slots = static_cast<std::int64_t>((profile.memory_per_gpu - total(0)) / memory.kv_slot);
  slots = std::clamp(slots, least, most);
  while (slots > least && total(slots) > profile.memory_per_gpu) --slots;  // rounding
  return slots;
}

/// The vertex with the largest working memory among those on some blocks.
std::size_t busiest_vertex(const Assembly& assembly, std::uint32_t users, std::size_t vertices) {
  std::size_t busiest = vertices;
  for (std::size_t v = 0; v < vertices; ++v) {
    if ((users >> assembly.atoms.block_of[v] & 1U) == 0) continue;
    if (busiest == vertices || assembly.working_bytes[v] > assembly.working_bytes[busiest]) {
      busiest = v;
    }
  }
  return busiest;
}

MemoryUse atom_use(const PlanSkeleton& skeleton,
                   const Assembly& assembly,
                   std::size_t atom,
                   std::size_t busiest,
                   double reserve_bytes) {
  MemoryUse use;
  for (std::size_t v = 0; v < skeleton.graph.vertices.size(); ++v) {
    if ((assembly.atoms.users[atom] >> assembly.atoms.block_of[v] & 1U) == 0) continue;
    use.weights += assembly.copy_bytes[v];
    use.optimizer += assembly.memory[v]->optimizer;
  }
  use.activations = assembly.memory[busiest]->activations;
  use.logits = assembly.memory[busiest]->logits;
  if (busiest == skeleton.generation) {
    use.kv_cache = static_cast<double>(assembly.slots) * assembly.memory[busiest]->kv_slot;
  }
  use.reserve = reserve_bytes;
  use.total = assembly.atom_bytes[atom];
  return use;
}

/// The first box of GPUs that exactly the blocks of an atom cover.
Placement find_box(const Plan& plan, const Assembly& assembly, std::size_t atom) {
  std::vector<Placement> placements;
  for (const VertexPlan& vertex : plan.vertices) placements.push_back(vertex.placement);
  std::uint32_t vertices = 0;
  for (std::size_t v = 0; v < placements.size(); ++v) {
    if ((assembly.atoms.users[atom] >> assembly.atoms.block_of[v] & 1U) != 0) vertices |= 1U << v;
  }
  for (const PlacementCell& cell : cut_into_cells(placements)) {
    if (cell.users == vertices) return cell.box;
  }
  return plan.vertices.front().placement;
}

std::string describe_overflow(const PlanSkeleton& skeleton,
                              const Plan& plan,
                              const Assembly& assembly,
                              const Placement& box,
                              std::size_t atom,
                              std::size_t busiest,
                              const MemoryUse& use,
                              double limit_bytes) {
  std::string text = fmt::format(
      "GPU r{} n{} g{} needs {} ({:.0f} bytes) but has {} ({:.0f} bytes){}:",
      box.racks.first,
      box.nodes.first,
      box.gpus.first,
      format_bytes(use.total),
      use.total,
      format_bytes(limit_bytes),
      limit_bytes,
      box.gpu_count() > 1
          ? fmt::format(", like all {} GPUs of {}", box.gpu_count(), placement_text(box))
          : "");
  for (std::size_t v = 0; v < skeleton.graph.vertices.size(); ++v) {
    if ((assembly.atoms.users[atom] >> assembly.atoms.block_of[v] & 1U) == 0) continue;
    const std::size_t copy = assembly.copy_of[v];
    const VertexMemory& mine = *assembly.memory[v];
    const auto versions = static_cast<double>(1 + skeleton.staleness[v]);
    text += fmt::format(
        " {} weights {}", skeleton.graph.vertices[v].name, format_bytes(mine.weights * versions));
    if (versions > 1.0) text += fmt::format(" in {} versions", versions);
    if (keeps_sent_weights(skeleton, plan, v)) {
      text += fmt::format(" and {} being sent", format_bytes(mine.weights));
    }
    if (copy != v) text += " (shared with " + skeleton.graph.vertices[copy].name + ")";
    if (mine.optimizer > 0.0) {
      text += fmt::format(", gradients and optimizer {}", format_bytes(mine.optimizer));
    }
    text += ";";
  }
  text += fmt::format(" while {} runs: activations {}",
                      skeleton.graph.vertices[busiest].name,
                      format_bytes(use.activations));
  if (use.kv_cache > 0.0) text += ", KV cache " + format_bytes(use.kv_cache);
  if (use.logits > 0.0) text += ", logits " + format_bytes(use.logits);
  text += "; reserve " + format_bytes(use.reserve);
  return text;
}

}  // namespace

VertexMemory price_memory(const PlanSkeleton& skeleton,
                          std::size_t vertex,
                          const VertexPlan& plan,
                          const WorkloadConfig& config,
                          const HardwareProfile& profile) {
  const Vertex& what = skeleton.graph.vertices[vertex];
  // Training takes the whole batch, whatever the cuts.
  const bool whole = is_training(what.op);
  const std::size_t parts = whole ? 1 : skeleton.parts.size();
  VertexMemory result;
  for (std::size_t i = 0; i < parts; ++i) {
    const ResponsePart& part = whole ? skeleton.whole : skeleton.parts[i];
    // No slots: the KV cache is counted by the slots that all vertices together leave room for.
    const MemoryUse use = part_memory(what, plan, part, 0, config, profile);
    if (i > 0 && use.activations + use.logits <= result.working()) continue;
    result = {.weights = use.weights,
              .optimizer = use.optimizer,
              .activations = use.activations,
              .logits = use.logits};
  }
  if (what.op == Op::kGenerate) result.kv_slot = kv_slot_bytes(plan, config);
  return result;
}

void assemble_memory(const PlanSkeleton& skeleton,
                     const Plan& plan,
                     const WorkloadConfig& config,
                     const HardwareProfile& profile,
                     Assembly* out) {
  find_copies(skeleton, plan, out);
  out->slots = 0;
  if (skeleton.generation < kMaxPlanVertices) {
    out->slots = count_slots(skeleton, plan, config, profile, *out);
  }
  std::array<double, kMaxPlanVertices> block_working{};
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    const VertexMemory& memory = *out->memory[v];
    double bytes = memory.working();
    if (v == skeleton.generation) bytes += static_cast<double>(out->slots) * memory.kv_slot;
    out->working_bytes[v] = bytes;
    double& most = block_working[out->atoms.block_of[v]];
    most = std::max(most, bytes);
  }
  out->peak_bytes = 0.0;
  double overflow = 0.0;
  for (std::size_t a = 0; a < out->atoms.count; ++a) {
    double working = 0.0;
    for (std::uint32_t rest = out->atoms.users[a]; rest != 0; rest &= rest - 1) {
      working = std::max(working, block_working[static_cast<std::size_t>(std::countr_zero(rest))]);
    }
    const double bytes =
        resident_bytes(*out, out->atoms.users[a]) + working + profile.reserve_bytes;
    out->atom_bytes[a] = bytes;
    out->peak_bytes = std::max(out->peak_bytes, bytes);
    if (bytes > profile.memory_per_gpu) {
      overflow += (bytes / profile.memory_per_gpu - 1.0) * out->atoms.gpus[a];
    }
  }
  out->overflow = overflow / config.hardware.gpu_count();
}

void describe_memory(const PlanSkeleton& skeleton,
                     const Plan& plan,
                     const Assembly& assembly,
                     const HardwareProfile& profile,
                     PricedPlan* priced) {
  const std::size_t vertices = plan.vertices.size();
  priced->memory.assign(vertices, {});
  double worst = profile.memory_per_gpu;
  for (std::size_t a = 0; a < assembly.atoms.count; ++a) {
    const std::uint32_t users = assembly.atoms.users[a];
    const std::size_t busiest = busiest_vertex(assembly, users, vertices);
    const MemoryUse use = atom_use(skeleton, assembly, a, busiest, profile.reserve_bytes);
    for (std::size_t v = 0; v < vertices; ++v) {
      const bool is_user = (users >> assembly.atoms.block_of[v] & 1U) != 0;
      if (is_user && use.total > priced->memory[v].total) priced->memory[v] = use;
    }
    if (use.total <= worst) continue;
    worst = use.total;
    priced->overflow_text = describe_overflow(skeleton,
                                              plan,
                                              assembly,
                                              find_box(plan, assembly, a),
                                              a,
                                              busiest,
                                              use,
                                              profile.memory_per_gpu);
  }
}

}  // namespace rpeg
