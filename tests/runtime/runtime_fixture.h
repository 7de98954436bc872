// Shared by the tests of the runtime: limits, prompts, a clock that only the test moves, and the
// serving loop driven by the test over an engine without a model.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/serve_loop.h"
#include "sim/sim_engine.h"

namespace minisgl::runtime {

inline EngineLimits SmallLimits() {
  EngineLimits limits;
  limits.vocab_size = 50;
  limits.page_size = 4;
  limits.num_pages = 200;
  limits.max_running_requests = 8;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 40;
  return limits;
}

inline Prompt MakePrompt(TokenId first, int64_t length, int64_t max_tokens) {
  Prompt prompt;
  for (int64_t i = 0; i < length; ++i)
    prompt.ids.push_back(static_cast<TokenId>(1 + (first + i) % 40));
  prompt.max_tokens = max_tokens;
  prompt.stop_token_ids = {0};
  return prompt;
}

// The events that one request received.
struct Collected {
  std::vector<TokenId> ids;
  int num_done = 0;
  Event done;

  void Take(const Event& event) {
    EXPECT_EQ(num_done, 0) << "an event after the end";
    ids.insert(ids.end(), event.token_ids.begin(), event.token_ids.end());
    if (event.kind != Event::Kind::kDone) return;
    ++num_done;
    done = event;
  }
};

// An engine whose steps advance a clock, and call back before they begin.
class TimedEngine : public sim::SimEngine {
 public:
  using Time = std::chrono::steady_clock::time_point;

  TimedEngine(const EngineLimits& limits, Time* now) : SimEngine(limits, 0), now_(now) {}
  StepResult Collect() override {
    *now_ += step_time;
    return SimEngine::Collect();
  }
  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    if (before_launch) before_launch();
    SimEngine::Launch(std::move(plan));
  }

  std::chrono::milliseconds step_time{10};
  std::function<void()> before_launch;

 private:
  Time* now_;
};

// A KV source that has nothing, and does not know that yet for a set number of lookups.
class SlowSource : public KvSource {
 public:
  explicit SlowSource(int64_t questions) : questions_(questions) {}
  std::optional<int64_t> Lookup(RequestId, const PrefixKey&, int64_t) override {
    if (questions_-- > 0) return std::nullopt;
    return 0;
  }
  void Load(RequestId, const PrefixKey&, int64_t, int64_t, std::span<const PageId>,
            StateSlot) override {}
  void Cancel(RequestId) override {}
  std::vector<KvLoadResult> TakeFinished() override { return {}; }

 private:
  int64_t questions_;
};

// Answers do not end by themselves: they have max_tokens tokens.
class LoopDriver {
 public:
  explicit LoopDriver(RuntimeOptions options = {}, const EngineLimits& limits = SmallLimits())
      : engine(limits, &now),
        loop(&engine, nullptr, Checked(std::move(options)), [this] { return now; }) {}

  RequestId Submit(Prompt prompt) {
    const RequestId id = next_id++;
    loop.Submit({id, id, std::move(prompt), &queue, now});
    return id;
  }
  RequestId Submit(Prompt prompt, double timeout_s) {
    prompt.timeout = std::chrono::duration<double>(timeout_s);
    return Submit(std::move(prompt));
  }
  void Advance(double seconds) {
    now += std::chrono::duration_cast<TimedEngine::Time::duration>(
        std::chrono::duration<double>(seconds));
  }
  void Turns(int count) {
    for (; count > 0; --count) EXPECT_TRUE(loop.Turn());
  }
  void RunToRest() {
    for (int turns = 0; loop.Turn(); ++turns) ASSERT_LT(turns, 10000);
    EXPECT_EQ(engine.violation(), "");
  }
  // The events of all requests so far.
  std::map<RequestId, Collected>& Told() {
    while (const auto event = queue.Pop(std::chrono::milliseconds(0))) {
      told[event->request].Take(*event);
    }
    return told;
  }

  TimedEngine::Time now{std::chrono::hours(1)};
  TimedEngine engine;
  EventQueue queue;
  ServeLoop loop;
  RequestId next_id = 1;
  std::map<RequestId, Collected> told;

 private:
  static RuntimeOptions Checked(RuntimeOptions options) {
    options.scheduler.max_prefill_tokens = 32;
    options.scheduler.check_invariants = true;
    return options;
  }
};

}  // namespace minisgl::runtime
