#include "rpeg/base/rng.h"

#include <cmath>
#include <numbers>

#include "rpeg/base/error.h"

namespace rpeg {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53U;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57U;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;

}  // namespace

std::array<std::uint32_t, 4> philox(std::uint64_t key,
                                    const std::array<std::uint32_t, 4>& counter) {
  std::array<std::uint32_t, 4> c = counter;
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{kMultiplier0} * c[0];
    const std::uint64_t p1 = std::uint64_t{kMultiplier1} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0,
         static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1,
         static_cast<std::uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

double uniform_open(std::uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }

std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t stream) {
  std::uint64_t z = seed + 0x9E3779B97F4A7C15ULL * (stream + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t Rng::next() {
  const auto words = philox(key_,
                            {static_cast<std::uint32_t>(counter_),
                             static_cast<std::uint32_t>(counter_ >> 32),
                             0x52504547U,
                             0U});
  ++counter_;
  return (std::uint64_t{words[0]} << 32) | words[1];
}

double Rng::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

std::int64_t Rng::below(std::int64_t bound) {
  check(bound >= 1, "Rng::below needs a bound of at least 1");
  const auto range = static_cast<std::uint64_t>(bound);
  const std::uint64_t limit = range * (UINT64_MAX / range);
  std::uint64_t value = next();
  while (value >= limit) {
    value = next();
  }
  return static_cast<std::int64_t>(value % range);
}

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

}  // namespace rpeg
