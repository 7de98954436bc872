// Experts in the host's memory beside a device (--cpu-experts), over the device with the oracle's
// operations: the tokens of the device alone, and the same bits in every schedule. Also faults of
// what computes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/forwarding_ops.h"
#include "engine/host_device_ops.h"
#include "golden_models.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/host_experts.h"
#include "minisgl/model/decoder.h"

namespace minisgl {
namespace {

constexpr int32_t kAllLayers = 1 << 20;
constexpr int32_t kPromptTokens = 37, kAnswerTokens = 8;

std::vector<TokenId> TokensOf(const std::vector<RowResult>& results) {
  std::vector<TokenId> tokens;
  for (const RowResult& result : results) tokens.push_back(result.token);
  return tokens;
}

std::unique_ptr<TestModel> OpenMixture(const char* name) {
  OpenedGolden golden = OpenGolden(name);
  auto model = std::make_unique<TestModel>();
  model->config = std::move(golden.config);
  model->checkpoint = std::move(golden.checkpoint);
  return model;
}

class HostDeviceExpertsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = OpenMixture(GetParam());
    ASSERT_NE(model_->checkpoint, nullptr);
    ASSERT_GT(CountExpertLayers(model_->config), 0);
  }

  // `host_ops` null: the oracle, of each rank.
  std::unique_ptr<EngineDriver> Make(int32_t num_host_layers, DriverOptions options,
                                     std::shared_ptr<Ops> host_ops = nullptr) {
    options.max_running_requests = 4;
    options.weight_dtype = DType::kF32;
    options.num_host_layers = num_host_layers;
    options.host_ops.push_back(host_ops != nullptr ? std::move(host_ops) : MakeNaiveOps());
    return std::make_unique<EngineDriver>(*model_, options,
                                          MakeHostDeviceOps(uint64_t{1} << 30, {}, counters_));
  }
  std::vector<TokenId> Prompt(uint64_t seed) const {
    return RandomPrompt(kPromptTokens, seed, static_cast<int32_t>(model_->config.vocab_size));
  }
  std::vector<RowResult> Alone(EngineDriver* driver, int32_t chunk = kAll) const {
    return driver->Generate(driver->AddRow(Prompt(3)), chunk, kAnswerTokens);
  }

  std::unique_ptr<TestModel> model_;
  const std::shared_ptr<HostDeviceCounters> counters_ = std::make_shared<HostDeviceCounters>();
};

TEST_P(HostDeviceExpertsTest, GiveTheTokensOfTheDeviceAlone) {
  const auto wanted = TokensOf(Alone(Make(0, {}).get()));
  EXPECT_EQ(counters_->host_rows, 0);
  for (const int32_t num_layers : {1, kAllLayers}) {
    const int64_t before = counters_->host_rows;
    EXPECT_EQ(TokensOf(Alone(Make(num_layers, {}).get())), wanted) << num_layers;
    const int64_t layers = std::min(num_layers, CountExpertLayers(model_->config));
    EXPECT_EQ(counters_->host_rows - before, layers * (kPromptTokens + kAnswerTokens - 1));
  }
}

// Chunks, pages and graphs, whose padding goes through no experts.
TEST_P(HostDeviceExpertsTest, GiveTheSameBitsHoweverStepsAreCut) {
  const auto wanted = Alone(Make(kAllLayers, {}).get());
  const int64_t rows = counters_->host_rows;
  for (const int32_t graphs : {0, 1}) {
    for (const int32_t chunk : {7, 32}) {
      const auto driver = Make(kAllLayers, {.page_size = chunk == 7 ? 1 : 4,
                                            .graph_max_rows = graphs * 4,
                                            .graph_max_tokens = graphs * 32,
                                            .warms_up = graphs > 0});
      counters_->host_rows = 0;
      EXPECT_TRUE(SameResults(Alone(driver.get(), chunk), wanted)) << graphs << " " << chunk;
      EXPECT_EQ(counters_->host_rows, rows) << graphs << " " << chunk;
    }
  }
}

