// A program of cases that end the process in every way, for tests/run_cases_test.py.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "minisgl/base/check.h"

namespace minisgl {
namespace {

TEST(DyingTest, FirstPasses) { EXPECT_GT(getpid(), 0); }
TEST(DyingTest, Aborts) { std::abort(); }
TEST(DyingTest, SecondPasses) { EXPECT_GT(getpid(), 0); }
TEST(DyingTest, Fails) { FAIL() << "as it should"; }
TEST(DyingTest, Skips) { GTEST_SKIP() << "for a reason"; }
TEST(DyingTest, FailsACheck) { MINISGL_CHECK(false, "a check of {}", "the case"); }
TEST(DyingTest, CatchesAFailedCheck) {
  try {
    MINISGL_CHECK(false, "a caught check");
  } catch (const std::exception&) {
  }
}
TEST(DyingTest, FailsACheckOnAnotherThread) {
  std::thread([] { MINISGL_CHECK(false, "a check of a thread"); }).join();
}
TEST(DyingTest, Exits) { std::exit(0); }
TEST(DyingTest, ThrowsBesideAThread) {
  std::thread other([] { pause(); });
  throw 1;  // ends the process, because `other` was not joined
}
TEST(DyingTest, ChecksEndDeathTests) {
  EXPECT_DEATH(MINISGL_CHECK(false, "a check of a child"), "a check of a child");
}

class DyingSuiteTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { raise(SIGSEGV); }
};
TEST_F(DyingSuiteTest, NeverRuns) { FAIL() << "its suite has died"; }

class DyingValuesTest : public testing::TestWithParam<int> {};
TEST_P(DyingValuesTest, MayDie) { ASSERT_TRUE(GetParam() != 2 || raise(SIGKILL) != 0); }
INSTANTIATE_TEST_SUITE_P(Values, DyingValuesTest, testing::Values(1, 2, 3));

// Left out unless asked for.
TEST(HangingTest, WaitsForever) {
  if (std::getenv("MINISGL_HANG") == nullptr) GTEST_SKIP() << "not asked for";
  while (true) pause();
}
TEST(LastTest, ItsProcessFailsAtTheEnd) {
  if (std::getenv("MINISGL_FAIL_AT_END") == nullptr) GTEST_SKIP() << "not asked for";
  std::atexit([] { _exit(66); });
}

}  // namespace
}  // namespace minisgl
