// Keys and values in 8 bits on the device: the same bits under every schedule, and close to the
// CPU's.
#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"

namespace minisgl::cuda {
namespace {

class GpuKvCodesTest : public GpuTest {
 protected:
  static DriverOptions Coded(int32_t page_size) {
    return {.page_size = page_size, .max_running_requests = 4, .kv_kind = KvKind::kFp8};
  }
  static std::vector<RowResult> Answer(const TestModel& model, const DriverOptions& options,
                                       const std::vector<TokenId>& prompt, int32_t chunk) {
    EngineDriver driver(model, options, Make({.deterministic = true}));
    return driver.Generate(driver.AddRow(prompt), chunk, 5);
  }
  static void ExpectOneAnswer(const TestModel& model, const std::vector<TokenId>& prompt) {
    const auto wanted = Answer(model, Coded(16), prompt, 250);
    for (const int32_t page_size : {1, 4, 64}) {
      EXPECT_TRUE(SameResults(Answer(model, Coded(page_size), prompt, 100), wanted)) << page_size;
    }
    DriverOptions graphs = Coded(16);
    graphs.graph_max_rows = graphs.graph_max_tokens = 4;
    EXPECT_TRUE(SameResults(Answer(model, graphs, prompt, 250), wanted)) << "graphs";
    DriverOptions options = Coded(16);
    options.weight_dtype = DType::kBF16;
    EngineDriver cpu(model.config, *model.checkpoint, options, MakeNaiveOps(DType::kBF16));
    const auto on_cpu = cpu.Generate(cpu.AddRow(prompt), 250, 1);
    ASSERT_EQ(wanted[0].token, on_cpu[0].token);
    EXPECT_NEAR(wanted[0].logprob, on_cpu[0].logprob, 0.06);
  }
};

TEST_F(GpuKvCodesTest, TinyModel) { ExpectOneAnswer(*MakeGpuTinyModel(), RandomPrompt(150, 3)); }

TEST_F(GpuKvCodesTest, DemoModel) {
  const auto model = OpenWren();
  const auto prompt = RandomPrompt(20, 3, 2048);
  EXPECT_TRUE(
      SameResults(Answer(*model, Coded(4), prompt, 13), Answer(*model, Coded(16), prompt, 250)));
}

TEST_F(GpuKvCodesTest, SeveralSplits) {
  const auto model = MakeGpuTinyModel(768);
  const auto prompt = RandomPrompt(540, 4);
  EXPECT_TRUE(
      SameResults(Answer(*model, Coded(4), prompt, 100), Answer(*model, Coded(16), prompt, 250)));
}

}  // namespace
}  // namespace minisgl::cuda
