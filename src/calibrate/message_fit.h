#pragma once

#include <span>
#include <utility>
#include <vector>

#include "rpeg/calibrate/kernel_measurements.h"

namespace rpeg {

/// seconds = alpha + steps · alpha_step + sent · beta, where an all-reduce of n bytes over p ranks
/// has 2(p − 1) steps and sends 2(p − 1)/p · n bytes a rank, and a message has no steps and sends
/// n.
struct MessageFit {
  double alpha_s = 0.0;
  double alpha_step_s = 0.0;  ///< 0 below three sizes of groups
  double beta_s_per_byte = 0.0;
  /// Where the line misses by more than 15 % on average: (bytes sent, s) to interpolate between, in
  /// place of all three.
  std::vector<std::pair<double, double>> table;
};

enum class MessageKind { kAllReduce, kSendRecv };

double bytes_sent(MessageKind kind, const MessagePoint& point);
double predicted_message_s(MessageKind kind, const MessageFit& fit, const MessagePoint& point);

/// By the least mean of |fit − measured| / measured. At least two points with different sizes.
MessageFit fit_messages(MessageKind kind, std::span<const MessagePoint> points);

}  // namespace rpeg
