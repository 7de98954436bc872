// Requests whose prompts have the same token ids and other pictures, or other adapters.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "sched/computing_index.h"
#include "sched/sched_fixture.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::RightAnswer;
using sim::SimDriver;

constexpr ContentHash kCat = {7, 1}, kDog = {7, 2};

EngineLimits MarkLimits(int32_t num_pages = 200) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = 8;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 40;
  return limits;
}

SchedulerOptions MarkOptions() {
  SchedulerOptions options;
  options.max_prefill_tokens = 32;
  options.step = StepPolicy::kMixed;
  options.admission = AdmissionPolicy::kOptimistic;
  return options;
}

// All requests have the same ids.
Request MakeMarked(RequestId id, std::vector<KeyMark> marks, int64_t max_tokens = 5) {
  Request request = MakeRequest(3, 42, max_tokens);
  request.id = request.sampling.seed = id;
  request.marks = std::move(marks);
  return request;
}

// Hashes of pages decide who waits for whom, and the counts of `run --estimate`.
TEST(MarksTest, ChainHashesAreThoseOfEarlierVersionsWithoutMarks) {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 128; ++i) tokens.push_back(7 + 3 * i);
  const auto first = [&](int32_t page_size) { return ChainHashes(tokens, page_size).front(); };
  EXPECT_EQ(first(1), 0x044c3cd7f43c661cull);
  EXPECT_EQ(first(4), 0xc81aba1d71c6996cull);
  EXPECT_EQ(first(16), 0x6545edbd6f4b8ebcull);
  EXPECT_EQ(first(64), 0x6220fca4703479daull);
  for (const int32_t page_size : {1, 4, 16, 64}) {
    EXPECT_EQ(ChainHashes(tokens, page_size).back(), 0x25976d4551881a24ull);
  }
}

TEST(MarksTest, AMarkChangesTheHashOfItsPageAndOfAllBehindIt) {
  const std::vector<TokenId> tokens(64, 5);
  const std::vector<uint64_t> plain = ChainHashes(tokens, 16);
  for (const int64_t place : {0, 15, 16, 17, 63}) {
    const std::vector<KeyMark> cat = {{place, kCat}}, dog = {{place, kDog}};
    const std::vector<uint64_t> cats = ChainHashes({tokens, cat}, 16);
    const std::vector<uint64_t> dogs = ChainHashes({tokens, dog}, 16);
    ASSERT_EQ(cats.size(), plain.size());
    for (size_t page = 0; page < plain.size(); ++page) {
      const bool is_before = static_cast<int64_t>(page) < place / 16;
      EXPECT_EQ(cats[page] == plain[page], is_before) << place;
      EXPECT_EQ(cats[page] == dogs[page], is_before) << place;
    }
  }
}

TEST(MarksTest, TheWordsOfAMarkAreNotThoseOfTokens) {
  const std::vector<TokenId> tokens(16, 1);
  const std::vector<KeyMark> at_zero = {{0, {1, 0}}}, at_one = {{1, {0, 1}}};
  EXPECT_NE(ChainHashes({tokens, at_zero}, 16), ChainHashes({tokens, at_one}, 16));
}

TEST(MarksTest, RequestsShareUpToTheFirstDifferentMark) {
  SimDriver driver(MarkLimits(), MarkOptions(), 1, kEndRate);
  const auto cached = [&](const Request& request) {
    driver.Submit(request);
    EXPECT_TRUE(driver.RunToEnd());
    ExpectRight(driver, request);
    return driver.answers()[request.id].cached_tokens;
  };
  EXPECT_EQ(cached(MakeMarked(1, {{10, kCat}, {30, kCat}})), 0);
  EXPECT_EQ(cached(MakeMarked(2, {{10, kCat}, {30, kCat}})), 40) << "the same pictures";
  EXPECT_EQ(cached(MakeMarked(3, {{10, kCat}, {30, kDog}})), 28) << "another second one";
  EXPECT_EQ(cached(MakeMarked(4, {{10, kCat}, {32, kCat}})), 28) << "it stands elsewhere";
  EXPECT_EQ(cached(MakeMarked(5, {{10, kDog}, {30, kCat}})), 8) << "another first one";
  EXPECT_EQ(cached(MakeMarked(6, {})), 8) << "ids alone";
  EXPECT_EQ(cached(MakeMarked(7, {})), 40);
  EXPECT_EQ(cached(MakeMarked(8, {{0, kCat}})), 0) << "an adapter";
  EXPECT_EQ(cached(MakeMarked(9, {{0, kCat}, {10, kCat}})), 8);
}

// Requests that come at once wait for one that computes the same pictures; others do not wait.
TEST(MarksTest, ARequestWaitsOnlyForAPrefixWithItsMarks) {
  SimDriver driver(MarkLimits(), MarkOptions(), 0, kEndRate);
  // Answers of one token, so that no page has any.
  const std::vector<Request> requests = {
      MakeMarked(1, {{0, kCat}}, 1), MakeMarked(2, {{0, kDog}}, 1), MakeMarked(3, {{0, kCat}}, 1),
      MakeMarked(4, {{0, kDog}}, 1)};
  for (const Request& request : requests) driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  for (const Request& request : requests) {
    ExpectRight(driver, request);
    EXPECT_EQ(driver.answers()[request.id].cached_tokens, request.id > 2 ? 40 : 0);
  }
  EXPECT_EQ(driver.scheduler().Stats().remapped_pages, 0) << "nothing is computed twice";
}

TEST(MarksTest, TheNextTurnGoesOnFromThePicturesOfTheOnesBefore) {
  SimDriver driver(MarkLimits(), MarkOptions(), 1, kEndRate);
  driver.scheduler().OpenSession(7);
  Request turn = MakeMarked(1, {{10, kCat}});
  turn.session = 7;
  driver.Submit(turn);
  ASSERT_TRUE(driver.RunToEnd());
  Request next = turn;
  next.id = next.sampling.seed = 2;
  const auto answer =
      RightAnswer({turn.prompt, turn.marks}, turn.max_tokens, false, kVocab, kEndRate);
  next.prompt.insert(next.prompt.end(), answer.begin(), answer.end());
  next.prompt.push_back(9);
  next.marks.push_back({std::ssize(next.prompt) - 1, kDog});
  driver.Submit(next);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, next);
  EXPECT_EQ(driver.answers()[2].cached_tokens, 44);
  Request forgetful = next;
  forgetful.id = forgetful.sampling.seed = 3;
  forgetful.marks.clear();
  driver.Submit(forgetful);
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, forgetful);
  EXPECT_EQ(driver.answers()[3].cached_tokens, 8) << "up to the picture that it lacks";
  driver.scheduler().CloseSession(7);
}

// A pool for two of them: each starts again from what is cached of it, and of nobody else.
TEST(MarksTest, PreemptedRequestsGoOnWithTheirOwnMarks) {
  SimDriver driver(MarkLimits(40), MarkOptions(), 1, kEndRate);
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 6; ++id) {
    requests.push_back(MakeMarked(id, {{20, {9, id}}}, 60));
    driver.Submit(requests.back());
  }
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_GT(driver.scheduler().Stats().preemptions, 0);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(MarksDeathTest, MarksOutsideThePromptAreRefused) {
  Scheduler scheduler(MarkLimits(), MarkOptions());
  EXPECT_DEATH(scheduler.Submit(MakeMarked(1, {{42, kCat}})), "marks of request 1");
  EXPECT_DEATH(scheduler.Submit(MakeMarked(1, {{5, kCat}, {4, kCat}})), "marks of request 1");
}

}  // namespace
}  // namespace minisgl::sched
