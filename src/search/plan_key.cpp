#include "search/plan_key.h"

#include <algorithm>
#include <bit>
#include <map>

#include "rpeg/base/error.h"

namespace rpeg::search {
namespace {

/// Puts numbers into words of 64 bits.
class Packer {
 public:
  explicit Packer(PlanKey& key) : key_(key) {}

  void add(std::int64_t value, unsigned bits) {
    const auto bits_of = static_cast<std::uint64_t>(value);
    check(value >= 0 && bits_of >> bits == 0, "search: a number does not fit into the key");
    word_ = word_ << bits | bits_of;
  }
  void close() {
    key_.words[next_++] = word_;
    word_ = 0;
  }

 private:
  PlanKey& key_;
  std::uint64_t word_ = 0;
  std::size_t next_ = 0;
};

void add_axis(const Plan& plan, Range Placement::* axis, std::vector<std::int64_t>& form) {
  std::vector<int> cuts;
  for (const VertexPlan& vertex : plan.vertices) {
    const Range& range = vertex.placement.*axis;
    cuts.push_back(range.first);
    cuts.push_back(range.last + 1);
  }
  std::ranges::sort(cuts);
  std::map<std::int64_t, std::int64_t> length;  // by the set of vertices on a segment
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    std::int64_t users = 0;
    for (std::size_t v = 0; v < plan.vertices.size(); ++v) {
      const Range& range = plan.vertices[v].placement.*axis;
      if (range.first <= cuts[i] && cuts[i] <= range.last) users |= std::int64_t{1} << v;
    }
    if (users != 0) length[users] += cuts[i + 1] - cuts[i];
  }
  for (const auto& [users, count] : length) {
    if (count > 0) form.insert(form.end(), {users, count});
  }
  form.push_back(-1);
}

}  // namespace

PlanKey plan_key(const Plan& plan) {
  check(plan.vertices.size() <= kMaxVertices, "search: more vertices than a key holds");
  PlanKey key;
  Packer packer(key);
  constexpr unsigned kCount = 20;  // a cluster has at most a million of anything
  packer.add(plan.structure.tau_actor, kCount);
  packer.add(plan.structure.tau_critic, kCount);
  packer.add(plan.structure.ac_share ? 1 : 0, 1);
  packer.close();
  packer.add(plan.structure.cuts, 32);
  packer.close();
  for (const VertexPlan& vertex : plan.vertices) {
    const Placement& block = vertex.placement;
    // dp follows from the block.
    packer.add(vertex.parallelism.pp, kCount);
    packer.add(vertex.parallelism.tp, kCount);
    packer.add(block.racks.first, kCount);
    packer.close();
    packer.add(block.racks.last, kCount);
    packer.add(block.nodes.first, kCount);
    packer.add(block.nodes.last, kCount);
    packer.close();
    packer.add(block.gpus.first, kCount);
    packer.add(block.gpus.last, kCount);
    packer.close();
    packer.add(vertex.micro_batches, 62);
    packer.close();
  }
  return key;
}

std::uint64_t hash(const PlanKey& key) {
  std::uint64_t state = 0x9E3779B97F4A7C15U;
  for (const std::uint64_t word : key.words) {
    state = (std::rotl(state, 27) ^ word) * 0xD6E8FEB86659FD93U;
  }
  return state ^ state >> 32U;
}

ScoreCache::ScoreCache(std::size_t entries) : entries_(std::bit_ceil(entries)) {}

Score& ScoreCache::at(const PlanKey& key, bool& hit) {
  Entry& entry = entries_[hash(key) & (entries_.size() - 1)];
  hit = entry.used && entry.key == key;
  entry.used = true;
  entry.key = key;
  return entry.score;
}

std::vector<std::int64_t> canonical_form(const Plan& plan) {
  std::vector<std::int64_t> form{plan.structure.tau_actor,
                                 plan.structure.tau_critic,
                                 plan.structure.ac_share ? 1 : 0,
                                 plan.structure.cuts};
  for (const VertexPlan& vertex : plan.vertices) {
    form.insert(form.end(),
                {vertex.parallelism.dp,
                 vertex.parallelism.pp,
                 vertex.parallelism.tp,
                 vertex.micro_batches});
  }
  add_axis(plan, &Placement::racks, form);
  add_axis(plan, &Placement::nodes, form);
  add_axis(plan, &Placement::gpus, form);
  return form;
}

}  // namespace rpeg::search
