// Log-probabilities of given tokens equal the logits of a whole forward pass and the report of an
// answer with the same tokens, bit for bit under every schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/host_device_ops.h"
#include "engine/scheduled_run.h"
#include "golden_models.h"
#include "long_form.h"
#include "minisgl/engine/device_engine.h"

namespace minisgl {
namespace {

struct ScoreSetting {
  int32_t chunk = 256;
  int32_t page_size = 16;
  int32_t num_threads = 1;
  int32_t max_running_requests = 8;
  int32_t num_pages = 0;
  int depth = 1;
  CacheKind cache = CacheKind::kRadix;
  AdmissionPolicy admission = AdmissionPolicy::kReserve;
  bool on_device = false;  // the engine of a device, over the host's operations
  int32_t graph_max_tokens = 0;
  std::string cpu_target = TestedCpuTarget();
};

// Scores the tokens of `prompt` from `begin` on, then answers with `max_tokens`.
Request ScoreRequest(RequestId id, std::vector<TokenId> prompt, int32_t begin, int64_t max_tokens,
                     int32_t num_ranks = 3) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.num_logprobs = num_ranks;
  request.sampling.num_prompt_logprobs = num_ranks;
  request.sampling.prompt_logprobs_begin = begin;
  return request;
}

ScheduledRun RunScores(const ModelConfig& config, const Checkpoint& checkpoint,
                       const ScoreSetting& setting, const std::vector<Request>& requests,
                       std::optional<DType> weight_dtype = std::nullopt,
                       std::unique_ptr<DeviceOps> device = nullptr) {
  if (setting.on_device && device == nullptr) device = MakeHostDeviceOps();
  ModelEngineOptions options;
  options.max_running_requests = setting.max_running_requests;
  options.max_prefill_tokens = setting.chunk;
  options.page_size = setting.page_size;
  options.num_pages = setting.num_pages;
  options.weight_dtype = weight_dtype;
  options.graph_max_tokens = setting.graph_max_tokens;
  if (device != nullptr) {
    options.memory_ratio = 0.5;
    if (options.num_pages == 0) options.num_pages = 500;
  }
  auto plan = PlanMemory(config, options, uint64_t{1} << 32, device.get());
  MINISGL_CHECK(plan.ok(), "{}", plan.status().message());
  plan->limits.num_window_pages = plan->limits.sliding_window = 0;
  std::unique_ptr<Engine> engine;
  if (device != nullptr) {
    auto made = MakeDeviceEngine(config, checkpoint, *plan, std::move(device),
                                 {.graph_max_tokens = setting.graph_max_tokens});
    MINISGL_CHECK(made.ok(), "{}", made.status().message());
    engine = std::move(made).value();
  } else {
    auto ops = MakeCpuOps({.num_threads = setting.num_threads, .target = setting.cpu_target});
    MINISGL_CHECK(ops.ok(), "{}", ops.status().message());
    auto made = MakeModelEngine(config, checkpoint, *plan, std::move(ops).value());
    MINISGL_CHECK(made.ok(), "{}", made.status().message());
    engine = std::move(made).value();
  }
  SchedulerOptions scheduler;
  scheduler.max_prefill_tokens = setting.chunk;
  scheduler.cache = setting.cache;
  scheduler.admission = setting.admission;
  return RunScheduled(engine.get(), scheduler, requests, setting.depth);
}

// log softmax(logits)[id], in double.
double LogSoftmax(std::span<const float> logits, TokenId id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return logits[static_cast<size_t>(id)] - largest - std::log(sum);
}

class ScoreTest : public testing::Test {
 protected:
  void ExpectScoresOfLogits(const std::vector<RowResult>& scored, const std::vector<TokenId>& ids,
                            size_t begin) {
    auto ops = MakeCpuOps({.target = TestedCpuTarget()});
    ASSERT_TRUE(ops.ok());
    const auto logits =
        ComputeLogits(model_->config, *model_->checkpoint, model_->config.dtype, ops->get(), ids);
    ASSERT_TRUE(logits.ok());
    const auto vocab = static_cast<size_t>(model_->config.vocab_size);
    ASSERT_EQ(scored.size(), ids.size() - begin);
    for (size_t i = 0; i < scored.size(); ++i) {
      const auto row = std::span(*logits).subspan((begin + i - 1) * vocab, vocab);
      EXPECT_EQ(scored[i].token, ids[begin + i]);
      EXPECT_NEAR(scored[i].logprob, LogSoftmax(row, scored[i].token), 1e-6) << i;
      ASSERT_EQ(scored[i].top_logprobs.size(), 3u);
      const auto best = std::max_element(row.begin(), row.end()) - row.begin();
      EXPECT_EQ(scored[i].top_logprobs[0].id, best) << i;
    }
  }

  ScheduledRun Run(const ScoreSetting& setting, const std::vector<Request>& requests) {
    return RunScores(model_->config, *model_->checkpoint, setting, requests);
  }

