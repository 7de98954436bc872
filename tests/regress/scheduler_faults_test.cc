// Five faults that a simulation found in the scheduler whose design this program follows, one case
// each. The engine remembers which prefix wrote each slot, and every invariant is checked after
// every step.
#include <gtest/gtest.h>

#include "sim/sim_driver.h"

namespace minisgl {
namespace {

using sim::RightAnswer;
using sim::SimDriver;

constexpr int64_t kVocab = 60;
constexpr int64_t kEndRate = 12;

EngineLimits Limits(int32_t page_size, int32_t num_pages) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = page_size;
  limits.num_pages = num_pages;
  limits.max_running_requests = 8;
  limits.max_seq_len = 256;
  limits.max_step_tokens = 72;
  return limits;
}

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_prefill_tokens = 64;
  return options;
}

Request MakeRequest(RequestId id, std::vector<TokenId> prompt, int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.stop_ids = {0};
  return request;
}

std::vector<TokenId> Count(TokenId from, int64_t count) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(1 + (from + i) % 50));
  return tokens;
}

void ExpectRight(SimDriver& driver, const Request& request) {
  ASSERT_EQ(driver.engine().violation(), "");
  EXPECT_EQ(driver.answers()[request.id].tokens,
            RightAnswer(request.prompt, request.max_tokens, true, kVocab, kEndRate));
}

// Two requests computed the same pages. The cache kept one copy and freed the other, but the second
// request's page table still named the freed pages, which a third request then overwrote.
TEST(SchedulerFaultsTest, ARequestNeverMapsPagesThatWereFreedAsDuplicates) {
  for (int32_t page_size : {1, 4, 16}) {
    for (int depth : {0, 1}) {
      // Answers of 12 tokens and more, so that identical prompts also compute identical answer
      // pages.
      SimDriver driver(Limits(page_size, 800 / page_size), Options(), depth, 1000);
      std::vector<Request> requests;
      for (RequestId id = 1; id <= 12; ++id) {
        requests.push_back(MakeRequest(id, Count(static_cast<TokenId>(id % 3), 20), 40));
        driver.Submit(requests.back());
      }
      ASSERT_TRUE(driver.RunToEnd());
      for (const Request& request : requests) {
        ASSERT_EQ(driver.engine().violation(), "");
        EXPECT_EQ(driver.answers()[request.id].tokens,
                  RightAnswer(request.prompt, request.max_tokens, true, kVocab, 1000));
      }
      EXPECT_GT(driver.scheduler().Stats().remapped_pages, 0) << "the case never arose";
    }
  }
}

// An abort freed pages at once while a launched step still wrote to them. The step's result then
// freed or cached the same request again.
TEST(SchedulerFaultsTest, AbortAfterLaunchReleasesOnceAndAfterTheFence) {
  for (int32_t page_size : {1, 4, 16}) {
    for (int stage = 0; stage < 30; ++stage) {
      SimDriver driver(Limits(page_size, 400 / page_size), Options(), 1, kEndRate);
      std::vector<Request> others;
      driver.Submit(MakeRequest(1, Count(3, 30), 20));
      for (RequestId id = 2; id <= 5; ++id) {
        others.push_back(MakeRequest(id, Count(static_cast<TokenId>(id), 25), 20));
        driver.Submit(others.back());
      }
      for (int step = 0; step < stage; ++step) driver.Step();
      driver.scheduler().Abort(1);  // with a step in flight from stage 1 on
      const Request newcomer = MakeRequest(9, Count(40, 30), 20);
      driver.Submit(newcomer);  // takes the pages that become free
      others.push_back(newcomer);
      ASSERT_TRUE(driver.RunToEnd());
      for (const Request& request : others) ExpectRight(driver, request);
      EXPECT_EQ(driver.answers()[1].num_ends, 1);
      EXPECT_EQ(driver.scheduler().ResetPrefixCache(), 0);
      EXPECT_EQ(driver.scheduler().Stats().pages_free, 400 / page_size);
    }
  }
}

// Admission reserved tokens, but allocation took whole pages: a pool of few large pages ran out in
// the middle of answers.
TEST(SchedulerFaultsTest, ReservationCountsWholePages) {
  for (int depth : {0, 1}) {
    SimDriver driver(Limits(16, 4), Options(), depth, kEndRate);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 30; ++id) {
      // 1 to 4 pages each, most with a last page of few tokens.
      requests.push_back(MakeRequest(id, Count(static_cast<TokenId>(id), 1 + id % 40),
                                     1 + static_cast<int64_t>(id % 18)));
      driver.Submit(requests.back());
    }
    ASSERT_TRUE(driver.RunToEnd());
    for (const Request& request : requests) ExpectRight(driver, request);
  }
}

// A prompt too long for the model was dropped with a line in a log, and its caller waited forever.
TEST(SchedulerFaultsTest, APromptThatCannotFitIsAnswered) {
  SimDriver driver(Limits(16, 4), Options(), 1, kEndRate);
  driver.Submit(MakeRequest(1, Count(1, 300), 4));
  driver.Submit(MakeRequest(2, Count(1, 80), 4));
  const Request fits = MakeRequest(3, Count(1, 30), 4);
  driver.Submit(fits);
  ASSERT_TRUE(driver.RunToEnd());
  for (RequestId id : {1, 2}) {
    EXPECT_EQ(driver.answers()[id].num_ends, 1);
    EXPECT_EQ(driver.answers()[id].error_code, "length_exceeded");
  }
  ExpectRight(driver, fits);
}

// With overlap, an answer that reached max_tokens was reported as finished one token early, because
// the check ran after the next step had been launched.
TEST(SchedulerFaultsTest, TheEndComesWithTheLastTokenAndNotBefore) {
  for (int depth : {0, 1}) {
    for (int64_t max_tokens : {1, 2, 3, 7}) {
      SimDriver driver(Limits(4, 64), Options(), depth, 1000);
      for (RequestId id = 1; id <= 4; ++id) {
        driver.Submit(MakeRequest(id, Count(static_cast<TokenId>(id), 9), max_tokens));
      }
      ASSERT_TRUE(driver.RunToEnd());
      for (RequestId id = 1; id <= 4; ++id) {
        EXPECT_EQ(driver.answers()[id].tokens.size(), static_cast<size_t>(max_tokens));
        EXPECT_FALSE(driver.answers()[id].token_after_end);
        EXPECT_EQ(driver.answers()[id].num_ends, 1);
      }
    }
  }
}

}  // namespace
}  // namespace minisgl
