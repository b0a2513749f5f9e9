#include <algorithm>
#include <bit>

#include "rpeg/base/error.h"
#include "rpeg/cost/assembly.h"

namespace rpeg {
namespace {

/// The distinct sets of blocks along one axis and how many indices each has.
struct AxisParts {
  std::size_t count = 0;
  std::array<std::uint32_t, 2 * kMaxPlanVertices> users;
  std::array<std::int32_t, 2 * kMaxPlanVertices> length;

  void add(std::uint32_t blocks, std::int32_t indices) {
    for (std::size_t i = 0; i < count; ++i) {
      if (users[i] != blocks) continue;
      length[i] += indices;
      return;
    }
    users[count] = blocks;
    length[count++] = indices;
  }
};

using Blocks = std::array<const Placement*, kMaxPlanVertices>;

/// Sweeps over the ends of the blocks' ranges, sorted.
AxisParts divide_long_axis(const Blocks& blocks, std::size_t count, Range Placement::* axis) {
  struct End {
    int position = 0;
    std::uint32_t block = 0;
  };
  std::array<End, 2 * kMaxPlanVertices> ends;
  std::size_t size = 0;
  const auto insert = [&](int position, std::uint32_t block) {
    std::size_t i = size++;
    for (; i > 0 && ends[i - 1].position > position; --i) ends[i] = ends[i - 1];
    ends[i] = {position, block};
  };
  for (std::size_t b = 0; b < count; ++b) {
    insert((blocks[b]->*axis).first, 1U << b);
    insert((blocks[b]->*axis).last + 1, 1U << b);
  }
  AxisParts parts;
  std::uint32_t users = 0;
  for (std::size_t i = 0; i + 1 < size; ++i) {
    users ^= ends[i].block;
    const int length = ends[i + 1].position - ends[i].position;
    if (users != 0 && length > 0) parts.add(users, length);
  }
  return parts;
}

/// The same without sorting, where all indices are below 64: an end at 64 needs no bit, the sweep
/// ends there.
AxisParts divide_axis(const Blocks& blocks, std::size_t count, Range Placement::* axis) {
  bool alike = true;
  int most = 0;
  for (std::size_t b = 0; b < count; ++b) {
    alike &= blocks[b]->*axis == blocks[0]->*axis;
    most = std::max(most, (blocks[b]->*axis).last);
  }
  if (most >= 64) return divide_long_axis(blocks, count, axis);
  AxisParts parts;
  if (alike) {
    parts.add((1U << count) - 1, (blocks[0]->*axis).count());
    return parts;
  }
  std::array<std::uint8_t, 65> changes{};  // per index: blocks that begin there or have ended
  std::uint64_t ends = 0;
  for (std::size_t b = 0; b < count; ++b) {
    const auto first = static_cast<std::size_t>((blocks[b]->*axis).first);
    const auto after = static_cast<std::size_t>((blocks[b]->*axis).last) + 1;
    changes[first] = static_cast<std::uint8_t>(changes[first] ^ (1U << b));
    changes[after] = static_cast<std::uint8_t>(changes[after] ^ (1U << b));
    ends |= std::uint64_t{1} << first;
    if (after < 64) ends |= std::uint64_t{1} << after;
  }
  std::uint32_t users = 0;
  while (ends != 0) {
    const int at = std::countr_zero(ends);
    ends &= ends - 1;
    users ^= changes[static_cast<std::size_t>(at)];
    if (users != 0) parts.add(users, std::countr_zero(ends) - at);
  }
  return parts;
}

/// Counts by set of blocks, and which sets occur. The empty set is counted but never visited.
struct Counts {
  explicit Counts(std::size_t blocks) { std::fill_n(count.begin(), std::size_t{1} << blocks, 0); }

  void add(std::uint32_t users, std::int32_t amount) {
    present[users / 64] |= std::uint64_t{1} << (users % 64);
    count[users] += amount;
  }

  /// Calls f(set, count) for the sets that occur, ascending.
  template <typename F>
  void visit(F f) const {
    for (std::size_t w = 0; w < present.size(); ++w) {
      const std::uint64_t sets = w == 0 ? present[0] & ~std::uint64_t{1} : present[w];
      for (std::uint64_t rest = sets; rest != 0; rest &= rest - 1) {
        const auto users =
            static_cast<std::uint32_t>(w * 64) + static_cast<std::uint32_t>(std::countr_zero(rest));
        f(users, count[users]);
      }
    }
  }

  std::array<std::int32_t, kMaxAtoms + 1> count;
  std::array<std::uint64_t, 4> present{};
};

}  // namespace

/// An atom is a set of blocks that occurs. Sets are combined axis by axis, so the work follows the
/// number of distinct sets, neither that of boxes nor that of GPUs.
void find_atoms(const Plan& plan, BlockAtoms* atoms) {
  check(!plan.vertices.empty() && plan.vertices.size() <= kMaxPlanVertices,
        "cost: a plan has 1 to 8 vertices");
  Blocks blocks{};
  std::size_t count = 0;
  for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
    const Placement& mine = plan.vertices[v].placement;
    std::size_t b = 0;
    while (b < count && !(*blocks[b] == mine)) ++b;
    if (b == count) blocks[count++] = &mine;
    atoms->block_of[v] = static_cast<std::uint8_t>(b);
  }
  atoms->blocks = count;
  const AxisParts racks = divide_axis(blocks, count, &Placement::racks);
  const AxisParts nodes = divide_axis(blocks, count, &Placement::nodes);
  const AxisParts gpus = divide_axis(blocks, count, &Placement::gpus);
  Counts in_nodes(count);
  for (std::size_t r = 0; r < racks.count; ++r) {
    for (std::size_t n = 0; n < nodes.count; ++n) {
      in_nodes.add(racks.users[r] & nodes.users[n], racks.length[r] * nodes.length[n]);
    }
  }
  Counts in_gpus(count);
  in_nodes.visit([&](std::uint32_t node_users, std::int32_t node_count) {
    for (std::size_t g = 0; g < gpus.count; ++g) {
      in_gpus.add(node_users & gpus.users[g], node_count * gpus.length[g]);
    }
  });
  atoms->count = 0;
  atoms->active_gpus = 0.0;
  atoms->meets.fill(0);
  in_gpus.visit([&](std::uint32_t users, std::int32_t gpu_count) {
    atoms->users[atoms->count] = static_cast<std::uint8_t>(users);
    atoms->gpus[atoms->count++] = static_cast<double>(gpu_count);
    atoms->active_gpus += static_cast<double>(gpu_count);
    for (std::uint32_t rest = users; rest != 0; rest &= rest - 1) {
      std::uint8_t& meets = atoms->meets[static_cast<std::size_t>(std::countr_zero(rest))];
      meets = static_cast<std::uint8_t>(meets | users);
    }
  });
}

}  // namespace rpeg