  // Prompts of many lengths, of which some share their beginning; scored from the first token that
  // has one before it, from the middle or at the end, with an answer and without.
  static std::vector<Request> ManyRequests() {
    const auto stem = RandomPrompt(33, 1);
    std::vector<Request> requests;
    const auto add = [&](std::vector<TokenId> prompt, int32_t begin, int64_t max_tokens) {
      requests.push_back(ScoreRequest(requests.size() + 1, std::move(prompt), begin, max_tokens));
    };
    for (const int32_t length : {1, 2, 16, 17, 40}) {
      auto prompt = stem;
      for (const TokenId id : RandomPrompt(length, static_cast<uint64_t>(length))) {
        prompt.push_back(id);
      }
      add(prompt, 33, 0);
      add(prompt, 1, length % 2 == 0 ? 0 : 5);
      add(std::move(prompt), 20, 3);
    }
    add(RandomPrompt(2, 3), 1, 0);
    add(RandomPrompt(1, 4), 1, 2);  // nothing to score
    return requests;
  }

  const std::unique_ptr<TestModel> model_ = MakeTinyModel();
};

TEST_F(ScoreTest, LogProbabilitiesAreThoseOfTheWholeForwardPass) {
  const auto ids = RandomPrompt(60, 5);
  for (const int32_t begin : {1, 30, 59}) {
    const ScheduledRun run = Run({.chunk = 16}, {ScoreRequest(1, ids, begin, 0)});
    ExpectScoresOfLogits(run.scored.at(1), ids, static_cast<size_t>(begin));
    EXPECT_TRUE(run.answers.empty());
  }
}

// The head runs in pieces of as many rows as the plan has memory for.
TEST_F(ScoreTest, OneRowOfLogitsIsEnough) {
  const auto ids = RandomPrompt(60, 5);
  for (const bool on_device : {false, true}) {
    const ScheduledRun few =
        Run({.max_running_requests = 1, .on_device = on_device}, {ScoreRequest(1, ids, 1, 2)});
    const ScheduledRun many =
        Run({.max_running_requests = 100, .on_device = on_device}, {ScoreRequest(1, ids, 1, 2)});
    ExpectSame(few, many);
    ASSERT_EQ(few.scored.at(1).size(), 59u);
  }
}

TEST_F(ScoreTest, AnAnswerScoredAfterwardsHasTheLogProbabilitiesThatItReported) {
  for (const bool on_device : {false, true}) {
    const auto prompt = RandomPrompt(37, 6);
    const ScoreSetting setting = {.on_device = on_device};
    const auto answer = Run(setting, {ScoreRequest(1, prompt, 37, 12)}).answers.at(1);
    auto both = prompt;
    for (const RowResult& result : answer) both.push_back(result.token);
    const auto scored = Run(setting, {ScoreRequest(1, both, 37, 0)}).scored.at(1);
    EXPECT_TRUE(SameResults(scored, answer));
  }
}

// A request that scores its text takes the pages of the prompt from the cache; one that scores the
// prompt, too, computes it.
TEST_F(ScoreTest, TextsOfOnePromptShareItsPages) {
  const auto prompt = RandomPrompt(36, 7);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 3; ++id) {
    auto ids = prompt;
    for (const TokenId token : RandomPrompt(5, 70 + id)) ids.push_back(token);
    requests.push_back(ScoreRequest(id, ids, id == 3 ? 20 : 36, 0));
  }
  const ScheduledRun run = Run({}, requests);
  EXPECT_EQ(run.cached_tokens.at(1), 0);
  EXPECT_EQ(run.cached_tokens.at(2), 32);  // position 35 is computed: it gives the first score
  EXPECT_EQ(run.cached_tokens.at(3), 16);
  EXPECT_EQ(run.stats.scored_tokens, 5 + 5 + 21);
  for (const Request& request : requests) {
    ExpectScoresOfLogits(run.scored.at(request.id), request.prompt,
                         static_cast<size_t>(request.sampling.prompt_logprobs_begin));
  }
}

TEST_F(ScoreTest, EveryScheduleGivesTheSameBits) {
  const auto requests = ManyRequests();
  const ScheduledRun wanted = Run({.cache = CacheKind::kNaive}, requests);
  ASSERT_EQ(wanted.scored.size(), requests.size());
  const ScoreSetting settings[] = {
      {.chunk = 1, .page_size = 1},
      {.chunk = 7, .page_size = 4, .max_running_requests = 3},
      {.chunk = 16, .num_threads = 3},
      {.chunk = 33, .page_size = 2, .max_running_requests = 2, .depth = 0},
      {.chunk = 64, .page_size = 64, .num_threads = 2, .max_running_requests = 20},
  };
  for (const ScoreSetting& setting : settings) ExpectSame(wanted, Run(setting, requests));
}

TEST_F(ScoreTest, PreemptionChangesNothing) {
  auto requests = ManyRequests();
  for (Request& request : requests) request.max_tokens *= 5;
  const ScheduledRun wanted = Run({}, requests);
  ScoreSetting tight = {.chunk = 16, .page_size = 1, .num_pages = 120, .depth = 1};
  tight.admission = AdmissionPolicy::kOptimistic;
  const ScheduledRun found = Run(tight, requests);
  ExpectSame(wanted, found);
  EXPECT_GT(found.stats.preemptions, 0);
}

