#include "minisgl/base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace minisgl {
namespace {

class EnvironmentTest : public testing::Test {
 protected:
  EnvironmentTest() : home_(EnvironmentVariable("HOME")) { unsetenv(kVariable); }
  ~EnvironmentTest() override {
    unsetenv(kVariable);
    setenv("HOME", home_.c_str(), 1);
  }
  static constexpr const char* kVariable = "MINISGL_TEST_FOLDER";
  const std::string home_;
};

TEST_F(EnvironmentTest, AVariableThatIsNotSetIsEmpty) {
  EXPECT_EQ(EnvironmentVariable(kVariable), "");
  setenv(kVariable, "a value", 1);
  EXPECT_EQ(EnvironmentVariable(kVariable), "a value");
}

TEST_F(EnvironmentTest, AUsersFolderIsAnAbsolutePathOrBelowHome) {
  setenv("HOME", "/users/one", 1);
  EXPECT_EQ(UserFolder(kVariable, ".cache"), "/users/one/.cache");
  setenv(kVariable, "relative", 1);
  EXPECT_EQ(UserFolder(kVariable, ".cache"), "/users/one/.cache");
  setenv(kVariable, "/cache", 1);
  EXPECT_EQ(UserFolder(kVariable, ".cache"), "/cache");
  setenv("HOME", "", 1);
  EXPECT_EQ(UserFolder(kVariable, ".cache"), "/cache");
  unsetenv(kVariable);
  EXPECT_EQ(UserFolder(kVariable, ".cache"), "");
}

}  // namespace
}  // namespace minisgl
