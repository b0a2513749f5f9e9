#include "rpeg/profile/observed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/profile/hardware_profile.h"
#include "support/random_factors.h"

namespace rpeg {
namespace {

using ::testing::HasSubstr;

constexpr const char* kObserved = R"(schema: rpeg-observed/1
units: si
iterations: 6
iteration_time: {predicted: 2.0, measured: 3.0, spread: 0.1}
observed:
  generate: {g: {factor: 1.5, spread: 0.1, samples: 10}, r: {factor: 4, samples: 5}}
gen_quantiles: [[0.5, 12], [1, 40]]
verifier_seconds: 0.002
tasks: [{id: g_pi}]
provenance: {tool: rpeg-run}
)";

std::string error_of(const std::string& text) {
  try {
    parse_observed(text, "observed.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Observed, ReadsWhatARunWrote) {
  const ObservedRun run = parse_observed(kObserved, "observed.yaml");
  EXPECT_EQ(run.predicted_iteration_s, 2.0);
  EXPECT_EQ(run.measured_iteration_s, 3.0);
  EXPECT_EQ(run.iteration_spread_s, 0.1);
  EXPECT_EQ(run.factors.of(WorkClass::kGenerate, Tier::kNode), (ObservedFactor{1.5, 0.1, 10}));
  EXPECT_EQ(run.factors.of(WorkClass::kGenerate, Tier::kRack).samples, 0);
  EXPECT_EQ(run.gen_quantiles, (std::vector<std::pair<double, double>>{{0.5, 12}, {1, 40}}));
  EXPECT_EQ(run.verifier_s, 0.002);
}

TEST(Observed, TakesTheNearestTierWhereOneWasNotObserved) {
  ObservedFactors factors = parse_observed(kObserved, "observed.yaml").factors;
  EXPECT_EQ(observed_factor(factors, WorkClass::kGenerate, Tier::kNode), 1.5);
  EXPECT_EQ(observed_factor(factors, WorkClass::kGenerate, Tier::kRack), 1.5);  // of two the faster
  EXPECT_EQ(observed_factor(factors, WorkClass::kGenerate, Tier::kCluster), 4.0);
  EXPECT_EQ(observed_factor(factors, WorkClass::kTrain, Tier::kNode), 1.0);
  factors.of(WorkClass::kTrain, Tier::kRack) = {.factor = 0.5, .spread = 0.0, .samples = 1};
  EXPECT_EQ(observed_factor(factors, WorkClass::kTrain, Tier::kNode), 0.5);
  EXPECT_EQ(least_observed_factor(factors, WorkClass::kGenerate), 1.5);
  EXPECT_EQ(least_observed_factor(factors, WorkClass::kInfer), 1.0);
}

TEST(Observed, CompoundsWithTheFactorsOfThePrediction) {
  ObservedFactors before;
  before.of(WorkClass::kGenerate, Tier::kRack) = {.factor = 2.0, .spread = 0.5, .samples = 3};
  before.of(WorkClass::kInfer, Tier::kNode) = {.factor = 3.0, .spread = 0.5, .samples = 3};
  const ObservedFactors both =
      compound_factors(before, parse_observed(kObserved, "observed.yaml").factors);
  // Tier g was predicted with the factor of tier n, the only one: 2 x 1.5.
  EXPECT_EQ(both.of(WorkClass::kGenerate, Tier::kNode), (ObservedFactor{3.0, 0.2, 10}));
  EXPECT_EQ(both.of(WorkClass::kGenerate, Tier::kRack), (ObservedFactor{2.0, 0.5, 3}));
  EXPECT_EQ(both.of(WorkClass::kInfer, Tier::kNode), (ObservedFactor{3.0, 0.5, 3}));
}

TEST(Observed, SurvivesAFileOfHardware) {
  Rng rng(3);
  for (int i = 0; i < 20; ++i) {
    HardwareProfile profile = load_hardware_profile("builtin:h100-sxm");
    profile.observed = test::random_factors(rng);
    const HardwareProfile read =
        parse_hardware_profile(hardware_profile_text(profile, {}), "hw.yaml");
    EXPECT_EQ(read, profile);
  }
}

TEST(Observed, NamesEveryFault) {
  std::string text = kObserved;
  text.replace(text.find("factor: 1.5"), 11, "factor: 0.0");
  text.replace(text.find("generate"), 8, "generat");
  EXPECT_THAT(error_of(text), HasSubstr("did you mean `generate`?"));
  EXPECT_THAT(error_of("schema: rpeg-observed/1\nunits: si\n"
                       "iteration_time: {predicted: 1, measured: 1}\n"),
              HasSubstr("no factor was observed"));
  text = kObserved;
  text.replace(text.find("factor: 1.5"), 11, "factor: 0.0");
  EXPECT_THAT(error_of(text), HasSubstr("`observed.generate.g.factor`"));
}

}  // namespace
}  // namespace rpeg
