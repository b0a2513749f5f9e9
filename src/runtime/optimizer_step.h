#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "rpeg/model/optimizer.h"
#include "runtime/groups.h"
#include "runtime/weights.h"

namespace rpeg {

struct UpdateOptions {
  AdamWOptions adamw;
  double grad_clip = 0.0;       ///< largest global norm of the gradient; 0: off
  std::int64_t zero_stage = 1;  ///< 0: every rank updates its whole shard; 1: ZeRO-1
  /// Sees this rank's shard of the gradient of the whole mini-batch, before clipping; may be empty.
  std::function<void(std::span<const float> gradient)> on_gradient;
};

/// Ends a mini-batch: sums the gradient over equal copies and data-parallel replicas, clips it by
/// the norm of the whole model's gradient, and updates the weights by AdamW. With ZeRO-1
/// (Rajbhandari et al., SC 2020) a rank reduces, clips and updates its chunk (`chunk_bounds`) of
/// the shard, the only one whose moments it has, and gathers the weights of the others; the weights
/// themselves are the fp32 master weights. Both ways give the same bits, and so do all holders of
/// a tensor. Returns the norm before clipping. Entered by all ranks of the block; throws kRuntime
/// on all of them, naming `where`, when the norm is not finite.
double update_weights(HeldModel& model,
                      const BlockGroups& groups,
                      const UpdateOptions& options,
                      const std::string& where);

}  // namespace rpeg
