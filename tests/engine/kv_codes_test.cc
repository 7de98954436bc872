// Keys and values in 8 bits on the demo model: what they cost in perplexity, and the same bits
// under a scheduler that shares prefixes and preempts.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "engine/scheduled_run.h"
#include "golden_models.h"

namespace minisgl {
namespace {

class KvCodesEngineTest : public testing::Test {
 protected:
  void SetUp() override {
    const Json golden = ReadGolden("wren_greedy");
    ASSERT_TRUE(golden.is_object());
    auto config = LoadModelConfig(GoldenModelDir(golden));
    auto checkpoint = Checkpoint::Open(GoldenModelDir(golden));
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    config_ = std::move(config).value();
    checkpoint_ = std::move(checkpoint).value();
    for (const Json& test_case : golden.Find("cases")->as_array()) {
      prompts_.push_back(ToIds(*test_case.Find("prompt_token_ids")));
    }
  }

  ScheduledRun Run(KvKind kind, const std::vector<Request>& requests, int32_t num_pages = 0,
                   int32_t page_size = 16, int32_t chunk = 256) {
    const ModelEngineOptions options = {.max_running_requests = 16,
                                        .max_prefill_tokens = chunk,
                                        .max_seq_len = std::min<int64_t>(512, config_.max_seq_len),
                                        .page_size = page_size,
                                        .kv_kind = kind,
                                        .num_pages = num_pages};
    auto plan = PlanMemory(config_, options, uint64_t{1} << 32);
    MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
    auto ops = MakeCpuOps({.num_threads = 2, .target = TestedCpuTarget()});
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    auto engine = MakeModelEngine(config_, *checkpoint_, *plan, std::move(ops).value());
    MINISGL_CHECK(engine.ok(), "{}", engine.status().message());
    const SchedulerOptions scheduler = {.max_prefill_tokens = chunk,
                                        .admission = AdmissionPolicy::kOptimistic};
    return RunScheduled(engine->get(), scheduler, requests, 1);
  }

  // A request for each prompt.
  std::vector<Request> Requests(int64_t max_tokens) const {
    std::vector<Request> requests;
    for (const auto& prompt : prompts_) {
      Request& request = requests.emplace_back();
      request.id = static_cast<RequestId>(requests.size());
      request.prompt = prompt;
      request.max_tokens = max_tokens;
      request.sampling.num_logprobs = 3;
    }
    return requests;
  }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::vector<std::vector<TokenId>> prompts_;
};

// Text that the model wrote with 16 bits, sampled, is at most 1 % less likely.
TEST_F(KvCodesEngineTest, PerplexityOfTheDemoModelIsWithinOnePercent) {
  std::vector<Request> requests = Requests(200);
  for (Request& request : requests) {
    request.sampling.temperature = 1;
    request.sampling.seed = request.id;
  }
  const ScheduledRun texts = Run(KvKind::kAuto, requests);
  for (Request& request : requests) {
    request.sampling = SamplingParams();
    request.sampling.num_prompt_logprobs = 1;
    request.sampling.prompt_logprobs_begin = static_cast<int32_t>(request.prompt.size());
    request.max_tokens = 0;
    for (const RowResult& token : texts.answers.at(request.id)) {
      request.prompt.push_back(token.token);
    }
  }
  const auto perplexity = [&](KvKind kind) {
    double sum = 0;
    int64_t count = 0;
    for (const auto& [id, scored] : Run(kind, requests).scored) {
      for (const RowResult& token : scored) sum -= token.logprob;
      count += std::ssize(scored);
    }
    EXPECT_EQ(count, 200 * std::ssize(requests));
    return std::exp(sum / static_cast<double>(count));
  };
  const double with_16_bits = perplexity(KvKind::kAuto), with_8_bits = perplexity(KvKind::kFp8);
  EXPECT_NE(with_8_bits, with_16_bits);
  EXPECT_NEAR(with_8_bits / with_16_bits, 1, 0.01) << with_8_bits << " and " << with_16_bits;
}

// Models of other families, with random weights, whose keys have no channels that are larger than
// others, and whose logits are large: they say that each kind of layer reads what it wrote, and
// little about trained models.
TEST_F(KvCodesEngineTest, LogProbabilitiesOfOtherFamiliesAreNear) {
  for (const char* const name :
       {"odd_heads", "glm4", "qwen3_5", "qwen3_5_moe", "qwen3_next", "stablelm", "quant_awq",
        "quant_ct_int4_gemma4", "quant_mxfp4_gpt_oss", "quant_mixed_nemotron_h",
        "quant_fp8_block_moe"}) {
    OpenedGolden golden = OpenGolden(name);
    ASSERT_NE(golden.checkpoint, nullptr);
    config_ = std::move(golden.config);
    checkpoint_ = std::move(golden.checkpoint);
    std::vector<Request> requests(4);
    for (Request& request : requests) {
      request.id = 1 + (&request - requests.data());
      request.prompt = RandomPrompt(100, request.id, static_cast<int32_t>(config_.vocab_size));
      request.sampling.num_prompt_logprobs = 1;
    }
    const auto wide = Run(KvKind::kAuto, requests).scored;
    const auto coded = Run(KvKind::kFp8, requests).scored;
    double sum = 0, most = 0;
    int count = 0;
    for (const auto& [id, scored] : wide) {
      for (size_t i = 0; i < scored.size(); ++i, ++count) {
        const double apart = std::abs(static_cast<double>(scored[i].logprob) -
                                      static_cast<double>(coded.at(id)[i].logprob));
        sum += apart;
        most = std::max(most, apart);
      }
    }
    std::printf("%s: log-probabilities %.4f apart on average, at most %.4f\n", name, sum / count,
                most);
    EXPECT_GT(sum, 0) << name;
    EXPECT_LT(sum / count, 0.5) << name;
  }
}

TEST_F(KvCodesEngineTest, SharingAndPreemptionChangeNothing) {
  std::vector<Request> requests = Requests(40);
  for (size_t i = 1; i < requests.size(); i += 2) {  // on the prefix of the one before
    requests[i].prompt.insert(requests[i].prompt.begin(), requests[i - 1].prompt.begin(),
                              requests[i - 1].prompt.end());
  }
  const ScheduledRun roomy = Run(KvKind::kFp8, requests);
  EXPECT_EQ(roomy.stats.preemptions, 0);
  const ScheduledRun few = Run(KvKind::kFp8, requests, /*num_pages=*/33);
  EXPECT_GT(few.stats.preemptions, 0);
  ExpectSame(roomy, few);
  ExpectSame(roomy, Run(KvKind::kFp8, requests, /*num_pages=*/150, /*page_size=*/4, /*chunk=*/19));
}

}  // namespace
}  // namespace minisgl
