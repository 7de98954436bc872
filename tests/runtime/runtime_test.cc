// The runtime over an engine without a model: threads, events, ends.
#include "minisgl/runtime/runtime.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <new>
#include <thread>

#include "minisgl/base/json.h"
#include "runtime/runtime_fixture.h"
#include "sim/sim_engine.h"

namespace minisgl::runtime {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(120000);
constexpr int64_t kEndRate = 15;

std::unique_ptr<Runtime> MakeRuntime(bool overlap) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.scheduler.check_invariants = true;
  options.overlap = overlap;
  return Runtime::Create(std::make_unique<sim::SimEngine>(SmallLimits(), kEndRate), nullptr,
                         options)
      .value();
}

std::map<uint64_t, Collected> CollectAll(EventQueue& queue, size_t count) {
  std::map<uint64_t, Collected> collected;
  size_t done = 0;
  while (done < count) {
    const auto event = queue.Pop(kPatience);
    if (!event) {
      ADD_FAILURE() << "no event in time";
      break;
    }
    collected[event->tag].Take(*event);
    done += event->kind == Event::Kind::kDone ? 1 : 0;
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
    int64_t num_tokens = 0;
    for (size_t i = 0; i < 40; ++i) {
      const auto expected = sim::RightAnswer(prompts[i].ids, 20, true, 50, kEndRate);
      num_tokens += static_cast<int64_t>(expected.size());
      EXPECT_EQ(collected[i].ids, expected);
      EXPECT_EQ(collected[i].done.usage.completion_tokens, static_cast<int64_t>(expected.size()));
      EXPECT_EQ(collected[i].done.finish_reason,
                expected.back() == 0 ? FinishReason::kStop : FinishReason::kLength);
    }
    const RuntimeStats stats = runtime->Stats();
    EXPECT_EQ(stats.scheduler.finished, 40);
    EXPECT_EQ(stats.waiting_s.count(), 40);
    EXPECT_EQ(stats.first_token_s.count(), 40);
    EXPECT_EQ(stats.between_tokens_s.count(), num_tokens - 40);
  }
}

