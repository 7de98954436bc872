// Where timings of a GPU are kept, and what is said of codes that stay.
#include "load/device_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "load/codes_text.h"

namespace minisgl::load {
namespace {

class TimingsFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* const name : {"HOME", "XDG_CACHE_HOME"}) {
      const char* const value = std::getenv(name);
      if (value != nullptr) before_[name] = value;
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const char* const name : {"HOME", "XDG_CACHE_HOME"}) unsetenv(name);
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }
  std::map<std::string, std::string> before_;
};

TEST_F(TimingsFolderTest, IsThatOfPackedWeightsOrTheUsersCache) {
  EngineOptions options;
  EXPECT_EQ(TimingsFolder(options), "");
  setenv("HOME", "", 1);
  EXPECT_EQ(TimingsFolder(options), "");
  setenv("HOME", "/users/one", 1);
  EXPECT_EQ(TimingsFolder(options), "/users/one/.cache/minisgl");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_EQ(TimingsFolder(options), "/users/one/.cache/minisgl");
  setenv("XDG_CACHE_HOME", "/cache", 1);
  EXPECT_EQ(TimingsFolder(options), "/cache/minisgl");
  options.pack_cache = "packed";
  EXPECT_EQ(TimingsFolder(options), "packed");
}

// Nothing is said of a plan in which weights fit expanded, or of one that was asked for codes.
TEST(CodesTextTest, OneLineSaysThatExpandedWeightsDoNotFit) {
  MemoryPlan plan;
  plan.weight_format = WeightFormat(DType::kBF16);
  EXPECT_EQ(CodesText(plan), "");
  plan.weight_format = WeightFormat(DType::kF16, Quantization::kStored);
  EXPECT_EQ(CodesText(plan), "");
  plan.codes_to_fit = true;
  EXPECT_EQ(CodesText(plan), "quantized weights are kept as codes: in f16 they do not fit the GPU");
}

}  // namespace
}  // namespace minisgl::load
