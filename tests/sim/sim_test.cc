// The simulation as a test: many seeds, the same seed twice, and the shrinker.
#include <gtest/gtest.h>

#include <cstdlib>

#include "sim/workload.h"
#include "slow.h"

namespace minisgl::sim {
namespace {

uint64_t NumSeeds() {
  const char* wanted = std::getenv("MINISGL_SIM_SEEDS");
  return wanted != nullptr ? std::strtoull(wanted, nullptr, 10) : 5000;
}

TEST(SimTest, EverySeedKeepsEveryInvariantAndAnswersRight) {
  MarkSlow("thousands of simulated runs");
  for (uint64_t seed = 1; seed <= NumSeeds(); ++seed) {
    for (const WorkloadKind kind : KindsOf(seed)) {
      const Workload workload = DrawWorkload(seed, kind);
      const Outcome outcome = Simulate(workload);
      if (outcome.violation.empty()) continue;
      const Workload small = Shrink(workload);
      FAIL() << workload.Describe() << "\n  " << outcome.violation << "\nshrunk to "
             << small.Describe() << "\n  " << Simulate(small).violation;
    }
  }
}

TEST(SimTest, TheSameSeedGivesTheSameTrace) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::string first, second;
    EXPECT_EQ(Simulate(DrawWorkload(seed), &first).trace,
              Simulate(DrawWorkload(seed), &second).trace);
    ASSERT_EQ(first, second) << "seed " << seed;
    ASSERT_FALSE(first.empty());
  }
}

// A workload that fails by construction: one request has a stop token that the oracle does not
// expect. The shrunk workload is small and still fails.
TEST(SimTest, ShrinkingKeepsTheFailureAndLittleElse) {
  for (uint64_t seed = 1; seed < 400; ++seed) {
    Workload workload = DrawWorkload(seed);
    workload.faults.clear();
    if (workload.arrivals.size() < 20) continue;
    workload.arrivals[11].request.stop_ids = {1};  // not what the oracle expects to end an answer
    if (Simulate(workload).violation.empty()) continue;
    const Workload small = Shrink(workload);
    EXPECT_FALSE(Simulate(small).violation.empty());
    EXPECT_LE(small.arrivals.size(), 2u) << small.Describe();
    return;
  }
  FAIL() << "no seed made the wrong stop token show";
}

}  // namespace
}  // namespace minisgl::sim
