#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "rpeg/plan/plan.h"
#include "search/evaluator.h"

namespace rpeg::search {

/// A plan in few words: equal for equal plans only.
struct PlanKey {
  std::array<std::uint64_t, 2 + 4 * kMaxVertices> words{};
  bool operator==(const PlanKey&) const = default;
};
PlanKey plan_key(const Plan& plan);
std::uint64_t hash(const PlanKey& key);

/// The scores of plans looked at lately: a table of fixed size in which a plan has one place and
/// drives out who is there. What it holds depends on the order of calls only.
class ScoreCache {
 public:
  /// `entries` is rounded up to a power of two.
  explicit ScoreCache(std::size_t entries);
  /// The place of a plan; `hit` says whether its score is there. The caller fills it if not.
  Score& at(const PlanKey& key, bool& hit);

 private:
  struct Entry {
    PlanKey key;
    Score score;
    bool used = false;
  };
  std::vector<Entry> entries_;
};

/// What remains of a plan when identical racks, nodes and GPUs lose their numbers: plans that
/// differ only by moving or permuting them have equal forms. Along each axis, the ranges cut it
/// into segments; a segment counts as the set of vertices on it and its length.
std::vector<std::int64_t> canonical_form(const Plan& plan);

}  // namespace rpeg::search
