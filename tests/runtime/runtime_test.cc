// The runtime over an engine without a model: threads, events, ends.
#include "minisgl/runtime/runtime.h"

#include <gtest/gtest.h>

#include <map>
#include <new>
#include <thread>

#include "sim/sim_engine.h"

namespace minisgl {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(20000);
constexpr int64_t kEndRate = 15;

EngineLimits Limits() {
  EngineLimits limits;
  limits.vocab_size = 50;
  limits.page_size = 4;
  limits.num_pages = 200;
  limits.max_running_requests = 8;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 40;
  return limits;
}

std::unique_ptr<Runtime> MakeRuntime(bool overlap) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.scheduler.check_invariants = true;
  options.overlap = overlap;
  return Runtime::Create(std::make_unique<sim::SimEngine>(Limits(), kEndRate), nullptr, options)
      .value();
}

Prompt MakePrompt(TokenId first, int64_t length, int64_t max_tokens) {
  Prompt prompt;
  for (int64_t i = 0; i < length; ++i)
    prompt.ids.push_back(static_cast<TokenId>(1 + (first + i) % 40));
  prompt.max_tokens = max_tokens;
  prompt.stop_token_ids = {0};
  return prompt;
}

struct Collected {
  std::vector<TokenId> ids;
  int num_done = 0;
  Event done;
};

std::map<uint64_t, Collected> CollectAll(EventQueue& queue, size_t count) {
  std::map<uint64_t, Collected> collected;
  size_t done = 0;
  while (done < count) {
    const auto event = queue.Pop(kPatience);
    if (!event) {
      ADD_FAILURE() << "no event in time";
      break;
    }
    Collected& entry = collected[event->tag];
    EXPECT_EQ(entry.num_done, 0) << "an event after the end";
    entry.ids.insert(entry.ids.end(), event->token_ids.begin(), event->token_ids.end());
    if (event->kind == Event::Kind::kDone) {
      ++done;
      ++entry.num_done;
      entry.done = *event;
    }
  }
  return collected;
}

TEST(RuntimeTest, EveryPromptGetsItsRightAnswerAndOneEnd) {
  for (bool overlap : {false, true}) {
    const auto runtime = MakeRuntime(overlap);
    EventQueue queue;
    std::vector<Prompt> prompts;
    for (int i = 0; i < 40; ++i) {
      prompts.push_back(MakePrompt(i % 7, 5 + i, 20));
      runtime->Submit(prompts.back(), &queue, static_cast<uint64_t>(i));
    }
    auto collected = CollectAll(queue, 40);
    for (size_t i = 0; i < 40; ++i) {
      const auto expected = sim::RightAnswer(prompts[i].ids, 20, true, 50, kEndRate);
      EXPECT_EQ(collected[i].ids, expected);
      EXPECT_EQ(collected[i].done.usage.completion_tokens, static_cast<int64_t>(expected.size()));
      EXPECT_EQ(collected[i].done.finish_reason,
                expected.back() == 0 ? FinishReason::kStop : FinishReason::kLength);
    }
    const RuntimeStats stats = runtime->Stats();
    EXPECT_EQ(stats.scheduler.finished, 40);
    EXPECT_EQ(stats.first_token_s.size(), 40u);
  }
}

// With one table row the next request can only be planned once the last one's step was collected:
// nothing is in flight then, and yet something waits.
TEST(RuntimeTest, OneRunningRequestAtATimeServesAQueue) {
  for (bool overlap : {false, true}) {
    EngineLimits limits = Limits();
    limits.max_running_requests = 1;
    RuntimeOptions options;
    options.scheduler.max_prefill_tokens = 32;
    options.overlap = overlap;
    const auto runtime =
        Runtime::Create(std::make_unique<sim::SimEngine>(limits, kEndRate), nullptr, options)
            .value();
    EventQueue queue;
    for (uint64_t i = 0; i < 20; ++i) runtime->Submit(MakePrompt(3, 20, 5), &queue, i);
    EXPECT_EQ(CollectAll(queue, 20).size(), 20u);
  }
}

