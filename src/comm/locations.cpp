#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "rpeg/base/error.h"
#include "rpeg/comm/mpi.h"

namespace rpeg {
namespace {

/// One node in the order of its first rank.
struct Node {
  int leader = 0;
  std::string address;
  int ranks = 0;
};

// Everything above the node: "spine.rack0" of "spine.rack0.node3".
std::string rack_address(const std::string& address) {
  const auto dot = address.rfind('.');
  return dot == std::string::npos ? "" : address.substr(0, dot);
}

std::vector<int> racks_by_count(std::size_t nodes, int racks) {
  const auto count = static_cast<std::size_t>(racks);
  if (nodes % count != 0) {
    throw Error(
        ErrorKind::kUsage,
        fmt::format(
            "the ranks run on {} nodes, which do not divide into {} equal racks", nodes, racks));
  }
  std::vector<int> result(nodes);
  for (std::size_t i = 0; i < nodes; ++i) {
    result[i] = static_cast<int>(i / (nodes / count));
  }
  return result;
}

std::vector<int> racks_by_address(const std::vector<Node>& nodes) {
  std::vector<std::string> seen;
  std::vector<int> result;
  for (const Node& node : nodes) {
    const std::string rack = rack_address(node.address);
    const auto found = std::find(seen.begin(), seen.end(), rack);
    result.push_back(static_cast<int>(found - seen.begin()));
    if (found == seen.end()) {
      seen.push_back(rack);
    }
  }
  return result;
}

}  // namespace

std::vector<RankLocation> assign_locations(std::span<const RankHost> hosts, int racks) {
  check(racks >= 0, "the number of racks must not be negative");
  std::vector<Node> nodes;
  std::vector<RankLocation> result;
  std::vector<std::size_t> node_of_rank;
  for (const RankHost& host : hosts) {
    auto node = std::find_if(
        nodes.begin(), nodes.end(), [&](const Node& n) { return n.leader == host.node_leader; });
    if (node == nodes.end()) {
      node = nodes.insert(node, Node{host.node_leader, host.topology_address, 0});
    }
    node_of_rank.push_back(static_cast<std::size_t>(node - nodes.begin()));
    result.push_back(RankLocation{.slot = node->ranks++});
  }
  const std::vector<int> rack_of_node =
      racks > 0 ? racks_by_count(nodes.size(), racks) : racks_by_address(nodes);
  std::map<int, int> nodes_in_rack;
  std::vector<int> node_in_rack;
  for (const int rack : rack_of_node) {
    node_in_rack.push_back(nodes_in_rack[rack]++);
  }
  for (std::size_t i = 0; i < result.size(); ++i) {
    result[i].rack = rack_of_node[node_of_rank[i]];
    result[i].node = node_in_rack[node_of_rank[i]];
  }
  return result;
}

}  // namespace rpeg
