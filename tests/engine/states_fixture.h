// Models with states under the scheduler, on any engine: requests whose prompts share prefixes, run
// together and each alone.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_driver.h"
#include "engine/scheduled_run.h"
#include "golden_models.h"
#include "minisgl/engine/model_engine.h"
#include "runtime/background_work.h"
#include "runtime/prefix_source.h"

namespace minisgl {

struct StatesSettings {
  int32_t page_size = 4;
  int32_t num_pages = 400;
  int32_t num_slots = 40;
  int32_t max_prefill_tokens = 64;
  std::shared_ptr<Drafter> drafter;
  int depth = 1;
  bool is_optimistic = false;
  CacheKind cache = CacheKind::kRadix;
  KvBlockStore* store = nullptr;  // where prefixes are kept
};

// Knows the answers, and is wrong about every third token.
class HalfRightDrafter final : public Drafter {
 public:
  HalfRightDrafter(const std::vector<Request>& requests, const ScheduledRun& right) {
    for (const Request& request : requests) {
      std::vector<TokenId>& tokens = right_[request.id];
      tokens = request.prompt;
      for (const RowResult& result : right.answers.at(request.id)) tokens.push_back(result.token);
    }
  }
  void Draft(RequestId id, std::span<const TokenId> tokens, int32_t count,
             std::vector<TokenId>* drafts) override {
    const std::vector<TokenId>& right = right_.at(id);
    for (size_t at = tokens.size(); at < right.size() && count > 0; ++at, --count) {
      drafts->push_back(at % 3 == 0 ? (right[at] + 1) % 100 : right[at]);
    }
  }
  void Forget(RequestId) override {}

 private:
  std::map<RequestId, std::vector<TokenId>> right_;
};

class StatesFixture : public testing::TestWithParam<const char*> {
 protected:
  // An engine of four running requests; `settings` say the rest.
  virtual std::unique_ptr<Engine> MakeEngine(const StatesSettings& settings) = 0;
  virtual const ModelConfig& config() const = 0;

  static ModelEngineOptions OptionsOf(const StatesSettings& settings) {
    return {.max_running_requests = 4,
            .max_prefill_tokens = settings.max_prefill_tokens,
            .page_size = settings.page_size,
            .num_pages = settings.num_pages,
            .memory_ratio = 0.5};
  }
  static void SetSlots(const StatesSettings& settings, MemoryPlan* plan) {
    plan->limits.num_state_slots = settings.num_slots;
    plan->limits.max_step_drafts = settings.drafter != nullptr ? 32 : 0;
  }

  // Runs the requests together.
  ScheduledRun Run(const StatesSettings& settings, const std::vector<Request>& requests) {
    const std::unique_ptr<Engine> engine = MakeEngine(settings);
    SchedulerOptions policy;
    policy.max_prefill_tokens = settings.max_prefill_tokens;
    policy.step = StepPolicy::kMixed;
    policy.cache = settings.cache;
    policy.max_drafts = settings.drafter != nullptr ? 4 : 0;
    policy.drafter = settings.drafter;
    std::unique_ptr<runtime::PrefixSource> source;
    if (settings.store != nullptr) {
      source = std::make_unique<runtime::PrefixSource>(engine.get(), settings.store,
                                                       runtime::MakeWorkThreads(2));
      policy.kv_source = source.get();
    }
    if (settings.is_optimistic) policy.admission = AdmissionPolicy::kOptimistic;
    return RunScheduled(engine.get(), policy, requests, settings.depth);
  }

  Request MakeRequest(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens) const {
    Request request;
    request.id = id;
    request.prompt = std::move(prompt);
    request.max_tokens = max_tokens;
    request.sampling.num_logprobs = 20;
    return request;
  }
  std::vector<TokenId> Prompt(int32_t length, uint64_t seed) const {
    return RandomPrompt(length, seed, static_cast<int32_t>(config().vocab_size));
  }
  // Prompts that part after 20 tokens and 5 more each, and one of them twice. `step`: by how many
  // tokens their answers differ in length.
  std::vector<Request> SharingRequests(RequestId count = 8, int64_t step = 4) const {
    std::vector<Request> requests;
    const std::vector<TokenId> stem = Prompt(60, 9);
    for (RequestId id = 1; id < count; ++id) {
      std::vector<TokenId> prompt(stem.begin(), stem.begin() + 20 + static_cast<int64_t>(id) * 5);
      if (id + 1 != count) prompt.push_back(static_cast<TokenId>(3 + id));
      requests.push_back(MakeRequest(id, prompt, 2 + step * (2 + static_cast<int64_t>(id))));
    }
    requests.push_back(MakeRequest(count, requests[requests.size() / 2].prompt, 2 + step * 2));
    return requests;
  }
  // Each request alone, without a prefix cache.
  ScheduledRun RunAlone(const std::vector<Request>& requests) {
    ScheduledRun all;
    for (const Request& request : requests) {
      ScheduledRun one = Run({.depth = 0, .cache = CacheKind::kNaive}, {request});
      all.answers.merge(one.answers);
      all.scored.merge(one.scored);
    }
    return all;
  }
};

// The fixture for the model of tests/golden that the parameter names.
class GoldenStatesFixture : public StatesFixture {
 protected:
  void SetUp() override {
    OpenedGolden golden = OpenGolden(GetParam());
    ASSERT_NE(golden.checkpoint, nullptr);
    config_ = std::move(golden.config);
    checkpoint_ = std::move(golden.checkpoint);
  }
  const ModelConfig& config() const override { return config_; }

  ModelConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

}  // namespace minisgl
