// Shared by the tests of the scheduler's policies and features: a vocabulary, requests whose
// prompts differ, and the check of an answer.
#pragma once

#include <gtest/gtest.h>

#include "sim/sim_driver.h"

namespace minisgl::sched {

inline constexpr int64_t kVocab = 80;
inline constexpr int64_t kEndRate = 0;  // answers run to their length

inline Request MakeRequest(RequestId id, int64_t length, int64_t max_tokens, int32_t priority = 0) {
  Request request;
  request.id = id;
  for (int64_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1 + (static_cast<int64_t>(id) * 7 + i) % 70));
  }
  request.max_tokens = max_tokens;
  request.priority = priority;
  return request;
}

// Checks that the request was answered once, wholly and correctly.
inline void ExpectRight(sim::SimDriver& driver, const Request& request) {
  EXPECT_EQ(driver.engine().violation(), "");
  EXPECT_EQ(driver.answers()[request.id].num_ends, 1);
  EXPECT_EQ(driver.answers()[request.id].tokens,
            sim::RightAnswer({request.prompt, request.marks}, request.max_tokens, false, kVocab,
                             kEndRate));
}

}  // namespace minisgl::sched
