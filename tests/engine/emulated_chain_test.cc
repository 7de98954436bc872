// Products that run as chains give the results of products that run one by one, bit for bit:
// prompts and answers, rows together, drafts and graphs, of models with other ends of a layer.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/emulated_cuda.h"
#include "golden_models.h"
#include "kernels/kernels.h"
#include "slow.h"

namespace minisgl {
namespace {

using cuda::emulator::EmulatedCudaApi;

struct ChainRun {
  std::vector<RowResult> results;
  int kernels;
};

ChainRun RunWithChains(const TestModel& model, DType dtype, bool chain, bool graphs) {
  const auto api = std::make_shared<EmulatedCudaApi>();
  const int32_t graph_rows = graphs ? 2 : 0;
  EngineDriver driver(model,
                      {.max_running_requests = 2,
                       .max_prefill_tokens = 64,
                       .max_seq_len = 64,
                       .graph_max_rows = graph_rows,
                       .graph_max_tokens = 4 * graph_rows},
                      EmulatedCuda({.activation_dtype = dtype}, api, {.chain = chain}));
  std::vector<TestRow*> rows;
  for (int i = 0; i < 2; ++i) {
    rows.push_back(driver.AddRow(RandomPrompt(11 + 8 * i, 7 + i, model.config.vocab_size)));
    driver.ExtendAll(rows.back());
  }
  const auto step = [&] {
    const Status status = driver.Step();
    EXPECT_TRUE(status.ok()) << status.message();
  };
  step();
  for (TestRow* row : rows) driver.ExtendAll(row);
  step();
  driver.ExtendAll(rows[0]);
  step();
  driver.ExtendWithDrafts(rows[1], std::vector<TokenId>{1, 2, 3});
  step();
  ChainRun run = {.results = rows[0]->results, .kernels = api->num_calls("LaunchKernel")};
  run.results.insert(run.results.end(), rows[1]->results.begin(), rows[1]->results.end());
  return run;
}

void ExpectSameAsAlone(const TestModel& model, DType dtype, bool graphs = false) {
  const ChainRun alone = RunWithChains(model, dtype, false, graphs);
  const ChainRun chained = RunWithChains(model, dtype, true, graphs);
  EXPECT_TRUE(SameResults(chained.results, alone.results));
  EXPECT_LT(chained.kernels, alone.kernels);
}

std::unique_ptr<TestModel> OpenChainModel(const char* name) {
  OpenedGolden golden = OpenGolden(name);
  MINISGL_CHECK(golden.checkpoint != nullptr, "{}", name);
  auto model = std::make_unique<TestModel>();
  model->config = std::move(golden.config);
  model->checkpoint = std::move(golden.checkpoint);
  return model;
}

class EmulatedChainTest : public testing::TestWithParam<const char*> {};

TEST_P(EmulatedChainTest, HasTheBitsOfProductsOneByOne) {
  MarkSlow("two engines on the emulator");
  const auto model = OpenChainModel(GetParam());
  for (const DType dtype : {DType::kBF16, DType::kF16}) ExpectSameAsAlone(*model, dtype);
}

INSTANTIATE_TEST_SUITE_P(Models, EmulatedChainTest,
                         testing::Values("wren", "qwen2", "f16_sharded", "phi3_short", "cohere2",
                                         "quant_gptq", "quant_ct_int4_gemma4"),
                         [](const auto& name) { return std::string(name.param); });

TEST(EmulatedChainsTest, GraphsHaveTheSameChains) {
  MarkSlow("two engines on the emulator");
  ExpectSameAsAlone(*MakeEmulatedModel(), DType::kBF16, /*graphs=*/true);
}

// Ranks sum between the products of a layer: none is held back.
TEST(EmulatedChainsTest, RanksHaveNoChains) {
  MarkSlow("two engines on the emulator");
  const auto model = MakeEmulatedModel();
  std::vector<RowResult> results[2];
  for (const bool chain : {false, true}) {
    EngineDriver driver(*model, {.num_ranks = 2, .max_running_requests = 2},
                        EmulatedRanks(2, {}, {.chain = chain}));
    results[chain] = driver.Generate(driver.AddRow(RandomPrompt(9, 3)), kAll, 3);
  }
  EXPECT_TRUE(SameResults(results[0], results[1]));
}

}  // namespace
}  // namespace minisgl
