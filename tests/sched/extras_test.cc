// What rows bring beside token ids and want beside tokens: cut to the chunk of each step, and
// refused where an engine lacks it. The simulated engine checks each token of each plan.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "minisgl/plan/row_extras.h"
#include "sched/sched_fixture.h"
#include "sim/sim_drafter.h"
#include "sim/sim_driver.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

constexpr ContentHash kPicture = {7, 1};
constexpr RowExtraSet kAll =
    kReplacesEmbeddings | kGivesPositions | kHasAdapter | kWantsHidden | kWantsPooling;

EngineLimits ExtraLimits(RowExtraSet extras = kAll, int32_t num_pages = 200) {
  EngineLimits limits;
  limits.vocab_size = kVocab;
  limits.page_size = 4;
  limits.num_pages = num_pages;
  limits.max_running_requests = 8;
  limits.max_seq_len = 200;
  limits.max_step_tokens = 24;
  limits.extras = extras;
  return limits;
}

SchedulerOptions ExtraOptions() {
  SchedulerOptions options;
  options.max_prefill_tokens = 16;
  options.step = StepPolicy::kMixed;
  options.admission = AdmissionPolicy::kOptimistic;
  return options;
}

Request MakeExtra(RequestId id, RowExtras extras, std::vector<KeyMark> marks = {},
                  int64_t max_tokens = 6) {
  Request request = MakeRequest(3, 42, max_tokens);
  request.id = request.sampling.seed = id;
  request.marks = std::move(marks);
  request.extras = std::make_shared<const RowExtras>(std::move(extras));
  return request;
}

// An adapter, and a picture at tokens 10 to 29.
RowExtras EveryPart() {
  RowExtras extras;
  extras.embeddings = {{10, 20, 0, 5}};
  extras.adapter = 2;
  extras.hidden = HiddenWanted{14};
  for (int32_t place = 0; place < 42; ++place) {
    extras.positions.of_prompt.push_back({place, place / 2, place / 3});
  }
  extras.positions.shift = -10;
  return extras;
}
const std::vector<KeyMark> kEveryMark = {{0, {1, 2}}, {10, kPicture}};

// Chunks of 16 tokens: [0, 16), [16, 32), [32, 42).
TEST(ExtrasTest, ARunIsCutToTheChunksOfItsPrompt) {
  SimDriver driver(ExtraLimits(), ExtraOptions(), 0, kEndRate);
  const Request request = MakeExtra(1, EveryPart(), kEveryMark);
  driver.Submit(request);
  driver.Step();
  const PlanExtras first = driver.last_plan().extras;
  EXPECT_EQ(first.embeddings, (std::vector<ReplacedEmbeddings>{{10, 6, 0, 5}}));
  EXPECT_EQ(first.adapters, (std::vector<AdapterSpan>{{0, 16, 2}}));
  EXPECT_EQ(first.hidden, (std::vector<HiddenSpan>{{14, 2}}));
  EXPECT_EQ(first.positions, (std::vector<PositionSpan>{{0, 16, 0}}));
  driver.Step();
  const PlanExtras second = driver.last_plan().extras;
  EXPECT_EQ(second.embeddings, (std::vector<ReplacedEmbeddings>{{0, 14, 6, 5}}));
  EXPECT_EQ(second.hidden, (std::vector<HiddenSpan>{{0, 16}}));
  EXPECT_EQ(second.rope_positions.front(), (RopePosition{16, 8, 5}));
  driver.Step();
  EXPECT_TRUE(driver.last_plan().extras.embeddings.empty());
  driver.Step();  // the first step of the answer
  EXPECT_EQ(driver.last_plan().extras.rope_positions, (std::vector<RopePosition>{{32, 32, 32}}));
  ASSERT_TRUE(driver.RunToEnd());
  ExpectRight(driver, request);
}

TEST(ExtrasTest, TheyFollowTheirRowsThroughPreemptionsAndDrafts) {
  SchedulerOptions options = ExtraOptions();
  options.max_drafts = 4;
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 6; ++id) {
    RowExtras extras = EveryPart();
    extras.embeddings.front().source = id;
    extras.adapter = static_cast<AdapterSlot>(id);
    requests.push_back(MakeExtra(id, extras, {{0, {1, id}}, {10, {2, id}}}, 60));
  }
  options.drafter = std::make_shared<sim::SimDrafter>(
      sim::DrafterPlan{70, 10}, kVocab, kEndRate, [&requests](RequestId id) {
        return std::span<const KeyMark>(requests[static_cast<size_t>(id) - 1].marks);
      });
  EngineLimits limits = ExtraLimits(kAll, 40);
  limits.max_step_drafts = 8;
  SimDriver driver(limits, options, 1, kEndRate);
  for (const Request& request : requests) driver.Submit(request);
  ASSERT_TRUE(driver.RunToEnd());
  EXPECT_GT(driver.scheduler().Stats().preemptions, 0);
  EXPECT_GT(driver.scheduler().Stats().accepted_drafts, 0);
  for (const Request& request : requests) ExpectRight(driver, request);
}

