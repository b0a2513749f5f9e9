#pragma once

#include <array>
#include <cstdint>

namespace rpeg {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11): returns four
/// random 32-bit words as a pure function of a 64-bit key and a 128-bit counter. The same arguments
/// give the same words on every rank, thread and machine.
std::array<std::uint32_t, 4> philox(std::uint64_t key, const std::array<std::uint32_t, 4>& counter);

/// Maps a random word to the open interval (0, 1): (word + 0.5) / 2^32.
double uniform_open(std::uint32_t word);

/// Mixes a value into a key (splitmix64 finaliser): derives independent streams, such as one per
/// chain or per tensor, from one seed.
std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t stream);

/// A sequential source of random numbers for the search: Philox in counter mode. Copyable; equal
/// seeds give equal sequences on every machine.
class Rng {
 public:
  explicit Rng(std::uint64_t seed) : key_(seed) {}

  std::uint64_t next();                    ///< 64 uniform bits
  double uniform();                        ///< uniform in [0, 1), 53 bits
  std::int64_t below(std::int64_t bound);  ///< uniform in [0, bound), bound >= 1, unbiased
  double normal();                         ///< standard normal (Box-Muller, one of the pair)

 private:
  std::uint64_t key_;
  std::uint64_t counter_ = 0;
};

}  // namespace rpeg
