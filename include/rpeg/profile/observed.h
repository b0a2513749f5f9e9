#pragma once

/// What runs measured of their predictions: observed.yaml (docs/yaml/observed.md), and the block of
/// the same name in hw.yaml.

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rpeg/profile/tier.h"
#include "rpeg/yaml/reader.h"
#include "rpeg/yaml/writer.h"

namespace rpeg {

/// Kinds of tasks whose predictions are off by one factor each.
enum class WorkClass { kGenerate, kInfer, kTrain, kTransfer };
inline constexpr std::size_t kWorkClasses = 4;
const char* to_string(WorkClass work);  ///< generate, infer, train, transfer

/// How much longer than predicted the tasks of one class took on blocks that span one tier.
struct ObservedFactor {
  double factor = 1.0;       ///< measured / predicted seconds
  double spread = 0.0;       ///< standard deviation of the factor over tasks and iterations
  std::int64_t samples = 0;  ///< tasks times iterations; 0: not observed
  bool operator==(const ObservedFactor&) const = default;
};

/// By class and tier.
struct ObservedFactors {
  std::array<std::array<ObservedFactor, kTiers>, kWorkClasses> at{};

  ObservedFactor& of(WorkClass work, Tier tier) {
    return at[static_cast<std::size_t>(work)][static_cast<std::size_t>(tier)];
  }
  const ObservedFactor& of(WorkClass work, Tier tier) const {
    return at[static_cast<std::size_t>(work)][static_cast<std::size_t>(tier)];
  }
  bool any() const;  ///< whether something was observed
  bool operator==(const ObservedFactors&) const = default;
};

/// The factor that predictions of a class are multiplied by on a tier: that tier's, where it was
/// not observed the nearest observed tier's (of two the faster one's), of a class that was not
/// observed 1.
double observed_factor(const ObservedFactors& factors, WorkClass work, Tier tier);
/// The least of the class over all tiers: for lower bounds.
double least_observed_factor(const ObservedFactors& factors, WorkClass work);

/// Factors of a run that was predicted with `before`: every observed factor times the one that its
/// prediction contained. What only `before` has stays.
ObservedFactors compound_factors(const ObservedFactors& before, const ObservedFactors& run);

/// A line per observed class and tier, for people: "generate, inside a node: x 1.31 (spread 0.04,
/// 12 samples)".
std::string describe_factors(const ObservedFactors& factors);

/// What one run says, as observed.yaml holds it.
struct ObservedRun {
  double predicted_iteration_s = 0.0;
  double measured_iteration_s = 0.0;  ///< median
  double iteration_spread_s = 0.0;    ///< standard deviation over iterations
  ObservedFactors factors;
  /// Measured response lengths as (share of the responses, tokens); empty: none were recorded.
  std::vector<std::pair<double, double>> gen_quantiles;
  double verifier_s = 0.0;  ///< mean per response; 0: none
};

/// Reads observed.yaml. Throws kUsage listing every fault.
ObservedRun load_observed(const std::string& path);
ObservedRun parse_observed(const std::string& text, const std::string& file);

/// The map `observed:` of both files: class, tier (g, n, r), and {factor, spread, samples}.
ObservedFactors read_observed_factors(MapReader& reader);
void write_observed_factors(YamlWriter& writer, const ObservedFactors& factors);

}  // namespace rpeg
