#include <gtest/gtest.h>

#include "rpeg/base/error.h"
#include "rpeg/search/search.h"
#include "search/space.h"
#include "support/planning.h"

namespace rpeg {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_pin(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.message();
  }
  return "";
}

TEST(ParsePin, ReadsEveryDecision) {
  const Pin pin = parse_pin("g_pi=4,1,2/m3/r0 n[0-1] g[0-3]");
  EXPECT_EQ(pin.vertex, "g_pi");
  EXPECT_EQ(pin.parallelism, (Parallelism{4, 1, 2}));
  EXPECT_EQ(pin.micro_batches, 3);
  EXPECT_EQ(pin.placement, (Placement{{0, 0}, {0, 1}, {0, 3}}));
  EXPECT_FALSE(parse_pin("t_pi=m8").parallelism.has_value());
}

TEST(ParsePin, RefusesWhatIsNoPin) {
  for (const char* text : {"",
                           "g_pi",
                           "=m2",
                           "g_pi=",
                           "g_pi=4,1",
                           "g_pi=4,1,2,1",
                           "g_pi=0,1,1",
                           "g_pi=m0",
                           "g_pi=m",
                           "g_pi=mx",
                           "g_pi=-1,1,1",
                           "g_pi=m2/m4",
                           "g_pi=4,1,2/",
                           "g_pi=r0 n[0-1]",
                           "g_pi=99999999999,1,1",
                           "g_pi=1000000,1000000,1000000",
                           "g_pi= 4,1,2"}) {
    EXPECT_FALSE(message_of(text).empty()) << text;
  }
  EXPECT_NE(message_of("g_pi=4,1").find("dp,pp,tp"), std::string::npos);
}

template <typename Run>
void expect_error(ErrorKind kind, const std::string& part, const Run& run) {
  try {
    run();
    ADD_FAILURE() << "no error; expected " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.message();
    EXPECT_NE(error.message().find(part), std::string::npos) << error.message();
  }
}

void run_search(const WorkloadConfig& config, const std::vector<std::string>& pins) {
  SearchOptions options;
  options.evaluations = 200;
  for (const std::string& pin : pins) options.pins.push_back(parse_pin(pin));
  search_plan(config, test::small_hardware(), options);
}

TEST(Pins, FaultsAreToldClearly) {
  WorkloadConfig config = test::small_ppo(1, 1, 4);
  const auto expect = [&](ErrorKind kind, const std::string& part, const char* pin) {
    expect_error(kind, part, [&] { run_search(config, {pin}); });
  };
  expect(ErrorKind::kUsage, "no such vertex", "g_phi=m2");
  expect(ErrorKind::kUsage, "g_pi", "g_phi=m2");
  expect(ErrorKind::kUsage, "outside the cluster", "g_pi=r0 n[0-1] g[0-3]");
  expect(ErrorKind::kUsage, "has 4 GPUs", "g_pi=2,1,1/r0 n[0-0] g[0-3]");
  expect(ErrorKind::kUsage, "no such vertex", "t_piV=m2");  // sharing is not allowed
  expect(ErrorKind::kInfeasible, "keeps its pin", "g_pi=8,1,1");
  expect(ErrorKind::kInfeasible, "keeps its pin", "t_pi=m4096");
  expect(ErrorKind::kInfeasible, "keeps its pin", "t_pi=1,1,3/r0 n[0-0] g[0-2]");
  config.policy.allow_ac_share = true;
  expect_error(ErrorKind::kUsage, "no structure has both", [&] {
    run_search(config, {"t_piV=m2", "t_V=m2"});
  });
}

TEST(Pins, HoldInTheBestPlan) {
  const WorkloadConfig config = test::small_ppo(1, 2, 4);
  SearchOptions options;
  options.evaluations = 2000;
  options.top = 3;
  options.pins = {parse_pin("g_pi=1,1,2"), parse_pin("i_V=r0 n[1-1] g[0-3]"), parse_pin("t_V=m3")};
  const SearchResult result = search_plan(config, test::small_hardware(), options);
  const search::Space space = search::build_space(config, options.pins);
  for (const Evaluation& plan : result.top) EXPECT_TRUE(search::keeps_pins(space, plan.plan));
  EXPECT_LE(result.bound.period_s, result.best.steady.period_s);
}

}  // namespace
}  // namespace rpeg