TEST(ExtrasTest, APooledPromptEndsWithItsVector) {
  for (const Pooling pooling : {Pooling::kLast, Pooling::kFirst, Pooling::kMean, Pooling::kMax}) {
    SimDriver driver(ExtraLimits(), ExtraOptions(), 1, kEndRate);
    RowExtras extras;
    extras.pooling = pooling;
    for (const RequestId id : {1, 2}) {
      const Request request = MakeExtra(id, extras, {}, 0);
      driver.Submit(request);
      ASSERT_TRUE(driver.RunToEnd());
      EXPECT_EQ(driver.engine().violation(), "");
      const sim::Answer& answer = driver.answers()[id];
      EXPECT_EQ(answer.vector, sim::RightVector(request.prompt, pooling));
      EXPECT_TRUE(answer.ended && answer.reason == EndReason::kLength && answer.tokens.empty());
      EXPECT_FALSE(answer.token_after_end);
      // The vector of the last token alone needs no other.
      EXPECT_EQ(answer.cached_tokens, id == 2 && pooling == Pooling::kLast ? 40 : 0);
    }
  }
}

// What of a prompt does not count, and what is of its second text, follows the prompt's chunks.
TEST(ExtrasTest, APooledPromptIsCutWithItsParts) {
  SimDriver driver(ExtraLimits(), ExtraOptions(), 0, kEndRate);
  RowExtras extras;
  extras.pooling = Pooling::kMean;
  extras.pooled_from = 13;
  extras.second_text = 30;
  driver.Submit(MakeExtra(1, extras, {}, 0));
  int64_t place = 0, num_chunks = 0;
  while (driver.Step()) {
    for (const PoolingSpan& span : driver.last_plan().extras.pooling) {
      for (int64_t i = 0; i < span.count; ++i, ++place) {
        EXPECT_EQ(i < span.num_skipped, place < 13) << place;
        EXPECT_EQ(i >= span.count - span.num_second, place >= 30) << place;
      }
      ++num_chunks;
    }
  }
  EXPECT_EQ(place, 42);
  EXPECT_GT(num_chunks, 1);
  extras.pooled_from = 42;
  EXPECT_NE(CheckExtras(extras, 42, {}).message(), "") << "nothing is left";
  extras.pooled_from = 0;
  extras.pooling = Pooling::kLast;
  EXPECT_NE(CheckExtras(extras, 42, {}).message(), "") << "a second text";
}

// If tokens attend to later ones, each prompt is one row of one plan, and shares nothing, also with
// one that begins alike or was preempted.
TEST(ExtrasTest, PromptsThatAttendBothWaysAreComputedWhole) {
  for (const int32_t num_pages : {200, 12}) {
    EngineLimits limits = ExtraLimits(kWantsPooling, num_pages);
    limits.attends_both_ways = true;
    SimDriver driver(limits, ExtraOptions(), 0, kEndRate);
    std::vector<Request> requests;
    for (RequestId id = 1; id <= 9; ++id) {
      RowExtras extras;
      extras.pooling = id % 2 == 0 ? Pooling::kLast : Pooling::kMean;
      Request request = MakeRequest(3, id == 5 ? 17 : 3 + static_cast<int64_t>(id) % 3 * 6, 0);
      request.id = request.sampling.seed = id;
      request.extras = std::make_shared<const RowExtras>(std::move(extras));
      driver.Submit(request);
      requests.push_back(request);
    }
    while (driver.Step()) {
      const BatchPlan& plan = driver.last_plan();
      for (int32_t row = 0; row < plan.num_rows(); ++row) {
        EXPECT_EQ(plan.kv_len[row], plan.row_begin[row + 1] - plan.row_begin[row]);
      }
    }
    EXPECT_EQ(driver.engine().violation(), "");
    for (const Request& request : requests) {
      const sim::Answer& answer = driver.answers()[request.id];
      if (request.id == 5) {  // longer than a step's prompts
        EXPECT_EQ(answer.error_code, "length_exceeded");
        continue;
      }
      EXPECT_EQ(answer.vector, sim::RightVector(request.prompt, *request.extras->pooling));
      EXPECT_EQ(answer.cached_tokens, 0);
    }
  }
}