TEST(RuntimeTest, ManyThreadsMaySubmitAndAbort) {
  const auto runtime = MakeRuntime(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&runtime, t] {
      EventQueue queue;
      for (int i = 0; i < 30; ++i) {
        const RequestId id =
            runtime->Submit(MakePrompt(t, 3 + i, 30), &queue, static_cast<uint64_t>(i));
        if (i % 3 == 0) runtime->Abort(id);
        if (i % 5 == 0) runtime->Stats();
      }
      const auto collected = CollectAll(queue, 30);
      EXPECT_EQ(collected.size(), 30u);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const RuntimeStats stats = runtime->Stats();
  EXPECT_EQ(stats.scheduler.finished + stats.scheduler.aborted, 120);
}

TEST(RuntimeTest, DestructionAnswersWhatIsLeft) {
  EventQueue queue;
  {
    const auto runtime = MakeRuntime(true);
    for (uint64_t i = 0; i < 20; ++i) runtime->Submit(MakePrompt(3, 20, 150), &queue, i);
  }
  const auto collected = CollectAll(queue, 20);
  EXPECT_EQ(collected.size(), 20u);
}

TEST(RuntimeTest, BadPromptsFailAloneAndAtOnce) {
  const auto runtime = MakeRuntime(true);
  EventQueue queue;
  runtime->Submit(MakePrompt(0, 0, 5), &queue, 0);
  Prompt outside = MakePrompt(0, 5, 5);
  outside.ids[2] = 50;
  runtime->Submit(outside, &queue, 1);
  runtime->Submit(MakePrompt(0, 200, 5), &queue, 2);
  runtime->Submit(MakePrompt(0, 199, 500), &queue, 3);
  runtime->Submit(MakePrompt(0, 10, 0), &queue, 4);
  auto collected = CollectAll(queue, 5);
  EXPECT_EQ(collected[0].done.error_code, "invalid_row");
  EXPECT_EQ(collected[1].done.error_code, "invalid_row");
  EXPECT_EQ(collected[2].done.error_code, "length_exceeded");
  EXPECT_EQ(collected[3].done.finish_reason,
            collected[3].ids[0] == 0 ? FinishReason::kStop : FinishReason::kLength);
  EXPECT_TRUE(collected[3].done.max_tokens_lowered);
  EXPECT_EQ(collected[3].ids.size(), 1u);
  EXPECT_EQ(collected[4].done.error_code, "invalid_row");
}

// An engine that breaks where nothing can be made good: memory runs out in the middle of a launch.
class BreakingEngine : public sim::SimEngine {
 public:
  BreakingEngine() : SimEngine(Limits(), kEndRate) {}
  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    if (++launches_ == 5) throw std::bad_alloc();
    SimEngine::Launch(std::move(plan));
  }

 private:
  int launches_ = 0;
};

TEST(RuntimeTest, WhenTheLoopBreaksEverybodyIsToldAndSoAreThoseWhoComeLater) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  const auto runtime =
      Runtime::Create(std::make_unique<BreakingEngine>(), nullptr, options).value();
  EventQueue queue;
  for (uint64_t i = 0; i < 20; ++i) {
    Prompt prompt = MakePrompt(static_cast<TokenId>(i), 20, 100);
    prompt.stop_token_ids.clear();  // none ends before the engine breaks
    runtime->Submit(std::move(prompt), &queue, i);
  }
  for (const auto& [tag, collected] : CollectAll(queue, 20)) {
    EXPECT_EQ(collected.done.error_code, "internal");
  }
  runtime->Submit(MakePrompt(1, 20, 100), &queue, 99);
  EXPECT_EQ(CollectAll(queue, 1)[99].done.error_code, "internal");
}

TEST(RuntimeTest, StepsThatTheEngineCannotTakeAreRefusedAtStart) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 33;  // 8 rows more than the 40 tokens of a step
  EXPECT_FALSE(
      Runtime::Create(std::make_unique<sim::SimEngine>(Limits(), kEndRate), nullptr, options).ok());
}

TEST(EventQueueTest, InterruptWakesAWaitingPopOnce) {
  EventQueue queue;
  queue.Interrupt();
  EXPECT_FALSE(queue.Pop(kPatience).has_value());
  EXPECT_FALSE(queue.Pop(std::chrono::milliseconds(1)).has_value());
  std::thread waker([&queue] { queue.Interrupt(); });
  EXPECT_FALSE(queue.Pop(kPatience).has_value());
  waker.join();
}

}  // namespace
}  // namespace minisgl
