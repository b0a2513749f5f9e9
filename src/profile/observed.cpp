#include "rpeg/profile/observed.h"

#include <fmt/format.h>

#include <algorithm>

#include "rpeg/base/file.h"

namespace rpeg {
namespace {

/// Far beyond these a factor says that the plan was made for another machine.
constexpr Bounds kFactors{1e-4, 1e4};
constexpr Bounds kCounts{1, 1e12};
constexpr Bounds kSeconds{0, 1e9};

constexpr std::array<Tier, kTiers> kAllTiers = {Tier::kNode, Tier::kRack, Tier::kCluster};
constexpr std::array<WorkClass, kWorkClasses> kAllClasses = {
    WorkClass::kGenerate, WorkClass::kInfer, WorkClass::kTrain, WorkClass::kTransfer};

ObservedFactor read_factor(MapReader& tiers, Tier tier) {
  MapReader entry = tiers.map(to_string(tier), true);
  ObservedFactor result;
  result.factor = entry.number("factor", kFactors);
  result.spread = entry.number("spread", {0, kFactors.high}, 0.0);
  result.samples = entry.integer("samples", kCounts, 1);
  entry.finish();
  return result;
}

void read_lengths(MapReader& reader, ObservedRun* run) {
  reader.sequence("gen_quantiles", false, [&](const YamlValue& item, const std::string& path) {
    if (item.kind != YamlValue::Kind::kSequence || item.items.size() != 2) {
      reader.faults().add(item, path, "expected [share, tokens]");
      return;
    }
    run->gen_quantiles.emplace_back(
        yaml_number(item.items[0], path, reader.faults(), {0, 1}),
        yaml_number(item.items[1], path, reader.faults(), {0, kSeconds.high}));
  });
}

}  // namespace

const char* to_string(WorkClass work) {
  switch (work) {
    case WorkClass::kGenerate:
      return "generate";
    case WorkClass::kInfer:
      return "infer";
    case WorkClass::kTrain:
      return "train";
    case WorkClass::kTransfer:
      return "transfer";
  }
  return "";
}

bool ObservedFactors::any() const {
  return std::ranges::any_of(at, [](const auto& tiers) {
    return std::ranges::any_of(tiers, [](const ObservedFactor& f) { return f.samples > 0; });
  });
}

double observed_factor(const ObservedFactors& factors, WorkClass work, Tier tier) {
  const auto& tiers = factors.at[static_cast<std::size_t>(work)];
  const auto own = static_cast<int>(tier);
  for (int distance = 0; distance < static_cast<int>(kTiers); ++distance) {
    for (const int at : {own - distance, own + distance}) {
      if (at < 0 || at >= static_cast<int>(kTiers)) continue;
      const ObservedFactor& near = tiers[static_cast<std::size_t>(at)];
      if (near.samples > 0) return near.factor;
    }
  }
  return 1.0;
}

double least_observed_factor(const ObservedFactors& factors, WorkClass work) {
  double least = observed_factor(factors, work, Tier::kNode);
  for (const Tier tier : kAllTiers) {
    least = std::min(least, observed_factor(factors, work, tier));
  }
  return least;
}

ObservedFactors compound_factors(const ObservedFactors& before, const ObservedFactors& run) {
  ObservedFactors result = before;
  for (const WorkClass work : kAllClasses) {
    for (const Tier tier : kAllTiers) {
      const ObservedFactor& seen = run.of(work, tier);
      if (seen.samples == 0) continue;
      const double contained = observed_factor(before, work, tier);
      result.of(work, tier) = {seen.factor * contained, seen.spread * contained, seen.samples};
    }
  }
  return result;
}

std::string describe_factors(const ObservedFactors& factors) {
  constexpr std::array<const char*, kTiers> kPlaces = {
      "inside a node", "between nodes", "between racks"};
  std::string text;
  for (const WorkClass work : kAllClasses) {
    for (const Tier tier : kAllTiers) {
      const ObservedFactor& seen = factors.of(work, tier);
      if (seen.samples > 0) {
        text += fmt::format("{}, {}: x {:.4g} (spread {:.2g}, {} samples)\n",
                            to_string(work),
                            kPlaces[static_cast<std::size_t>(tier)],
                            seen.factor,
                            seen.spread,
                            seen.samples);
      }
    }
  }
  return text;
}

ObservedFactors read_observed_factors(MapReader& reader) {
  ObservedFactors factors;
  if (!reader.has("observed")) {
    reader.ignore("observed");
    return factors;
  }
  MapReader classes = reader.map("observed", false);
  for (const WorkClass work : kAllClasses) {
    if (!classes.has(to_string(work))) {
      classes.ignore(to_string(work));
      continue;
    }
    MapReader tiers = classes.map(to_string(work), false);
    for (const Tier tier : kAllTiers) {
      if (tiers.has(to_string(tier))) {
        factors.of(work, tier) = read_factor(tiers, tier);
      } else {
        tiers.ignore(to_string(tier));
      }
    }
    tiers.finish();
  }
  classes.finish();
  return factors;
}

void write_observed_factors(YamlWriter& writer, const ObservedFactors& factors) {
  if (!factors.any()) {
    return;
  }
  writer.begin_map("observed");
  for (const WorkClass work : kAllClasses) {
    std::vector<std::string> tiers;
    for (const Tier tier : kAllTiers) {
      const ObservedFactor& seen = factors.of(work, tier);
      if (seen.samples > 0) {
        tiers.push_back(fmt::format("{}: {{factor: {}, spread: {}, samples: {}}}",
                                    to_string(tier),
                                    yaml_scalar(seen.factor),
                                    yaml_scalar(seen.spread),
                                    yaml_scalar(seen.samples)));
      }
    }
    if (!tiers.empty()) {
      writer.raw(to_string(work),
                 fmt::format("{{{}}}", fmt::join(tiers, ", ")),
                 "measured / predicted seconds, by tier of the block");
    }
  }
  writer.end_map();
}

ObservedRun parse_observed(const std::string& text, const std::string& file) {
  ObservedRun run;
  Faults faults(file);
  const YamlValue root = parse_yaml(text, file);
  MapReader reader(root, "", faults);
  faults.throw_if_any();
  reader.choice("schema", {"rpeg-observed/1"});
  reader.choice("units", {"si"});
  for (const char* about_the_run : {"plan_digest", "iterations", "tasks", "provenance"}) {
    reader.ignore(about_the_run);
  }
  MapReader iteration = reader.map("iteration_time", true);
  run.predicted_iteration_s = iteration.number("predicted", kSeconds);
  run.measured_iteration_s = iteration.number("measured", kSeconds);
  run.iteration_spread_s = iteration.number("spread", kSeconds, 0.0);
  iteration.finish();
  run.factors = read_observed_factors(reader);
  if (!run.factors.any()) {
    reader.fault("observed", "no factor was observed; run a plan that carries predictions");
  }
  read_lengths(reader, &run);
  run.verifier_s = reader.number("verifier_seconds", kSeconds, 0.0);
  reader.finish();
  faults.throw_if_any();
  return run;
}

ObservedRun load_observed(const std::string& path) { return parse_observed(read_file(path), path); }

}  // namespace rpeg