TEST(ExtrasTest, WhatAnEngineLacksIsRefusedByName) {
  const std::pair<RowExtraSet, const char*> parts[] = {
      {kReplacesEmbeddings, "replaced embeddings"},
      {kGivesPositions, "positions of its own"},
      {kHasAdapter, "an adapter"},
      {kWantsHidden, "hidden states for a drafter"},
  };
  for (const auto& [part, name] : parts) {
    SimDriver driver(ExtraLimits(static_cast<RowExtraSet>(kAll & ~part)), ExtraOptions(), 1,
                     kEndRate);
    driver.Submit(MakeExtra(1, EveryPart(), kEveryMark));
    EXPECT_EQ(driver.answers()[1].error_code, "invalid_row") << name;
    EXPECT_TRUE(driver.scheduler().Idle());
  }
}

TEST(ExtrasTest, ExtrasOutOfRangeOrWithoutTheirMarksAreNamed) {
  const auto fault = [](const RowExtras& extras, const std::vector<KeyMark>& marks) {
    return CheckExtras(extras, 42, marks).message();
  };
  EXPECT_EQ(fault(EveryPart(), kEveryMark), "");
  EXPECT_NE(fault(EveryPart(), {{10, kPicture}}), "") << "the adapter has no mark";
  EXPECT_NE(fault(EveryPart(), {{0, {1, 2}}}), "") << "the picture has no mark";
  RowExtras extras;
  extras.embeddings = {{30, 13, 0, 5}};
  EXPECT_NE(fault(extras, {{30, kPicture}}), "") << "past the end";
  extras.embeddings = {{20, 5, 0, 5}, {24, 5, 5, 5}};
  EXPECT_NE(fault(extras, {{20, kPicture}}), "") << "twice";
  extras.embeddings = {{20, 5, 0, 5}, {26, 5, 5, 5}};
  EXPECT_EQ(fault(extras, {{20, kPicture}}), "") << "one picture in two runs";
  extras = {};
  extras.positions.of_prompt.resize(41);
  EXPECT_NE(fault(extras, kEveryMark), "");
  extras.positions.of_prompt.assign(42, {0, 0, 0});
  EXPECT_NE(fault(extras, {}), "") << "positions of a picture that is not there";
}

TEST(ExtrasTest, SpansOfAPlanStayWithinTheirRows) {
  const std::vector<int32_t> row_begin = {0, 4, 5, 9};
  const auto fault = [&](const auto& set) {
    PlanExtras extras;
    set(&extras);
    return PlanExtrasFault(extras, row_begin);
  };
  EXPECT_EQ(fault([](PlanExtras* extras) {
              extras->embeddings = {{1, 3, 0, 1}, {5, 1, 0, 1}, {7, 2, 0, 1}};
              extras->adapters = {{0, 4, 1}, {4, 1, 0}};
              extras->hidden = {{2, 2}, {8, 1}};
              extras->pooling = {{5, 4, Pooling::kMean, true, false}};
              extras->positions = {{5, 4, 0}};
              extras->rope_positions.resize(4);
            }),
            "");
  EXPECT_NE(fault([](PlanExtras* extras) { extras->embeddings = {{3, 2, 0, 1}}; }), "");
  EXPECT_NE(fault([](PlanExtras* extras) { extras->embeddings = {{8, 2, 0, 1}}; }), "");
  EXPECT_NE(fault([](PlanExtras* extras) { extras->embeddings = {{2, 0, 0, 1}}; }), "");
  EXPECT_NE(fault([](PlanExtras* extras) {
              extras->embeddings = {{5, 2, 0, 1}, {6, 1, 0, 1}};
            }),
            "");
  EXPECT_NE(fault([](PlanExtras* extras) { extras->adapters = {{0, 3, 1}}; }), "");
  EXPECT_NE(fault([](PlanExtras* extras) { extras->adapters = {{0, 4, -1}}; }), "");
  EXPECT_NE(fault([](PlanExtras* extras) { extras->hidden = {{0, 1}, {2, 1}}; }), "");
  EXPECT_NE(fault([](PlanExtras* extras) {
              extras->pooling = {{5, 4, Pooling::kMean, true, false, 5}};
            }),
            "");
  EXPECT_NE(fault([](PlanExtras* extras) {
              extras->pooling = {{5, 4, Pooling::kMean, true, false, 0, 5}};
            }),
            "");
  EXPECT_NE(fault([](PlanExtras* extras) {
              extras->positions = {{5, 4, 0}};
              extras->rope_positions.resize(5);
            }),
            "");
}

}  // namespace
}  // namespace minisgl::sched