TEST_F(ScoreTest, TheEngineOfADeviceScoresTheSameUnderEverySchedule) {
  const auto requests = ManyRequests();
  const ScheduledRun wanted = Run({.on_device = true}, requests);
  const ScoreSetting settings[] = {
      {.chunk = 5, .page_size = 4, .max_running_requests = 2, .on_device = true},
      {.chunk = 64, .max_running_requests = 3, .on_device = true, .graph_max_tokens = 64},
  };
  for (const ScoreSetting& setting : settings) ExpectSame(wanted, Run(setting, requests));
  // The oracle's operations and the CPU's differ in the last bits.
  const ScheduledRun on_cpu = Run({}, requests);
  for (const auto& [id, scored] : on_cpu.scored) {
    ASSERT_EQ(scored.size(), wanted.scored.at(id).size());
    for (size_t i = 0; i < scored.size(); ++i) {
      EXPECT_NEAR(scored[i].logprob, wanted.scored.at(id)[i].logprob, 1e-3);
    }
  }
}

TEST_F(ScoreTest, LogitsThatAreNotFiniteFailTheRequest) {
  auto tensors = TinyTensors(model_->config);
  FileTensor& norm = TensorNamed(&tensors, "model.norm.weight");
  // Finite, as loading demands, but their products are not.
  const std::vector<float> broken(static_cast<size_t>(model_->config.hidden_size),
                                  std::numeric_limits<float>::max());
  norm = FileTensor::F32(norm.name, norm.shape, broken);
  TinyModelDir dir;
  const auto checkpoint = WriteCheckpoint(dir, tensors);
  auto ops = MakeCpuOps({.target = TestedCpuTarget()});
  ASSERT_TRUE(ops.ok());
  auto plan = PlanMemory(model_->config, ModelEngineOptions(), uint64_t{1} << 32);
  ASSERT_TRUE(plan.ok());
  auto engine = MakeModelEngine(model_->config, *checkpoint, *plan, std::move(ops).value());
  ASSERT_TRUE(engine.ok());
  Scheduler scheduler((*engine)->limits(), {});
  scheduler.Submit(ScoreRequest(1, RandomPrompt(20, 1), 1, 0));
  while (!scheduler.Idle()) {
    (*engine)->Launch(scheduler.Next());
    scheduler.Collect((*engine)->Collect());
  }
  const auto events = scheduler.TakeEvents();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].error_code, "nan_logits");
}

// Against transformers: of each prompt, the logits of its last position are stored whole. They give
// the log-probability of any token that follows it.
TEST(GoldenScoreTest, TokensAfterEachPromptHaveTheReferencesLogProbability) {
  const std::vector<GoldenModel> models = AllGoldenModels();
  // Their logits are compared in the suite model; here a part of them shows that the right one is
  // taken.
  for (size_t i = 0; i < models.size(); i += ShortOrLong<size_t>(5, 1)) {
    const GoldenModel& model = models[i];
    const Json golden = ReadGolden(model.name);
    ASSERT_TRUE(golden.is_object());
    const std::string dir = GoldenModelDir(golden);
    const auto config = LoadModelConfig(dir);
    const auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(config.ok() && checkpoint.ok());
    std::vector<Request> requests;
    std::vector<double> wanted, tolerance;
    for (const Json& test_case : golden.Find("cases")->as_array()) {
      const auto prompt = ToIds(*test_case.Find("ids"));
      const Json& last = test_case.Find("positions")->as_array().back();
      std::vector<float> logits;
      for (const Json& logit : last.Find("logits")->as_array()) {
        logits.push_back(static_cast<float>(logit.as_double()));
      }
      ASSERT_EQ(static_cast<int64_t>(logits.size()), config->vocab_size);
      for (const TokenId id : {0, 7, static_cast<TokenId>(config->vocab_size - 1)}) {
        auto ids = prompt;
        ids.push_back(id);
        requests.push_back(
            ScoreRequest(requests.size() + 1, ids, static_cast<int32_t>(prompt.size()), 0));
        wanted.push_back(LogSoftmax(logits, id));
        // The token's logit and the sum's logarithm may both differ.
        tolerance.push_back(2 * model.tolerance * last.Find("max_abs")->as_double() + 1e-6);
      }
    }
    const ScoreSetting setting = {.chunk = 19, .cpu_target = TargetOfF32Activations()};
    const ScheduledRun run =
        RunScores(*config, **checkpoint, setting, requests, DTypeOfF32KeysAndValues(*config));
    for (size_t j = 0; j < wanted.size(); ++j) {
      const auto& scored = run.scored.at(requests[j].id);
      ASSERT_EQ(scored.size(), 1u);
      EXPECT_NEAR(scored[0].logprob, wanted[j], tolerance[j]) << model.name << " " << j;
    }
  }
}

}  // namespace
}  // namespace minisgl
