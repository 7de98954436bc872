// Errors as values: exit codes, prefixes, and the macros that pass them on.
#include "minisgl/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

namespace minisgl {
namespace {

TEST(StatusTest, EveryCodeHasItsExitStatus) {
  const std::vector<std::pair<StatusCode, int>> codes = {{StatusCode::kOk, 0},
                                                         {StatusCode::kUsage, 64},
                                                         {StatusCode::kBadInput, 65},
                                                         {StatusCode::kNoInput, 66},
                                                         {StatusCode::kUnavailable, 69},
                                                         {StatusCode::kInternal, 70},
                                                         {StatusCode::kCannotCreate, 73},
                                                         {StatusCode::kIoError, 74},
                                                         {StatusCode::kOutOfMemory, 75}};
  for (const auto& [code, exit_code] : codes) EXPECT_EQ(ExitCode(code), exit_code);
}

TEST(StatusTest, APrefixKeepsTheCodeAndLeavesOkAlone) {
  const Status status = BadInput("bad {}", 3).WithPrefix("file").WithPrefix("dir");
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_EQ(status.message(), "dir: file: bad 3");
  EXPECT_TRUE(Status().WithPrefix("file").ok());
  EXPECT_EQ(Status().WithPrefix("file").message(), "");
}

Result<std::unique_ptr<int>> Half(int value) {
  if (value % 2 != 0) return UsageError("{} is odd", value);
  return std::make_unique<int>(value / 2);
}

Status HalveTwice(int value, int* out) {
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<int> once, Half(value));
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<int> twice, Half(*once));
  MINISGL_RETURN_IF_ERROR(*twice < 0 ? UsageError("negative") : Status());
  *out = *twice;
  return Status();
}

TEST(StatusTest, TheMacrosReturnTheFirstError) {
  int out = 0;
  EXPECT_TRUE(HalveTwice(12, &out).ok());
  EXPECT_EQ(out, 3);
  EXPECT_EQ(HalveTwice(7, &out).message(), "7 is odd");
  EXPECT_EQ(HalveTwice(6, &out).message(), "3 is odd");
  EXPECT_EQ(HalveTwice(-4, &out).message(), "negative");
  EXPECT_EQ(out, 3);
}

TEST(StatusDeathTest, TheValueOfAnErrorIsABug) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(Half(3).value(), "3 is odd");
  EXPECT_DEATH(Result<int>{Status()}, "no value");
}

}  // namespace
}  // namespace minisgl
