#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace rpeg {

/// Hands out pieces of a vector, each on a 64-byte boundary: vector instructions then split every
/// buffer alike wherever the allocator put it, so that equal inputs give equal bits. The same code
/// places buffers twice: a default-constructed arena only measures and hands out null pointers.
template <typename T>
class Arena {
 public:
  Arena() = default;

  /// Serves from `storage`, which first grows to hold what `measured` was asked for; growing loses
  /// its content.
  Arena(std::vector<T>& storage, const Arena& measured) {
    const auto needed = static_cast<std::size_t>(measured.used_ + kGrain);
    if (storage.size() < needed) {
      storage.clear();
      storage.resize(needed);
    }
    void* base = storage.data();
    std::size_t space = storage.size() * sizeof(T);
    base_ = static_cast<T*>(std::align(kAlignmentBytes, sizeof(T), base, space));
  }

  T* take(std::int64_t count) {
    T* piece = base_ == nullptr ? nullptr : base_ + used_;
    used_ += (count + kGrain - 1) / kGrain * kGrain;
    return piece;
  }

 private:
  static constexpr std::size_t kAlignmentBytes = 64;
  static constexpr std::int64_t kGrain = kAlignmentBytes / sizeof(T);
  T* base_ = nullptr;
  std::int64_t used_ = 0;
};

}  // namespace rpeg
