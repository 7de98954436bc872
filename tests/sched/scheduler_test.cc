// The scheduler over an engine that knows every right answer: directed cases, then random ones.
#include "minisgl/sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "sim/sim_driver.h"
#include "slow.h"

namespace minisgl::sched {
namespace {

using sim::Answer;
using sim::RightAnswer;
using sim::SimDriver;

constexpr int64_t kSmallVocab = 97;
constexpr int64_t kSmallEndRate = 20;

EngineLimits SmallLimits(int32_t page_size = 4, int32_t num_pages = 64, int32_t max_running = 8) {
  EngineLimits limits;
  limits.vocab_size = kSmallVocab;
  limits.page_size = page_size;
  limits.num_pages = num_pages;
  limits.max_running_requests = max_running;
  limits.max_seq_len = 128;
  limits.max_step_tokens = 64 + max_running;
  return limits;
}

SchedulerOptions SmallOptions(int32_t max_prefill = 64, CacheKind cache = CacheKind::kRadix) {
  SchedulerOptions options;
  options.max_prefill_tokens = max_prefill;
  options.cache = cache;
  return options;
}

std::vector<TokenId> Tokens(int64_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i)
    tokens.push_back(static_cast<TokenId>(1 + random() % (kSmallVocab - 1)));
  return tokens;
}

Request RequestOf(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens,
                  bool stops = true) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  if (stops) request.stop_ids = {0};
  return request;
}

void ExpectAnswer(SimDriver& driver, const Request& request) {
  const Answer& answer = driver.answers()[request.id];
  EXPECT_EQ(driver.engine().violation(), "");
  EXPECT_EQ(answer.num_ends, 1);
  EXPECT_FALSE(answer.token_after_end);
  EXPECT_EQ(answer.tokens, RightAnswer(request.prompt, request.max_tokens,
                                       !request.stop_ids.empty(), kSmallVocab, kSmallEndRate));
}

TEST(SchedulerTest, OnePromptGetsItsRightAnswerAtEveryPipelineDepth) {
  for (int depth : {0, 1}) {
    SimDriver driver(SmallLimits(), SmallOptions(), depth, kSmallEndRate);
    const Request request = RequestOf(1, Tokens(10, 1), 30, false);
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectAnswer(driver, request);
    EXPECT_EQ(driver.answers()[1].reason, EndReason::kLength);
  }
}

TEST(SchedulerTest, LengthEndsWithoutASurplusStep) {
  SimDriver driver(SmallLimits(), SmallOptions(), 1, kSmallEndRate);
  driver.Submit(RequestOf(1, Tokens(10, 1), 5, false));
  ASSERT_TRUE(driver.RunToEnd());
  // 10 prompt tokens and 4 answer tokens have KV: the fifth is never an input.
  EXPECT_EQ(driver.engine().num_tokens(), 14);
}

TEST(SchedulerTest, ALongPromptIsChunkedWithinTheBudget) {
  SimDriver driver(SmallLimits(), SmallOptions(8), 1, kSmallEndRate);
  const Request request = RequestOf(1, Tokens(61, 2), 4);
  driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectAnswer(driver, request);
  EXPECT_EQ(driver.scheduler().Stats().prefill_steps, 8);
}

TEST(SchedulerTest, PromptsWithOneStemThatArriveTogetherComputeItOnce) {
  for (int depth : {0, 1}) {
    SimDriver driver(SmallLimits(4, 400, 60), SmallOptions(), depth, kSmallEndRate);
    const std::vector<TokenId> stem = Tokens(40, 3);
    std::vector<Request> requests;
    for (int i = 0; i < 20; ++i) {
      std::vector<TokenId> prompt = stem;
      prompt.push_back(static_cast<TokenId>(1 + i));
      prompt.push_back(7);
      requests.push_back(RequestOf(static_cast<RequestId>(i + 1), prompt, 4));
      driver.Submit(requests.back());
    }
    ASSERT_TRUE(driver.RunToEnd());
    for (const Request& request : requests) ExpectAnswer(driver, request);
    // The stem is computed once, and two tokens of each prompt.
    EXPECT_EQ(driver.scheduler().Stats().computed_tokens, 40 + 20 * 2);
  }
}

