#include "runtime/optimizer_step.h"

#include <array>
#include <cmath>

#include "rpeg/model/stage.h"
#include "runtime/context.h"

namespace rpeg {
namespace {

/// L2 norm of the whole model's gradient from its chunks on all ranks; the same bits on each.
double global_norm(const HeldModel& model,
                   const BlockGroups& groups,
                   std::size_t begin,
                   std::size_t end) {
  std::array<double, 1> squares = {owned_sum_of_squares(model.layout,
                                                        model.training->gradient,
                                                        static_cast<std::int64_t>(begin),
                                                        static_cast<std::int64_t>(end))};
  groups.all->all_reduce_sum(std::span<double>(squares));
  return std::sqrt(squares[0]);
}

void show_gradient(const HeldModel& model,
                   const BlockGroups& groups,
                   const UpdateOptions& options) {
  if (options.on_gradient) {
    std::vector<float> whole = model.training->gradient;
    groups.data->all_reduce_sum(std::span<float>(whole));
    options.on_gradient(whole);
  }
}

}  // namespace

double update_weights(HeldModel& model,
                      const BlockGroups& groups,
                      const UpdateOptions& options,
                      const std::string& where) {
  TrainingState& training = *model.training;
  const std::span<float> gradient(training.gradient);
  const std::span<float> weights(model.weights);
  sum_shared_gradients(model.model(), gradient);
  show_gradient(model, groups, options);
  const auto [begin, end] = chunk_bounds(gradient.size(), groups.data->size(), groups.data->rank());
  const bool is_sharded = options.zero_stage > 0;
  if (is_sharded) {
    groups.data->reduce_scatter_sum(gradient);
  } else {
    groups.data->all_reduce_sum(gradient);
  }
  const double norm = global_norm(model, groups, begin, end);
  check_finite(norm, "gradient norm", where);
  const double scale =
      options.grad_clip > 0.0 && norm > options.grad_clip ? options.grad_clip / norm : 1.0;
  if (is_sharded) {
    adamw_update(options.adamw,
                 gradient.subspan(begin, end - begin),
                 scale,
                 training.optimizer,
                 weights.subspan(begin, end - begin));
    groups.data->all_gather_chunks(weights);
  } else {
    adamw_update(options.adamw, gradient, scale, training.optimizer, weights);
  }
  return norm;
}

}  // namespace rpeg
