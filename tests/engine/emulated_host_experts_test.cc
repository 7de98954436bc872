// Experts on the host beside the CUDA engine on emulated kernels, whose streams run at once or as
// late as they may, in graphs and without, two steps in flight: the same bits. And beside adapters
// of attention, over the oracle's operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/adapted_model.h"
#include "engine/emulated_cuda.h"
#include "engine/forwarding_ops.h"
#include "engine/host_device_ops.h"
#include "engine/scheduled_run.h"
#include "gpu/gpu_models.h"
#include "minisgl/engine/device_engine.h"
#include "slow.h"

namespace minisgl {
namespace {

using cuda::emulator::EmulatedCudaApi;

std::vector<std::shared_ptr<Ops>> NaiveOps(int32_t num_ranks = 1) {
  std::vector<std::shared_ptr<Ops>> ops;
  for (int32_t rank = 0; rank < num_ranks; ++rank) ops.push_back(MakeNaiveOps());
  return ops;
}

// Two rows, each with a chunk or a token in every step, and two steps in flight.
std::vector<RowResult> RunTwoRows(EngineDriver* driver, int32_t vocab_size) {
  TestRow* const rows[] = {driver->AddRow(RandomPrompt(11, 1, vocab_size)),
                           driver->AddRow(RandomPrompt(4, 2, vocab_size))};
  const auto launch = [&] {
    for (TestRow* row : rows) driver->Extend(row, std::min(6, row->known_len - row->computed_len));
    driver->Launch();
  };
  launch();
  for (int step = 0; step < 4; ++step) {
    launch();
    EXPECT_TRUE(driver->Collect().ok());
  }
  EXPECT_TRUE(driver->Collect().ok());
  std::vector<RowResult> results = rows[0]->results;
  results.insert(results.end(), rows[1]->results.begin(), rows[1]->results.end());
  return results;
}

TEST(EmulatedHostExpertsTest, NoOrderOfStreamsChangesABit) {
  MarkSlow("a model on the emulator");
  const auto model = cuda::MakeGpuArchitecture("qwen2_moe");
  ASSERT_NE(model, nullptr);
  const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    std::vector<RowResult> wanted;
    for (const int32_t graphs : {0, 1}) {
      for (const auto& [lazy, lazy_compute] :
           {std::pair(false, false), {true, false}, {false, true}}) {
        auto api = std::make_shared<EmulatedCudaApi>(
            cuda::emulator::EmulatedCudaConfig{.lazy = lazy, .lazy_compute = lazy_compute});
        EngineDriver driver(*model,
                            {.page_size = 4,
                             .max_running_requests = 2,
                             .max_prefill_tokens = 16,
                             .graph_max_rows = graphs * 2,
                             .graph_max_tokens = graphs * 16,
                             .num_host_layers = model->config.num_layers,
                             .host_ops = NaiveOps()},
                            EmulatedCuda({.activation_dtype = dtype, .deterministic = true}, api));
        const auto results = RunTwoRows(&driver, vocab_size);
        if (wanted.empty()) wanted = results;
        EXPECT_TRUE(SameResults(results, wanted)) << graphs << " " << lazy << lazy_compute;
        EXPECT_EQ(api->num_calls("GraphLaunch") > 0, graphs > 0);
        EXPECT_GT(api->num_calls("LaunchHostFunction"), 0);
      }
    }
    EXPECT_EQ(wanted.size(), 9u);
  }
}

// Counts tokens of products, of which an expert has two.
class CountingExperts final : public ForwardingOps {
 public:
  void ExpertLinear(const ExpertLinearParams& params) override {
    num_tokens += params.num_tokens;
    ForwardingOps::ExpertLinear(params);
  }
  int64_t num_tokens = 0;
};

// Each of two ranks computes its own cuts of the experts on the host: the tokens of ranks whose
// experts are on the devices, and the same bits in every schedule.
TEST(EmulatedHostExpertsTest, RanksHaveTheirCutsOnTheHost) {
  MarkSlow("models on the emulator");
  for (const char* const name : {"qwen2_moe", "gpt_oss", "deepseek_v3"}) {
    SCOPED_TRACE(name);
    const auto model = cuda::MakeGpuArchitecture(name);
    ASSERT_NE(model, nullptr);
    const auto prompt = RandomPrompt(11, 3, static_cast<int32_t>(model->config.vocab_size));
    const auto answer = [&](DriverOptions options, int32_t num_host_layers,
                            std::vector<std::shared_ptr<Ops>> host_ops, int32_t chunk) {
      options.num_ranks = 2;
      options.max_running_requests = 2;
      options.num_host_layers = num_host_layers;
      options.host_ops = std::move(host_ops);
      EngineDriver driver(
          *model, options,
          EmulatedRanks(2, {.activation_dtype = DType::kF16, .deterministic = true}));
      return driver.Generate(driver.AddRow(prompt), chunk, 3);
    };
    const auto wanted = answer({}, 0, {}, kAll);
    const int32_t all = model->config.num_layers;
    const auto counts = {std::make_shared<CountingExperts>(), std::make_shared<CountingExperts>()};
    const auto on_host = answer({}, all, {counts.begin(), counts.end()}, kAll);
    ExpectAgree(on_host, wanted, 0.03, "experts of ranks on the host");
    for (const auto& one : counts) {
      EXPECT_EQ(one->num_tokens, 2 * CountExpertLayers(model->config) * (11 + 2));
    }
    EXPECT_TRUE(SameResults(answer({.page_size = 4}, all, NaiveOps(2), 5), on_host));
    EXPECT_TRUE(SameResults(
        answer({.graph_max_rows = 2, .graph_max_tokens = 16}, all, NaiveOps(2), 5), on_host));
    ExpectAgree(answer({}, 1, NaiveOps(2), 5), wanted, 0.03, "one layer of ranks on the host");
  }
}

// Rows of an adapter and of none, with the experts on the device or on the host.
TEST(HostDeviceExpertsBesideTest, AdaptersOfAttentionGiveTheTokensOfTheDeviceAlone) {
  AdaptedModel model = LoadAdapted("mixtral");
  for (auto& adapter : model.adapters) {
    auto own = std::make_shared<Adapter>(*RandomAdapter(model.config, /*is_dora=*/false));
    std::erase_if(own->changes, [](const AdapterChange& change) {
      return change.module.find("self_attn") == std::string::npos;
    });
    ASSERT_FALSE(own->changes.empty());
    adapter = std::move(own);
  }
  std::vector<ScheduledRun> runs;
  for (const int32_t layers : {0, 1, model.config.num_layers}) {
    ModelList models(model.config);
    models.SetAdapters(model.adapters);
    auto ops = MakeHostDeviceOps();
    const auto plan = PlanMemory(models,
                                 {.max_running_requests = 8,
                                  .max_prefill_tokens = 32,
                                  .max_seq_len = 64,
                                  .num_pages = 64,
                                  .graph_max_rows = 8,
                                  .graph_max_tokens = 32,
                                  .num_host_layers = layers},
                                 0, ops.get());
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    auto engine =
        MakeDeviceEngine(models, *model.checkpoint, *plan, std::move(ops),
                         {.graph_max_rows = 8, .graph_max_tokens = 32, .host_ops = NaiveOps()});
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    runs.push_back(
        RunScheduled(engine->get(), {.max_prefill_tokens = 32}, RequestsOf(model, model.cases), 1));
  }
  const auto tokens_of = [](const ScheduledRun& run) {
    std::vector<TokenId> tokens;
    for (const auto& [id, answer] : run.answers) {
      for (const RowResult& result : answer) tokens.push_back(result.token);
    }
    return tokens;
  };
  EXPECT_FALSE(tokens_of(runs[0]).empty());
  for (size_t i = 1; i < runs.size(); ++i) EXPECT_EQ(tokens_of(runs[i]), tokens_of(runs[0]));
}

}  // namespace
}  // namespace minisgl
