#include "calibrate/link_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>

#include "calibrate/comparison.h"
#include "calibrate/message_fit.h"
#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr std::size_t kNode = 0;
constexpr std::size_t kRack = 1;
constexpr std::size_t kCluster = 2;
constexpr double kWireShare = 0.8;  // of a port's datasheet rate that messages reach

MessageFit with_rounded_numbers(MessageFit fit) {
  fit.alpha_s = rounded(fit.alpha_s);
  fit.alpha_step_s = rounded(fit.alpha_step_s);
  fit.beta_s_per_byte = rounded(fit.beta_s_per_byte);
  for (auto& [bytes, seconds] : fit.table) {
    seconds = rounded(seconds);
  }
  return fit;
}

std::vector<MessagePoint> select(const std::vector<MessagePoint>& points, bool in_one_node) {
  std::vector<MessagePoint> result;
  std::copy_if(points.begin(), points.end(), std::back_inserter(result), [&](const auto& point) {
    // Between nodes: one GPU of each node. More of them share wires in ways that a line per rank
    // does not tell apart.
    return in_one_node ? point.is_in_one_node() : point.ranks_per_node == 1;
  });
  return result;
}

/// The keys of one tier and kind of message.
struct LinkKeys {
  MessageKind kind;
  std::size_t tier;

  std::string key(const char* number) const {
    static constexpr std::array<const char*, kTiers> kSuffix = {"g", "n", "r"};
    return fmt::format(
        "{}_{}_{}", number, kind == MessageKind::kAllReduce ? "coll" : "p2p", kSuffix[tier]);
  }
  AlphaBeta& link(HardwareProfile& profile) const {
    return kind == MessageKind::kAllReduce ? profile.collective[tier]
                                           : profile.point_to_point[tier];
  }
};

/// Fits a tier and reports it; returns whether there was something to fit.
bool fit_link(const LinkKeys& keys, const std::vector<MessagePoint>& points, ProfileFit* result) {
  if (points.size() < 2) {
    return false;
  }
  HardwareProfile& profile = result->profile;
  const MessageFit fit = with_rounded_numbers(fit_messages(keys.kind, points));
  keys.link(profile) = {fit.alpha_s, fit.beta_s_per_byte};
  if (keys.kind == MessageKind::kAllReduce) {
    profile.alpha_step_s[keys.tier] = fit.alpha_step_s;
    profile.collective_table[keys.tier] = fit.table;
  } else {
    profile.point_to_point_table[keys.tier] = fit.table;
  }
  const std::string what =
      fmt::format("{} {}",
                  keys.kind == MessageKind::kAllReduce ? "all-reduce" : "send and receive",
                  keys.tier == kNode ? "inside a node" : "between nodes");
  std::set<int> groups;
  Comparison all;
  for (const MessagePoint& point : points) {
    groups.insert(point.ranks);
    all.add(predicted_message_s(keys.kind, fit, point), point.bytes, point.seconds);
  }
  for (const int ranks : groups) {
    Comparison of_group;
    for (const MessagePoint& point : points) {
      if (point.ranks == ranks) {
        of_group.add(predicted_message_s(keys.kind, fit, point), point.bytes, point.seconds);
      }
    }
    result->rows.push_back({what, "", fmt::format("{} ranks", ranks), error_of(of_group)});
  }
  if (groups.size() > 1) {
    result->rows.push_back({what, "", "", error_of(all)});
  }
  profile.fit[keys.key("alpha")] = quality_of(all);
  return true;
}

void mark(const LinkKeys& keys, ProfileFit* result, bool alpha, bool beta) {
  for (const auto& [is_marked, number] : {std::pair{alpha, "alpha"}, std::pair{beta, "beta"}}) {
    if (is_marked) {
      result->profile.estimated.push_back(keys.key(number));
    }
  }
}

}  // namespace

void fit_links(const KernelMeasurements& data, const ProfileFitOptions& options, ProfileFit* fit) {
  const double node_link = options.node_link_bytes_per_s;
  bool is_message_between_nodes = false;
  for (const MessageKind kind : {MessageKind::kSendRecv, MessageKind::kAllReduce}) {
    const auto& points = kind == MessageKind::kAllReduce ? data.all_reduce : data.send_recv;
    const LinkKeys node{kind, kNode};
    const LinkKeys rack{kind, kRack};
    const LinkKeys cluster{kind, kCluster};
    HardwareProfile& profile = fit->profile;
    if (!fit_link(node, select(points, true), fit)) {
      throw Error(ErrorKind::kUsage, "the measurements have no messages inside a node");
    }
    const AlphaBeta inside = node.link(profile);
    bool is_beta_measured = false;
    bool is_alpha_measured = false;
    if (fit_link(rack, select(points, false), fit)) {
      is_alpha_measured = is_beta_measured = true;
      is_message_between_nodes |= kind == MessageKind::kSendRecv;
    } else {
      // A ring between nodes is bound by the port that a message goes through.
      rack.link(profile) = {2.0 * inside.alpha_s,
                            is_message_between_nodes ? profile.point_to_point[kRack].beta_s_per_byte
                                                     : 2.0 * inside.beta_s_per_byte};
    }
    if (node_link > 0.0) {
      rack.link(profile).beta_s_per_byte = rounded(1.0 / (kWireShare * node_link));
      is_beta_measured = false;
      profile.collective_table[kRack].clear();
      profile.point_to_point_table[kRack].clear();
    }
    mark(rack, fit, !is_alpha_measured, !is_beta_measured);
    cluster.link(profile) = {2.0 * rack.link(profile).alpha_s,
                             2.0 * rack.link(profile).beta_s_per_byte};
    mark(cluster, fit, true, true);
  }
  if (node_link > 0.0) {
    fit->profile.device["links between nodes"] =
        fmt::format("{:.0f} % of the datasheet's {:g} bytes/s", 100.0 * kWireShare, node_link);
  }
}

}  // namespace rpeg