// With one table row the next request can be planned only after the last one's step was collected:
// then nothing is in flight, although a request waits.
TEST(RuntimeTest, OneRunningRequestAtATimeServesAQueue) {
  for (bool overlap : {false, true}) {
    EngineLimits limits = SmallLimits();
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

TEST(RuntimeTest, ManyThreadsMayHoldSessionsAndSetDeadlines) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.scheduler.check_invariants = true;
  size_t trace_bytes = 0;
  options.trace_sink = [&trace_bytes](std::string_view piece) { trace_bytes += piece.size(); };
  auto runtime =
      Runtime::Create(std::make_unique<sim::SimEngine>(SmallLimits(), kEndRate), nullptr, options)
          .value();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&runtime, t] {
      EventQueue queue;
      for (int i = 0; i < 6; ++i) {
        const SessionId session = runtime->OpenSession();
        for (uint64_t turn = 0; turn < 4; ++turn) {
          Prompt prompt = MakePrompt(t, 10 + 10 * static_cast<int64_t>(turn), 10);
          prompt.session = session;
          if (turn == 2) prompt.timeout = std::chrono::microseconds(300);
          runtime->Submit(std::move(prompt), &queue, turn);
        }
        if (i % 2 == 0) runtime->CloseSession(session);
        EXPECT_EQ(CollectAll(queue, 4).size(), 4u);
        runtime->Stats();
        runtime->CloseSession(session);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(runtime->Stats().scheduler.submitted, 4 * 6 * 4);
  runtime.reset();
  EXPECT_GT(trace_bytes, 0u);
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

// The right log-probabilities of a prompt's tokens from `begin` on, as the engine makes them.
std::vector<std::pair<TokenId, float>> RightScores(const std::vector<TokenId>& ids, size_t begin) {
  std::vector<std::pair<TokenId, float>> scores;
  uint64_t prefix = 1;
  for (size_t at = 0; at < ids.size(); ++at) {
    prefix = sim::Extend(prefix, ids[at]);
    if (at >= begin) scores.emplace_back(ids[at], sim::ScoreOf(prefix));
  }
  return scores;
}

TEST(RuntimeTest, LogProbabilitiesOfAPromptComeWithItsEnd) {
  for (const bool overlap : {false, true}) {
    const auto runtime = MakeRuntime(overlap);
    EventQueue queue;
    std::vector<Prompt> prompts;
    for (int i = 0; i < 30; ++i) {
      prompts.push_back(MakePrompt(i % 4, 6 + 3 * i, i % 2 == 0 ? 0 : 7));
      prompts.back().sampling.num_prompt_logprobs = 0;
      prompts.back().sampling.prompt_logprobs_begin = 1 + i % 5;
      runtime->Submit(prompts.back(), &queue, static_cast<uint64_t>(i));
    }
    auto collected = CollectAll(queue, 30);
    int64_t num_scored = 0;
    for (size_t i = 0; i < 30; ++i) {
      std::vector<std::pair<TokenId, float>> scores;
      for (const TokenLogprobs& one : collected[i].done.prompt_logprobs) {
        scores.emplace_back(one.id, one.logprob);
      }
      EXPECT_EQ(scores, RightScores(prompts[i].ids, 1 + i % 5)) << i;
      num_scored += std::ssize(scores);
      EXPECT_EQ(collected[i].ids.empty(), prompts[i].max_tokens == 0);
      if (prompts[i].max_tokens == 0) {
        EXPECT_EQ(collected[i].done.finish_reason, FinishReason::kLength);
      }
    }
    EXPECT_EQ(runtime->Stats().scheduler.scored_tokens, num_scored);
  }
}

TEST(RuntimeTest, APromptThatIsOnlyScoredMayFillTheContext) {
  const auto runtime = MakeRuntime(true);
  EventQueue queue;
  const auto submit = [&](int length, int32_t begin, uint64_t tag) {
    Prompt prompt = MakePrompt(0, length, 0);
    prompt.sampling.num_prompt_logprobs = 0;
    prompt.sampling.prompt_logprobs_begin = begin;
    runtime->Submit(std::move(prompt), &queue, tag);
  };
  submit(200, 1, 0);
  submit(201, 1, 1);
  submit(20, 20, 2);  // of no token
  submit(1, 1, 3);
  submit(20, 0, 4);
  auto collected = CollectAll(queue, 5);
  EXPECT_EQ(collected[0].done.prompt_logprobs.size(), 199u);
  EXPECT_EQ(collected[1].done.error_code, "length_exceeded");
  EXPECT_EQ(collected[1].done.error_message, "the prompt has 201 tokens; the context holds 200");
  for (const uint64_t tag : {2, 3}) {
    EXPECT_EQ(collected[tag].done.finish_reason, FinishReason::kLength);
    EXPECT_TRUE(collected[tag].done.prompt_logprobs.empty());
  }
  EXPECT_EQ(collected[4].done.error_code, "invalid_row");
  EXPECT_EQ(runtime->Stats().scheduler.submitted, 1);
}

// An engine that fails without recovery: memory runs out in the middle of a launch.
class BreakingEngine : public sim::SimEngine {
 public:
  BreakingEngine() : SimEngine(SmallLimits(), kEndRate) {}
  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    if (++launches_ == 5) throw std::bad_alloc();
    SimEngine::Launch(std::move(plan));
  }

 private:
  int launches_ = 0;
};

TEST(RuntimeTest, WhenTheLoopFailsAllRequestsFailAndSoDoLaterOnes) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  const auto runtime =
      Runtime::Create(std::make_unique<BreakingEngine>(), nullptr, options).value();
  EventQueue queue;
  for (uint64_t i = 0; i < 20; ++i) {
    Prompt prompt = MakePrompt(static_cast<TokenId>(i), 20, 100);
    prompt.stop_token_ids.clear();  // no answer ends before the engine fails
    runtime->Submit(std::move(prompt), &queue, i);
  }
  for (const auto& [tag, collected] : CollectAll(queue, 20)) {
    EXPECT_EQ(collected.done.error_code, "out_of_memory");
  }
  runtime->Submit(MakePrompt(1, 20, 100), &queue, 99);
  EXPECT_EQ(CollectAll(queue, 1)[99].done.error_code, "out_of_memory");
}

// Steps that are in flight when the engine is destroyed read what their requests own.
class LingeringEngine : public BreakingEngine {
 public:
  explicit LingeringEngine(std::vector<uint64_t>* seeds_read) : seeds_read_(seeds_read) {}
  ~LingeringEngine() override {
    for (const SamplingParams* sampling : last_->sampling) seeds_read_->push_back(sampling->seed);
  }
  void Launch(std::shared_ptr<const BatchPlan> plan) override {
    last_ = plan;
    BreakingEngine::Launch(std::move(plan));
  }

 private:
  std::shared_ptr<const BatchPlan> last_;
  std::vector<uint64_t>* seeds_read_;
};

TEST(RuntimeTest, TheEngineGoesBeforeTheRequestsThatItsStepsRead) {
  std::vector<uint64_t> seeds_read;
  EventQueue queue;
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  auto runtime =
      Runtime::Create(std::make_unique<LingeringEngine>(&seeds_read), nullptr, options).value();
  Prompt prompt = MakePrompt(1, 20, 100);
  prompt.stop_token_ids.clear();
  prompt.sampling.seed = 77;
  runtime->Submit(std::move(prompt), &queue);
  EXPECT_EQ(CollectAll(queue, 1)[0].done.error_code, "out_of_memory");
  runtime.reset();
  EXPECT_EQ(seeds_read, std::vector<uint64_t>{77});
}

TEST(RuntimeTest, StepsThatTheEngineCannotTakeAreRefusedAtStart) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 33;  // 8 rows more than the 40 tokens of a step
  EXPECT_FALSE(
      Runtime::Create(std::make_unique<sim::SimEngine>(SmallLimits(), kEndRate), nullptr, options)
          .ok());
}

