// Greedy answers compared with an independent implementation's (tests/golden/README.md): all
// prompts of a model in one batch, with chunked prefill and answers of different lengths, and each
// prompt again on a prefix that another row computed.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/engine_driver.h"
#include "golden_models.h"

namespace minisgl {
namespace {

// Odd, so that chunks end within pages and within sliding windows.
constexpr int32_t kChunk = 19;

struct Greedy {
  std::string model;
  int32_t page_size;
  int32_t num_ranks = 1;
};

std::vector<TokenId> Tokens(const TestRow& row) {
  std::vector<TokenId> tokens;
  for (const RowResult& result : row.results) tokens.push_back(result.token);
  return tokens;
}

class GoldenGreedyTest : public testing::TestWithParam<Greedy> {
 protected:
  void SetUp() override {
    const Json golden = ReadGolden(GetParam().model + "_greedy");
    ASSERT_TRUE(golden.is_object());
    const std::string dir = GoldenModelDir(golden);
    auto config = LoadModelConfig(dir);
    ASSERT_TRUE(config.ok()) << config.status().message();
    auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    config_ = std::move(config).value();
    checkpoint_ = std::move(checkpoint).value();
    for (const Json& test_case : golden.Find("cases")->as_array()) {
      prompts_.push_back(ToIds(*test_case.Find("prompt_token_ids")));
      answers_.push_back(ToIds(*test_case.Find("token_ids")));
    }
    ASSERT_GT(prompts_.size(), 0u);
  }

  DriverOptions Options() const {
    return {.page_size = GetParam().page_size,
            .num_threads = 2,
            .num_ranks = GetParam().num_ranks,
            .cpu_target = TargetOfF32Activations(),
            .max_running_requests = 32,
            .weight_dtype = DTypeOfF32KeysAndValues(config_)};
  }

  // Decodes `rows` in common steps until each has as many tokens as its reference.
  void Answer(EngineDriver* driver, const std::vector<TestRow*>& rows) {
    for (bool any = true; any;) {
      any = false;
      for (size_t i = 0; i < rows.size(); ++i) {
        if (rows[i]->results.size() >= answers_[i].size()) continue;
        driver->Extend(rows[i], std::min(kChunk, rows[i]->known_len - rows[i]->computed_len));
        any = true;
      }
      if (any) {
        ASSERT_TRUE(driver->Step().ok());
      }
    }
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(Tokens(*rows[i]), answers_[i]) << i;
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<std::vector<TokenId>> prompts_, answers_;
};

TEST_P(GoldenGreedyTest, AnswersAsTheReferenceDoes) {
  EngineDriver driver(config_, *checkpoint_, Options());
  checkpoint_.reset();  // its files are read later, too
  std::vector<TestRow*> rows;
  for (const auto& prompt : prompts_) rows.push_back(driver.AddRow(prompt));
  Answer(&driver, rows);
}

TEST_P(GoldenGreedyTest, AnswersSoAfterACachedPrefix) {
  EngineDriver driver(config_, *checkpoint_, Options());
  std::vector<TestRow*> first, second;
  for (const auto& prompt : prompts_) first.push_back(driver.AddRow(prompt));
  Answer(&driver, first);
  int32_t num_shared = 0;
  for (size_t i = 0; i < prompts_.size(); ++i) {
    // At most all tokens except the last, which gives the first logits.
    const auto pages = static_cast<int32_t>(prompts_[i].size() - 1) / GetParam().page_size;
    second.push_back(driver.AddRowSharing(*first[i], pages, prompts_[i]));
    num_shared += pages;
  }
  ASSERT_GT(num_shared, 0);
  Answer(&driver, second);
}

std::vector<Greedy> AllGreedy() {
  std::vector<Greedy> all;
  for (const GoldenModel& model : AllGoldenModels()) {
    if (!model.has_greedy) continue;
    for (const int32_t page_size : {1, 4, 16}) all.push_back({model.name, page_size});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, GoldenGreedyTest, testing::ValuesIn(AllGreedy()),
                         [](const auto& test) {
                           return test.param.model + "_pages_of_" +
                                  std::to_string(test.param.page_size);
                         });

// Models of every kind on several ranks.
std::vector<Greedy> OnRanks() {
  std::vector<Greedy> all;
  for (const char* model : {"llama_biases",
                            "phi3",
                            "cohere2",
                            "gemma4",
                            "gemma4_moe",
                            "mixtral",
                            "gpt_oss",
                            "qwen2_moe",
                            "olmo2",
                            "granitemoehybrid_dense",
                            "olmo_hybrid",
                            "minimax_m2",
                            "stablelm_parallel",
                            "nemotron_h_latent",
                            "deepseek_v3",
                            "qwen3_next",
                            "falcon_h1",
                            "lfm2",
                            "quant_ct_int4",
                            "quant_gptq_order",
                            "quant_fp8_block"}) {
    for (const int32_t num_ranks : {2, 4}) {
      if (num_ranks == 4 && std::string(model).find("_h") != std::string::npos) continue;
      all.push_back({model, 4, num_ranks});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ranks, GoldenGreedyTest, testing::ValuesIn(OnRanks()),
                         [](const auto& test) {
                           return test.param.model + "_on_" + std::to_string(test.param.num_ranks);
                         });

}  // namespace
}  // namespace minisgl