// Beside others, in graphs with padding; after a row was dropped half-way; and with drafts, of
// which some are right.
TEST_P(HostDeviceExpertsTest, GiveTheSameBitsBesideOthersAndWithDrafts) {
  const auto wanted = Alone(Make(1, {}).get());
  const auto driver = Make(1, {.graph_max_rows = 4, .graph_max_tokens = 32});
  std::vector<TestRow*> rows;
  for (const uint64_t seed : {3, 4, 5}) rows.push_back(driver->AddRow(Prompt(seed)));
  while (rows[0]->results.size() < kAnswerTokens) {
    for (TestRow* row : rows) {
      driver->Extend(row, std::min(20, row->known_len - row->computed_len));
    }
    ASSERT_TRUE(driver->Step().ok());
  }
  EXPECT_TRUE(SameResults(rows[0]->results, wanted)) << "beside others";
  for (TestRow* row : rows) driver->FreeRow(row);

  std::vector<TokenId> said = Prompt(3);
  for (int i = 0; i < 3; ++i) said.push_back(wanted[static_cast<size_t>(i)].token);
  const auto rest = driver->Generate(driver->AddRow(said), 11, kAnswerTokens - 3);
  EXPECT_TRUE(SameResults(rest, {wanted.begin() + 3, wanted.end()})) << "after a preemption";

  if (HasStates(model_->config)) return;  // drafts of such rows need plans of the scheduler
  TestRow* const row = driver->AddRow(Prompt(3));
  driver->ExtendAll(row);
  ASSERT_TRUE(driver->Step().ok());
  const TokenId wrong = wanted[2].token == 0 ? 1 : 0;
  driver->ExtendWithDrafts(row, std::vector<TokenId>{wanted[1].token, wrong});
  ASSERT_TRUE(driver->Step().ok());
  while (row->results.size() < kAnswerTokens) {
    driver->ExtendAll(row);
    ASSERT_TRUE(driver->Step().ok());
  }
  EXPECT_EQ(TokensOf(row->results), TokensOf(wanted)) << "with drafts";
}

std::vector<const char*> Mixtures() {
  std::vector<const char*> names;
  for (const GoldenModel& golden : AllGoldenModels()) {
    const auto config = LoadModelConfig(GoldenModelDir(ReadGolden(golden.name)));
    if (config.ok() && CountExpertLayers(*config) > 0) names.push_back(golden.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Mixtures, HostDeviceExpertsTest, testing::ValuesIn(Mixtures()),
                         [](const auto& test) { return std::string(test.param); });

// Over the CPU's operations, which compute them for users.
class HostExpertsOfCpuTest : public HostDeviceExpertsTest {
 protected:
  std::shared_ptr<Ops> Cpu(int num_threads) const {
    auto ops = MakeCpuOps({.num_threads = num_threads, .target = TargetOfF32Activations()});
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    return std::move(ops).value();
  }
};

TEST_P(HostExpertsOfCpuTest, GiveTheTokensOfTheDeviceAlone) {
  const auto wanted = TokensOf(Alone(Make(0, {}).get()));
  const auto results = Alone(Make(kAllLayers, {}, Cpu(1)).get());
  EXPECT_EQ(TokensOf(results), wanted);
  const auto driver = Make(kAllLayers, {.graph_max_rows = 4, .graph_max_tokens = 32}, Cpu(2));
  EXPECT_TRUE(SameResults(Alone(driver.get(), 9), results));
}

INSTANTIATE_TEST_SUITE_P(Mixtures, HostExpertsOfCpuTest,
                         testing::Values("mixtral", "qwen2_moe", "gpt_oss", "llama4", "gemma4_moe",
                                         "deepseek_v3", "qwen3_5_moe", "nemotron_h_latent",
                                         "quant_ct_fp8_gemma4_moe"),
                         [](const auto& test) { return std::string(test.param); });

// Operations that fail at the n-th product of experts from now on.
class FailingExperts final : public ForwardingOps {
 public:
  void ExpertLinear(const ExpertLinearParams& params) override {
    if (calls_left_ > 0 && --calls_left_ == 0) throw std::runtime_error("a thread broke");
    ForwardingOps::ExpertLinear(params);
  }
  void FailAt(int n) { calls_left_ = n; }

 private:
  int calls_left_ = 0;
};

// A step whose experts fail has one error, later steps have it too, and a step before it keeps its
// results.
TEST(HostDeviceExpertsFaultTest, AFailureEndsTheStepWithOneLine) {
  const auto model = OpenMixture("mixtral");
  ASSERT_NE(model->checkpoint, nullptr);
  const auto failing = std::make_shared<FailingExperts>();
  EngineDriver driver(*model,
                      {.max_running_requests = 2,
                       .weight_dtype = DType::kF32,
                       .num_host_layers = 1,
                       .host_ops = {failing}},
                      MakeHostDeviceOps());
  TestRow* const row =
      driver.AddRow(RandomPrompt(9, 1, static_cast<int32_t>(model->config.vocab_size)));
  driver.ExtendAll(row);
  ASSERT_TRUE(driver.Step().ok());
  failing->FailAt(2);
  driver.ExtendAll(row);
  driver.Launch();
  const Status failed = driver.Collect();
  EXPECT_EQ(failed.code(), StatusCode::kInternal);
  EXPECT_NE(failed.message().find("experts on the CPU failed (a thread broke)"), std::string::npos)
      << failed.message();
  EXPECT_EQ(row->results[0].outcome, RowResult::Outcome::kToken);
}

}  // namespace
}  // namespace minisgl