TEST(SchedulerTest, APromptSentAgainRecomputesAtLeastItsLastToken) {
  for (int32_t page_size : {1, 2, 4, 8, 16, 64}) {
    for (int64_t extra : {-1, 0, 1}) {
      const int64_t length = 64 + extra;
      SimDriver driver(SmallLimits(page_size, 512 / page_size), SmallOptions(), 1, kSmallEndRate);
      for (RequestId id = 1; id <= 4; ++id) {
        const Request request = RequestOf(id, Tokens(length, 4), 5);
        driver.Submit(request);
        ASSERT_TRUE(driver.RunToEnd());
        ExpectAnswer(driver, request);
        const int64_t expected = id == 1 ? 0 : (length - 1) / page_size * page_size;
        EXPECT_EQ(driver.answers()[id].cached_tokens, expected) << page_size << " " << length;
      }
    }
  }
}

TEST(SchedulerTest, TheNaiveCacheFindsNothingAndAnswersTheSame) {
  SimDriver driver(SmallLimits(), SmallOptions(64, CacheKind::kNaive), 1, kSmallEndRate);
  for (RequestId id = 1; id <= 3; ++id) {
    const Request request = RequestOf(id, Tokens(33, 5), 6);
    driver.Submit(request);
    ASSERT_TRUE(driver.RunToEnd());
    ExpectAnswer(driver, request);
    EXPECT_EQ(driver.answers()[id].cached_tokens, 0);
  }
}

TEST(SchedulerTest, WhatCanNeverFitIsAnsweredAtOnce) {
  SimDriver driver(SmallLimits(4, 8), SmallOptions(), 1, kSmallEndRate);
  driver.Submit(RequestOf(1, Tokens(100, 6), 5));  // 26 pages of 8
  driver.Submit(RequestOf(2, Tokens(200, 6), 5));  // past max_seq_len
  for (RequestId id : {1, 2}) {
    EXPECT_TRUE(driver.answers()[id].ended);
    EXPECT_EQ(driver.answers()[id].error_code, "length_exceeded");
  }
  EXPECT_TRUE(driver.scheduler().Idle());
}

TEST(SchedulerTest, AbortIsLegalAtEveryStageAndTwice) {
  for (int depth : {0, 1}) {
    for (int stage = 0; stage < 12; ++stage) {
      SimDriver driver(SmallLimits(4, 64), SmallOptions(8), depth, kSmallEndRate);
      const Request other = RequestOf(2, Tokens(20, 8), 10, false);
      driver.Submit(RequestOf(1, Tokens(20, 7), 6, false));
      driver.Submit(other);
      for (int step = 0; step < stage; ++step) driver.Step();
      driver.scheduler().Abort(1);
      driver.scheduler().Abort(1);
      driver.scheduler().Abort(99);
      ASSERT_TRUE(driver.RunToEnd());
      driver.scheduler().Abort(1);
      ExpectAnswer(driver, other);
      EXPECT_LE(driver.answers()[1].tokens.size(), 6u);
      EXPECT_EQ(driver.scheduler().ResetPrefixCache(), 0);
      EXPECT_EQ(driver.scheduler().Stats().pages_free, 64);
    }
  }
}

TEST(SchedulerTest, ANonFiniteRowFailsAloneAndItsPagesAreNotShared) {
  SimDriver driver(SmallLimits(), SmallOptions(), 1, kSmallEndRate);
  const Request good = RequestOf(2, Tokens(12, 10), 6);
  driver.Submit(RequestOf(1, Tokens(12, 9), 6));
  driver.Submit(good);
  driver.engine().NonFiniteInNextStep(0);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[1].error_code, "nan_logits");
  ExpectAnswer(driver, good);
  driver.Submit(RequestOf(3, Tokens(12, 9), 6));
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_EQ(driver.answers()[3].cached_tokens, 0);
}

