// Where timings of a GPU are kept, what becomes of --cpu-experts, and what is said of codes that
// stay.
#include "load/device_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <string>

#include "load/codes_text.h"
#include "minisgl/engine/model_engine.h"
#include "minisgl/weights/model_config.h"

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

TEST(CpuExpertsTest, AreANumberAllOrAuto) {
  EXPECT_EQ(ParseCpuExperts("0"), 0);
  EXPECT_EQ(ParseCpuExperts("20"), 20);
  EXPECT_EQ(ParseCpuExperts("all"), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(ParseCpuExperts("auto"), kAutoHostLayers);
  for (const char* text : {"", "-1", "x", "1.5", "2147483648"}) {
    EXPECT_EQ(ParseCpuExperts(text), std::nullopt) << text;
  }
}

ModelConfig ConfigOf(const char* name) {
  const auto config =
      LoadModelConfig(std::string(MINISGL_SOURCE_DIR) + "/tests/golden/models/" + name);
  EXPECT_TRUE(config.ok()) << config.status().message();
  return config.ok() ? *config : ModelConfig();
}

// The layers that remain, or the error.
std::string Resolved(const ModelConfig& config, const char* device, bool has_cuda, int32_t wanted) {
  EngineOptions options;
  options.device = *ParseDevice(device);
  options.cpu_experts = wanted;
  const Status status = ResolveCpuExperts(config, has_cuda, &options);
  if (status.ok()) return std::to_string(options.cpu_experts);
  EXPECT_EQ(status.code(), StatusCode::kUsage);
  return status.message();
}

TEST(CpuExpertsTest, NeedAGpuAndAModelWithExperts) {
  const ModelConfig mixture = ConfigOf("mixtral"), dense = ConfigOf("mistral");
  EXPECT_EQ(Resolved(mixture, "cuda", true, 1), "1");
  EXPECT_EQ(Resolved(mixture, "auto", true, kAutoHostLayers), "-1");
  EXPECT_EQ(Resolved(mixture, "cuda", true, 1000), "1000") << "the plan counts it as all";
  EXPECT_EQ(Resolved(mixture, "auto", false, 1), "0") << "all of the model is on the CPU";
  EXPECT_EQ(Resolved(mixture, "cpu", false, 1),
            "--cpu-experts and --device cpu exclude each other: the CPU has all experts");
  EXPECT_EQ(Resolved(mixture, "cpu", false, 0), "0");
  EXPECT_EQ(Resolved(dense, "cuda", true, 1),
            "--cpu-experts: MistralForCausalLM has no experts; leave it out");
  EXPECT_EQ(Resolved(dense, "auto", false, kAutoHostLayers), "0");
}

TEST(CpuExpertsTest, APlanHasALineForThem) {
  EngineSetup setup;
  setup.options.threads = 3;
  EXPECT_EQ(CpuExpertsText(setup), "");
  EXPECT_TRUE(ModelLines(setup).empty());
  setup.plan.num_host_layers = 20;
  setup.plan.host_weight_bytes = uint64_t{40} << 30;
  setup.plan.host_workspace_bytes = uint64_t{1} << 30;
  setup.plan.host_format = DType::kBF16;
  ASSERT_EQ(ModelLines(setup).size(), 1u);
  EXPECT_EQ(ModelLines(setup)[0].role, "experts");
  EXPECT_EQ(
      ModelLines(setup)[0].text,
      "of 20 layers on the CPU: 40.0 GiB of weights as bf16, 1.0 GiB of workspace, 3 threads");
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
