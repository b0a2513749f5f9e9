#include <algorithm>
#include <cstring>

#include "rpeg/base/error.h"
#include "rpeg/kernels/adamw.h"
#include "rpeg/model/stage.h"

namespace rpeg {
namespace {

template <typename T>
std::span<T> of_tensor(std::span<T> flat, const ParameterTensor& tensor) {
  return flat.subspan(static_cast<std::size_t>(tensor.offset),
                      static_cast<std::size_t>(tensor.count));
}

std::vector<const ParameterTensor*> tensors_with(const ParameterLayout& layout, GradientSum sum) {
  std::vector<const ParameterTensor*> chosen;
  for (const ParameterTensor& tensor : layout.tensors) {
    if (tensor.part.gradient_sum == sum) {
      chosen.push_back(&tensor);
    }
  }
  return chosen;
}

/// Sums the chosen tensors over a group in one message.
template <typename T>
void sum_over(Comm* group,
              const std::vector<const ParameterTensor*>& chosen,
              std::span<T> gradient) {
  if (chosen.empty()) {
    return;
  }
  check(group != nullptr, "the model's shard needs a group that it was not given");
  std::vector<T> packed;
  for (const ParameterTensor* tensor : chosen) {
    const auto part = of_tensor(gradient, *tensor);
    packed.insert(packed.end(), part.begin(), part.end());
  }
  group->all_reduce_sum(std::span<T>(packed));
  auto from = packed.begin();
  for (const ParameterTensor* tensor : chosen) {
    const auto count = static_cast<std::ptrdiff_t>(tensor->count);
    std::copy_n(from, count, of_tensor(gradient, *tensor).begin());
    from += count;
  }
}

/// The first stage's embedding and the last one's head are one tensor: each adds the other's part.
/// A sum of two is the same bits in either order.
template <typename T>
void sum_tied_stages(Comm* pipeline, const ParameterTensor& table, std::span<T> gradient) {
  check(pipeline != nullptr && pipeline->size() > 1,
        "a stage with a tied embedding needs its pipeline");
  const int last = pipeline->size() - 1;
  check(pipeline->rank() == 0 || pipeline->rank() == last,
        "only the first and the last stage hold a tied embedding");
  const int other = last - pipeline->rank();
  const auto mine = of_tensor(gradient, table);
  const auto raw = std::as_bytes(mine);
  pipeline->send(other, kTiedGradientTag, Bytes(raw.begin(), raw.end()));
  const Bytes theirs = pipeline->receive(other, kTiedGradientTag);
  check(theirs.size() == mine.size_bytes(), "the stages of a tied embedding hold different rows");
  for (std::size_t i = 0; i < mine.size(); ++i) {
    T value{};
    std::memcpy(&value, theirs.data() + i * sizeof(T), sizeof(T));
    mine[i] += value;
  }
}

}  // namespace

template <typename T>
void sum_shared_gradients(const Model<T>& model, std::span<T> gradient) {
  const ParameterLayout& layout = *model.layout;
  check(static_cast<std::int64_t>(gradient.size()) == layout.total,
        "sum_shared_gradients needs the whole gradient of the shard");
  if (layout.shard.tp > 1) {
    sum_over(model.groups.tensor, tensors_with(layout, GradientSum::kTensorParallel), gradient);
    sum_over(
        model.groups.kv_replicas, tensors_with(layout, GradientSum::kKeyValueReplicas), gradient);
  }
  for (const ParameterTensor* table : tensors_with(layout, GradientSum::kTiedStages)) {
    sum_tied_stages(model.groups.pipeline, *table, gradient);
  }
}

double owned_sum_of_squares(const ParameterLayout& layout,
                            std::span<const float> gradient,
                            std::int64_t begin,
                            std::int64_t end) {
  check(static_cast<std::int64_t>(gradient.size()) == layout.total && begin >= 0 &&
            end <= layout.total,
        "owned_sum_of_squares needs a range of the shard's whole gradient");
  double sum = 0.0;
  for (const ParameterTensor& tensor : layout.tensors) {
    const std::int64_t first = std::max(begin, tensor.offset);
    const std::int64_t last = std::min(end, tensor.offset + tensor.count);
    if (tensor.part.is_owner && first < last) {
      sum += cpu::sum_of_squares(last - first, gradient.data() + first);
    }
  }
  return sum;
}

template void sum_shared_gradients(const Model<float>&, std::span<float>);
template void sum_shared_gradients(const Model<double>&, std::span<double>);

}  // namespace rpeg