TEST(SchedulerTest, AFailedStepFailsItsRowsAndTheRestGoesOn) {
  const std::pair<StatusCode, const char*> faults[] = {
      {StatusCode::kInternal, "device_fault"},
      {StatusCode::kUnavailable, "device_unavailable"},
      {StatusCode::kOutOfMemory, "out_of_memory"}};
  for (const auto& [status, error_code] : faults) {
    SimDriver driver(SmallLimits(4, 64, 1), SmallOptions(), 1, kSmallEndRate);
    driver.Submit(RequestOf(1, Tokens(12, 9), 6));
    const Request later = RequestOf(2, Tokens(12, 11), 6);
    driver.Submit(later);
    driver.engine().FailNextStep("the device went away", status);
    ASSERT_TRUE(driver.RunToEnd());
    EXPECT_EQ(driver.answers()[1].error_code, error_code);
    ExpectAnswer(driver, later);
  }
}

// Many requests of few stems, small pools, every page size, aborts: each answer is right, and the
// invariants hold after each step.
void RunRandom(uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](auto... values) {
    const std::vector<int32_t> list{values...};
    return list[random() % list.size()];
  };
  const int32_t page_size = pick(1, 2, 4, 8, 16, 64);
  const int32_t max_running = pick(1, 2, 3, 8, 20);
  const int32_t need = 100 / page_size + 1;
  EngineLimits limits = SmallLimits(page_size, need * pick(1, 2, 5), max_running);
  limits.max_in_flight = 3;
  const int32_t budget = pick(1, 7, 16, 64);
  const int depth = pick(0, 1, 2);
  const CacheKind cache = random() % 4 == 0 ? CacheKind::kNaive : CacheKind::kRadix;
  SimDriver driver(limits, SmallOptions(budget, cache), depth, kSmallEndRate);
  std::vector<Request> requests;
  std::vector<bool> aborted(41, false);
  for (RequestId id = 1; id <= 40; ++id) {
    std::vector<TokenId> prompt =
        Tokens(pick(0, page_size, 2 * page_size, 31, 40), 100 + pick(1, 2));
    const auto tail = Tokens(pick(1, 2, page_size, page_size + 1), static_cast<int>(random() % 5));
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    if (prompt.size() > 70) prompt.resize(70);
    requests.push_back(RequestOf(id, prompt, pick(1, 2, 8, 30), random() % 2 == 0));
    driver.Submit(requests.back());
    for (int step = pick(0, 0, 1, 4); step > 0; --step) driver.Step();
    if (random() % 8 == 0) {
      const RequestId victim = 1 + random() % id;
      aborted[victim] = true;
      driver.scheduler().Abort(victim);
    }
  }
  ASSERT_TRUE(driver.RunToEnd()) << driver.scheduler().DebugString();
  ASSERT_EQ(driver.engine().violation(), "");
  for (const Request& request : requests) {
    if (!aborted[request.id]) ExpectAnswer(driver, request);
    EXPECT_EQ(driver.answers()[request.id].num_ends, 1);
  }
  EXPECT_EQ(driver.scheduler().ResetPrefixCache(), 0);
  EXPECT_EQ(driver.scheduler().Stats().pages_free, limits.num_pages);
}

TEST(SchedulerTest, RandomWorkloadsGetTheirRightAnswers) {
  MarkSlow("many random workloads");
  const char* wanted = std::getenv("MINISGL_SEEDS");  // the long form
  const auto seeds =
      static_cast<uint32_t>(wanted != nullptr ? std::strtoul(wanted, nullptr, 10) : 40);
  for (uint32_t seed = 1; seed <= seeds; ++seed) {
    RunRandom(seed);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace minisgl::sched
