#include "search/symmetry.h"

#include <algorithm>

#include "search/axes.h"

namespace rpeg::search {
namespace {

struct Component {
  Range range;
  std::size_t first_vertex = 0;
  auto operator<=>(const Component&) const = default;
};

/// Components of ranges, ascending by place.
std::vector<Component> components(const std::vector<Placement>& blocks, Range Placement::* axis) {
  std::vector<Component> parts;
  for (std::size_t v = 0; v < blocks.size(); ++v) parts.push_back({blocks[v].*axis, v});
  std::ranges::sort(parts);
  std::vector<Component> merged;
  for (const Component& part : parts) {
    if (merged.empty() || part.range.first > merged.back().range.last) {
      merged.push_back(part);
      continue;
    }
    merged.back().range.last = std::max(merged.back().range.last, part.range.last);
    merged.back().first_vertex = std::min(merged.back().first_vertex, part.first_vertex);
  }
  return merged;
}

}  // namespace

bool is_normal(const std::vector<Placement>& blocks) {
  return std::ranges::all_of(kAxes, [&](Range Placement::* axis) {
    int next = 0;
    std::size_t last_vertex = 0;
    for (const Component& part : components(blocks, axis)) {
      if (part.range.first != next || part.first_vertex < last_vertex) return false;
      next = part.range.last + 1;
      last_vertex = part.first_vertex;
    }
    return true;
  });
}

Plan normal_form(Plan plan) {
  std::vector<Placement> blocks;
  for (const VertexPlan& vertex : plan.vertices) blocks.push_back(vertex.placement);
  for (Range Placement::* axis : kAxes) {
    std::vector<Component> parts = components(blocks, axis);
    std::ranges::sort(parts, {}, &Component::first_vertex);
    int next = 0;
    for (const Component& part : parts) {
      const int shift = next - part.range.first;
      for (std::size_t v = 0; v < blocks.size(); ++v) {
        const Range old = blocks[v].*axis;
        if (old.first < part.range.first || old.first > part.range.last) continue;
        plan.vertices[v].placement.*axis = {old.first + shift, old.last + shift};
      }
      next += part.range.count();
    }
  }
  return plan;
}

}  // namespace rpeg::search