TEST(RuntimeTest, DraftsNeedADrafterAndAnEngineThatVerifiesThem) {
  for (const bool has_drafter : {false, true}) {
    for (const int32_t step_drafts : {0, 4}) {
      EngineLimits limits = SmallLimits();
      limits.max_step_drafts = step_drafts;
      RuntimeOptions options;
      options.scheduler.max_prefill_tokens = 32;
      options.scheduler.max_drafts = 2;
      if (has_drafter) options.scheduler.drafter = MakeNgramDrafter();
      const auto runtime =
          Runtime::Create(std::make_unique<sim::SimEngine>(limits, kEndRate), nullptr, options);
      EXPECT_EQ(runtime.ok(), has_drafter && step_drafts > 0);
      EXPECT_EQ(runtime.status().code(), runtime.ok() ? StatusCode::kOk : StatusCode::kInternal);
    }
  }
}

TEST(RuntimeTest, WhatIsSubmittedTooLateTimesOut) {
  const auto runtime = MakeRuntime(true);
  EventQueue queue;
  std::vector<Prompt> prompts(30, MakePrompt(1, 20, 150));
  for (Prompt& prompt : prompts) prompt.timeout = std::chrono::nanoseconds(1);
  runtime->SubmitAll(prompts, &queue, std::vector<uint64_t>(30, 0));
  for (int i = 0; i < 30; ++i) {
    const auto event = queue.Pop(kPatience);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->finish_reason, FinishReason::kTimeout);
  }
}

TEST(RuntimeTest, AsksASourceAgainUntilItKnows) {
  SlowSource source(20);
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.scheduler.kv_source = &source;
  const auto runtime =
      Runtime::Create(std::make_unique<sim::SimEngine>(SmallLimits(), kEndRate), nullptr, options)
          .value();
  EventQueue queue;
  const Prompt prompt = MakePrompt(1, 20, 10);
  runtime->Submit(prompt, &queue, 0);
  EXPECT_EQ(CollectAll(queue, 1)[0].ids, sim::RightAnswer(prompt.ids, 10, true, 50, kEndRate));
}

TEST(RuntimeTest, ADeadlineWakesARuntimeThatWaitsForItsSource) {
  SlowSource source(std::numeric_limits<int64_t>::max());
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.scheduler.kv_source = &source;
  const auto runtime =
      Runtime::Create(std::make_unique<sim::SimEngine>(SmallLimits(), kEndRate), nullptr, options)
          .value();
  EventQueue queue;
  Prompt prompt = MakePrompt(1, 20, 10);
  prompt.timeout = std::chrono::milliseconds(20);
  runtime->Submit(prompt, &queue, 0);
  prompt.timeout.reset();
  const RequestId other = runtime->Submit(prompt, &queue, 1);
  EXPECT_EQ(CollectAll(queue, 1)[0].done.finish_reason, FinishReason::kTimeout);
  runtime->Abort(other);
  EXPECT_EQ(CollectAll(queue, 1)[1].done.finish_reason, FinishReason::kAborted);
}

TEST(RuntimeTest, TurnsOfASessionComeOneAfterAnother) {
  const auto runtime = MakeRuntime(true);
  EventQueue queue;
  const SessionId session = runtime->OpenSession();
  EXPECT_NE(session, 0u);
  EXPECT_NE(runtime->OpenSession(), session);
  Prompt turn = MakePrompt(1, 20, 30);
  turn.session = session;
  for (uint64_t i = 0; i < 3; ++i) runtime->Submit(turn, &queue, i);
  uint64_t next = 0;
  while (next < 3) {
    const auto event = queue.Pop(kPatience);
    ASSERT_TRUE(event.has_value());
    EXPECT_EQ(event->tag, next) << "a turn did not wait for the turn before";
    next += event->kind == Event::Kind::kDone ? 1 : 0;
  }
  EXPECT_EQ(runtime->Stats().scheduler.sessions, 2);
  runtime->CloseSession(session);
  runtime->Submit(turn, &queue, 9);
  EXPECT_EQ(CollectAll(queue, 1)[9].done.error_code, "invalid_row");
}

TEST(RuntimeTest, TheTraceIsWholeWhenTheRuntimeIsGone) {
  std::string text;
  EventQueue queue;
  {
    RuntimeOptions options;
    options.scheduler.max_prefill_tokens = 32;
    options.trace_sink = [&text](std::string_view piece) { text += piece; };
    const auto runtime =
        Runtime::Create(std::make_unique<sim::SimEngine>(SmallLimits(), kEndRate), nullptr, options)
            .value();
    for (uint64_t i = 0; i < 20; ++i) runtime->Submit(MakePrompt(3, 20, 30), &queue, i);
    CollectAll(queue, 10);
  }
  const auto json = ParseJson(text);
  ASSERT_TRUE(json.ok()) << json.status().message();
  int num_ended = 0;
  for (const Json& event : json->Find("traceEvents")->as_array()) {
    num_ended += event.Find("name")->as_string() == "ended" ? 1 : 0;
  }
  EXPECT_EQ(num_ended, 20);
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
}  // namespace minisgl::runtime
