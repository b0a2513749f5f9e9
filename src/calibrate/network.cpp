#include "calibrate/network.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "calibrate/timing.h"
#include "rpeg/base/error.h"
#include "rpeg/base/units.h"

namespace rpeg {
namespace {

constexpr int kPingTag = 1;
constexpr int kPongTag = 2;

/// Ranks by a place that contains them, places in ascending order; within a place, by rank.
template <typename Place>
std::map<std::pair<int, int>, std::vector<int>> group_ranks(
    const std::vector<RankLocation>& locations, Place place) {
  std::map<std::pair<int, int>, std::vector<int>> groups;
  for (std::size_t rank = 0; rank < locations.size(); ++rank) {
    groups[place(locations[rank])].push_back(static_cast<int>(rank));
  }
  return groups;
}

std::vector<std::size_t> message_sizes(const CalibrationEffort& effort) {
  std::vector<std::size_t> sizes;
  for (std::int64_t bytes = 8; bytes <= effort.most_message_bytes; bytes *= 8) {
    sizes.push_back(static_cast<std::size_t>(bytes));
  }
  return sizes;
}

double ping_pong_seconds(Comm& pair, std::size_t bytes, double budget_s) {
  Bytes ball(bytes);
  return 0.5 * collective_seconds(pair, budget_s, [&] {
           if (pair.rank() == 0) {
             pair.send(1, kPingTag, std::move(ball));
             ball = pair.receive(1, kPongTag);
           } else {
             pair.send(0, kPongTag, pair.receive(0, kPingTag));
           }
         });
}

void measure_collectives(Comm& group, std::size_t bytes, double budget_s, LinkTimes& times) {
  const auto wire = static_cast<double>(bytes) * (group.size() - 1) / group.size();
  std::vector<float> values(bytes / sizeof(float));
  times.collective.push_back({2.0 * wire, collective_seconds(group, budget_s, [&] {
                                group.all_reduce_sum(std::span<float>(values));
                              })});
  const Bytes mine(std::max<std::size_t>(1, bytes / static_cast<std::size_t>(group.size())));
  times.collective.push_back(
      {wire, collective_seconds(group, budget_s, [&] { group.all_gather(mine); })});
}

void append_points(Bytes& out, const std::vector<TimedPoint>& points) {
  append_bytes(out, std::span<const TimedPoint>(points));
}

/// Hands the times that `owner` has to all ranks.
LinkTimes share_times(Comm& world, int owner, const LinkTimes& times) {
  Bytes mine;
  if (world.rank() == owner) {
    append_points(mine, times.point_to_point);
    append_points(mine, times.collective);
  }
  const auto all = world.all_gather(mine);
  const Bytes& bytes = all[static_cast<std::size_t>(owner)];
  std::vector<TimedPoint> points(bytes.size() / sizeof(TimedPoint));
  std::memcpy(points.data(), bytes.data(), bytes.size());
  // Per message size one ping-pong and two collectives.
  const auto cut = points.begin() + static_cast<std::ptrdiff_t>(points.size() / 3);
  return {.collective = {cut, points.end()}, .point_to_point = {points.begin(), cut}};
}

}  // namespace

std::vector<int> tier_ranks(const std::vector<RankLocation>& locations, Tier tier) {
  const auto node_of = [](const RankLocation& at) { return std::pair(at.rack, at.node); };
  const auto rack_of = [](const RankLocation& at) { return std::pair(at.rack, 0); };
  if (tier == Tier::kNode) {
    for (const auto& [node, ranks] : group_ranks(locations, node_of)) {
      if (ranks.size() >= 2) {
        return ranks;
      }
    }
    return {};
  }
  std::vector<int> leaders;
  if (tier == Tier::kCluster) {
    for (const auto& [rack, ranks] : group_ranks(locations, rack_of)) {
      leaders.push_back(ranks.front());
    }
    return leaders.size() >= 2 ? leaders : std::vector<int>{};
  }
  int rack = -1;
  for (const auto& [node, ranks] : group_ranks(locations, node_of)) {
    if (node.first != rack && leaders.size() >= 2) {
      break;
    }
    if (node.first != rack) {
      leaders.clear();
      rack = node.first;
    }
    leaders.push_back(ranks.front());
  }
  return leaders.size() >= 2 ? leaders : std::vector<int>{};
}

LinkTimes link_times(Comm& world,
                     const std::vector<int>& ranks,
                     const CalibrationEffort& effort,
                     const Announce& announce) {
  check(ranks.size() >= 2, "a link has two ends");
  LinkTimes times;
  const auto me = std::find(ranks.begin(), ranks.end(), world.rank());
  if (me != ranks.end()) {
    const auto group = world.subgroup(ranks);
    const auto pair = group->rank() < 2 ? group->subgroup({0, 1}) : nullptr;
    for (const std::size_t bytes : message_sizes(effort)) {
      announce(format_bytes(static_cast<double>(bytes)));
      if (pair != nullptr) {
        times.point_to_point.push_back(
            {static_cast<double>(bytes), ping_pong_seconds(*pair, bytes, effort.point_s / 2.0)});
      }
      group->barrier();
      measure_collectives(*group, bytes, effort.point_s / 2.0, times);
    }
    group->flush();
  }
  return share_times(world, ranks.front(), times);
}

}  // namespace rpeg
