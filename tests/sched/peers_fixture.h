// Shared by the tests named peers_*: small limits, requests that can be distinguished in a plan,
// and steps launched and collected one at a time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "sim/sim_driver.h"

namespace minisgl::peers {

inline constexpr int64_t kVocab = 80;
inline constexpr int64_t kEndRate = 0;  // answers run to their length

inline EngineLimits Limits(int32_t num_pages, int32_t max_running = 8, int32_t page_size = 4) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = page_size;
  limits.num_pages = num_pages;
  limits.max_running_requests = max_running;
  limits.max_seq_len = 400;
  limits.max_step_tokens = 200 + max_running;
  limits.max_step_drafts = 32;
  return limits;
}

inline SchedulerOptions Options(int32_t max_prefill_tokens = 200) {
  SchedulerOptions options;
  options.max_prefill_tokens = max_prefill_tokens;
  options.step = StepPolicy::kMixed;
  options.record_notes = true;
  return options;
}

inline SchedulerOptions Optimistic(QueuePolicy queue) {
  SchedulerOptions options = Options();
  options.admission = AdmissionPolicy::kOptimistic;
  options.queue = queue;
  return options;
}

// Prompts of different ids differ in their first token. Requests of one test have prompts of
// different lengths, by which a plan's rows are distinguished.
inline Request MakeRequest(RequestId id, int64_t length, int64_t max_tokens, int32_t priority = 0) {
  Request request;
  request.id = id;
  request.prompt.push_back(static_cast<TokenId>(1 + id % 79));
  for (TokenId i = 1; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(1 + sim::Extend(id, i) % 79));
  }
  request.max_tokens = max_tokens;
  request.priority = priority;
  return request;
}

inline std::vector<TokenId> AnswerOf(const Request& request) {
  return sim::RightAnswer(request.prompt, request.max_tokens, false, kVocab, kEndRate);
}

inline void ExpectRight(sim::SimDriver& driver, const Request& request) {
  EXPECT_EQ(driver.engine().violation(), "");
  EXPECT_EQ(driver.answers()[request.id].num_ends, 1);
  EXPECT_EQ(driver.answers()[request.id].tokens, AnswerOf(request));
}

// Launches the next step. Returns null if nothing can run.
inline std::shared_ptr<const BatchPlan> Launch(sim::SimDriver& driver) {
  auto plan = driver.scheduler().Next();
  if (plan != nullptr) driver.engine().Launch(plan);
  return plan;
}

// Returns the row of a request in a plan, -1 if it has none.
inline int RowOf(const BatchPlan& plan, const Request& request) {
  const auto length = static_cast<int32_t>(request.prompt.size());
  const auto found = std::find(plan.prompt_len.begin(), plan.prompt_len.end(), length);
  return found == plan.prompt_len.end() ? -1 : static_cast<int>(found - plan.prompt_len.begin());
}

// Returns the number of tokens of a request that a plan computes.
inline int64_t TokensOf(const BatchPlan& plan, const Request& request) {
  const int row = RowOf(plan, request);
  return row < 0 ? 0 : plan.extend_len(row);
}

// Returns the requests with a note of this kind since the last call, in order.
inline std::vector<RequestId> Noted(sim::SimDriver& driver, SchedNote::Kind kind) {
  std::vector<RequestId> ids;
  for (const SchedNote& note : driver.scheduler().TakeNotes()) {
    if (note.kind == kind) ids.push_back(note.id);
  }
  return ids;
}

// Runs all requests to their end. Returns those admitted, in order.
inline std::vector<RequestId> OrderOfAdmissions(sim::SimDriver& driver) {
  EXPECT_TRUE(driver.RunToEnd());
  return Noted(driver, SchedNote::Kind::kAdmitted);
}

}  // namespace minisgl::peers
