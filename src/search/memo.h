#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace rpeg::search {

/// Remembers values by keys of a few words: an open-addressing table with full comparison of keys.
/// The first word of a key is never 0. Emptied when it holds half of `most_slots`.
template <std::size_t Words, typename Value>
class Memo {
 public:
  using Key = std::array<std::uint64_t, Words>;

  /// `most_slots` is a power of two.
  explicit Memo(std::size_t most_slots) : most_slots_(most_slots), slots_(kFirstSlots) {}

  /// Makes room for `count` more values. True when values have moved or gone: references to them
  /// stay valid otherwise.
  bool make_room(std::size_t count) {
    if (2 * (size_ + count) <= slots_.size()) return false;
    if (slots_.size() >= most_slots_) {
      std::ranges::fill(slots_, Slot{});
      size_ = 0;
      return true;
    }
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.key[0] != 0) slots_[find(slot.key)] = slot;
    }
    return true;
  }

  /// Begins to load the slot of a key into the cache.
  void prefetch(const Key& key) const {
    __builtin_prefetch(&slots_[hash(key) & (slots_.size() - 1)]);
  }

  /// The value of a key, made by `make()` when it is not there.
  template <typename Make>
  const Value& get(const Key& key, Make make) {
    Slot& slot = slots_[find(key)];
    if (slot.key[0] == 0) {
      slot.value = make();
      slot.key = key;
      ++size_;
    }
    return slot.value;
  }

 private:
  struct alignas(64) Slot {
    Key key{};
    Value value{};
  };
  static constexpr std::size_t kFirstSlots = 512;

  static std::uint64_t hash(const Key& key) {
    constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15U;  // 2^64 / golden ratio
    std::uint64_t mixed = 0;
    for (const std::uint64_t word : key) mixed = (std::rotl(mixed, 29) ^ word) * kMultiplier;
    return mixed ^ mixed >> 32U;
  }

  static bool equals(const Key& a, const Key& b) {
    std::uint64_t difference = 0;
    for (std::size_t i = 0; i < Words; ++i) difference |= a[i] ^ b[i];
    return difference == 0;
  }

  /// The slot of a key, or the free one where it belongs.
  std::size_t find(const Key& key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash(key) & mask;
    while (slots_[at].key[0] != 0 && !equals(slots_[at].key, key)) at = (at + 1) & mask;
    return at;
  }

  std::size_t most_slots_;
  std::size_t size_ = 0;
  std::vector<Slot> slots_;
};

}  // namespace rpeg::search
