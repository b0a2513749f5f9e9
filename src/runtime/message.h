#pragma once

#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "rpeg/base/error.h"
#include "rpeg/comm/comm.h"

namespace rpeg {

template <typename T>
void append_value(Bytes& out, const T& value) {
  append_bytes(out, std::span<const T>(&value, 1));
}

/// Reads packed values from a message, in the order they were appended. Reading past the end is a
/// broken invariant: sender and receiver follow the same compiled job.
class MessageReader {
 public:
  explicit MessageReader(std::span<const std::byte> message) : rest_(message) {}

  template <typename T>
  T take() {
    T value{};
    take_into(std::span<T>(&value, 1));
    return value;
  }

  template <typename T>
  std::vector<T> take_vector(std::size_t count) {
    check(count <= rest_.size() / sizeof(T), "message shorter than its content");
    std::vector<T> values(count);
    take_into(std::span<T>(values));
    return values;
  }

  template <typename T>
  void take_into(std::span<T> out) {
    static_assert(std::is_trivially_copyable_v<T>);
    check(out.size_bytes() <= rest_.size(), "message shorter than its content");
    if (!out.empty()) {
      std::memcpy(out.data(), rest_.data(), out.size_bytes());
    }
    rest_ = rest_.subspan(out.size_bytes());
  }

  std::size_t remaining() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace rpeg
