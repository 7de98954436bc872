// Every plan that would access memory outside its own is found before the step runs.
#include <gtest/gtest.h>

#include <functional>

#include "engine/plan_check.h"
#include "minisgl/base/json.h"

namespace minisgl::engine {
namespace {

EngineLimits Limits() {
  EngineLimits limits;
  limits.vocab_size = 100;
  limits.page_size = 4;
  limits.num_pages = 8;
  limits.max_running_requests = 3;
  limits.max_seq_len = 10;
  limits.max_step_tokens = 8;
  limits.max_step_drafts = 2;
  return limits;
}

// A decode row at position 5 of table row 2, and in table row 0 a prompt of two tokens followed by
// a draft.
class PlanCheckTest : public testing::Test {
 protected:
  PlanCheckTest() {
    plan_.page_table_writes = {{0, 0, 1, 0}};
    plan_.pages = {7};
    plan_.token_pool_writes = {{0, 0, 2, 0}, {0, 2, 1, 2}};
    plan_.tokens = {11, 12, 13};
    plan_.positions = {5, 0, 1, 2};
    plan_.slots = {13, 28, 29, 30};
    plan_.table_row = {2, 0};
    plan_.row_begin = {0, 1, 4};
    plan_.kv_len = {6, 3};
    plan_.wants_token = {1, 1};
    plan_.num_drafts = {0, 1};
    plan_.prompt_len = {4, 2};
    plan_.sampling = {&sampling_, &sampling_};
    page_table_ = {7, 0, 0, 0, 0, 0, 5, 3, 0, 8, 8, 8};  // 4 rows of 3 pages
    token_pool_.assign(40, 50);
  }

  std::string Fault() {
    const std::string fault = FindPlanShapeFault(plan_, Limits());
    if (!fault.empty()) return "shape: " + fault;
    return FindPlanStateFault(plan_, Limits(), Tables());
  }

  StepTables Tables(int32_t* window_table = nullptr) {
    return {page_table_.data(), 3, token_pool_.data(), Limits().max_seq_len, window_table};
  }

  SamplingParams sampling_;
  BatchPlan plan_;
  std::vector<int32_t> page_table_;
  std::vector<TokenId> token_pool_;
};

TEST_F(PlanCheckTest, SoundPlanPasses) { EXPECT_EQ(Fault(), ""); }

TEST_F(PlanCheckTest, EachFaultIsFound) {
  const std::vector<std::function<void(BatchPlan*)>> mutations = {
      [](BatchPlan* plan) { *plan = BatchPlan(); },
      [](BatchPlan* plan) { plan->slots.pop_back(); },
      [](BatchPlan* plan) { plan->kv_len.pop_back(); },
      [](BatchPlan* plan) { plan->sampling.pop_back(); },
      [](BatchPlan* plan) { plan->num_drafts.pop_back(); },
      [](BatchPlan* plan) { plan->num_drafts[0] = -1; },
      [](BatchPlan* plan) { plan->num_drafts[0] = 1; },
      [](BatchPlan* plan) { plan->num_drafts[1] = 2; },
      [](BatchPlan* plan) { plan->prompt_len[1] = 3; },
      [](BatchPlan* plan) { plan->wants_token[1] = 0; },
      [](BatchPlan* plan) { plan->sampling[1] = nullptr; },
      [](BatchPlan* plan) { plan->row_begin.back() = 3; },
      [](BatchPlan* plan) { plan->row_begin[0] = 1; },
      [](BatchPlan* plan) { plan->row_begin[1] = 0; },
      [](BatchPlan* plan) { plan->row_begin[1] = 5; },
      [](BatchPlan* plan) { plan->table_row[0] = 0; },
      [](BatchPlan* plan) { plan->table_row[0] = 4; },
      [](BatchPlan* plan) { plan->table_row[0] = -1; },
      [](BatchPlan* plan) { plan->kv_len[1] = 2; },
      [](BatchPlan* plan) { plan->kv_len[1] = 11; },
      [](BatchPlan* plan) { plan->kv_len[0] = 7; },
      [](BatchPlan* plan) { plan->prompt_len[0] = 0; },
      [](BatchPlan* plan) { plan->prompt_len[0] = 7; },
      [](BatchPlan* plan) { plan->positions[2] = 2; },
      [](BatchPlan* plan) { plan->slots[0] = 12; },
      [](BatchPlan* plan) { plan->slots[3] = 28; },
      [](BatchPlan* plan) { plan->pages[0] = 9; },
      [](BatchPlan* plan) { plan->pages[0] = -1; },
      [](BatchPlan* plan) { plan->page_table_writes[0].table_row = 4; },
      [](BatchPlan* plan) { plan->page_table_writes[0].first = 3; },
      [](BatchPlan* plan) { plan->page_table_writes[0].count = 2; },
      [](BatchPlan* plan) { plan->page_table_writes[0].offset = 1; },
      [](BatchPlan* plan) { plan->page_table_writes[0].offset = -1; },
      [](BatchPlan* plan) { plan->token_pool_writes[0].count = 4; },
      [](BatchPlan* plan) { plan->token_pool_writes[0].table_row = -1; },
      [](BatchPlan* plan) { plan->token_pool_writes[1].first = -1; },
      [](BatchPlan* plan) { plan->token_pool_writes[1].first = 10; },
      [](BatchPlan* plan) { plan->token_pool_writes[1].offset = 3; },
  };
  const BatchPlan sound = plan_;
  for (size_t i = 0; i < mutations.size(); ++i) {
    plan_ = sound;
    mutations[i](&plan_);
    EXPECT_NE(Fault(), "") << "mutation " << i;
  }
}

// The second row of the plan without its draft: its two tokens are a part of a prompt.
TEST_F(PlanCheckTest, EachFaultOfScoredTokensIsFound) {
  plan_.num_drafts[1] = 0;
  plan_.wants_token[1] = 0;
  plan_.prompt_len[1] = 4;
  plan_.num_scored = {0, 2};
  plan_.scored_ids = {13, 14};
  EXPECT_EQ(Fault(), "");
  const BatchPlan sound = plan_;
  const std::vector<std::function<void()>> mutations = {
      [&] { plan_.num_scored = {0}; },
      [&] {
        plan_.num_scored = {0, -2}, plan_.scored_ids.clear();
      },
      [&] {
        plan_.num_scored = {0, 4}, plan_.scored_ids = {1, 2, 3, 4};
      },
      [&] {
        plan_.num_scored = {1, 1};
      },  // a decode row
      [&] { plan_.scored_ids.pop_back(); },
      [&] { plan_.scored_ids[0] = 100; },
      [&] { plan_.scored_ids[1] = -1; },
      [&] { plan_.prompt_len[1] = 3; },  // the token after the row is no part of the prompt
      [&] { plan_.sampling[1] = nullptr; },
      [&] { plan_.wants_token[1] = 1, plan_.num_drafts[1] = 1; },
  };
  for (size_t i = 0; i < mutations.size(); ++i) {
    plan_ = sound;
    mutations[i]();
    EXPECT_NE(Fault(), "") << "mutation " << i;
  }
  // A row that wants a token scores the tokens before it.
  plan_ = sound;
  plan_.wants_token[1] = 1;
  plan_.prompt_len[1] = 3;
  EXPECT_EQ(Fault(), "");
  plan_.num_scored = {0, 3};
  plan_.scored_ids = {12, 13, 14};
  EXPECT_NE(Fault(), "");
}

// The same rows with window pages: a window of three keys and four window pages of four slots.
TEST_F(PlanCheckTest, EachWindowFaultIsFound) {
  EngineLimits limits = Limits();
  limits.num_window_pages = 4;
  limits.sliding_window = 3;
  std::vector<int32_t> table = {2, 0, 0, 0, 0, 0, 1, 3, 0, 4, 4, 4};
  const auto fault = [&] {
    const std::string shape = FindPlanShapeFault(plan_, limits);
    if (!shape.empty()) return shape;
    return FindPlanStateFault(plan_, limits, Tables(table.data()));
  };
  plan_.window_pages = {2};
  plan_.window_slots = {13, 8, 9, 10};
  EXPECT_EQ(fault(), "");
  const BatchPlan sound = plan_;
  const std::vector<int32_t> sound_table = table;
  const std::vector<std::function<void()>> mutations = {
      [&] { plan_.window_slots.clear(); },
      [&] { plan_.window_pages.clear(); },
      [&] { plan_.window_pages[0] = 5; },
      [&] { plan_.window_pages[0] = -1; },
      [&] { plan_.window_slots[2] = 8; },
      [&] { plan_.window_slots[0] = 12; },
      [&] { table[6] = 4; },  // position 3, which the token at position 5 sees
      [&] {
        table[0] = 3;
        plan_.window_slots = {13, 12, 13, 14};
      },
  };
  for (size_t i = 0; i < mutations.size(); ++i) {
    mutations[i]();
    EXPECT_NE(fault(), "") << "mutation " << i;
    plan_ = sound;
    table = sound_table;
  }
  limits.sliding_window = 2;  // position 3 is out of reach
  table[6] = 4;
  EXPECT_EQ(fault(), "");
}

TEST_F(PlanCheckTest, AWindowReachesNoFurtherThanItsRow) {
  EngineLimits limits = Limits();
  limits.num_window_pages = 4;
  limits.sliding_window = 3;
  // The tokens of table row 0 end with its page; the table has no page after it.
  plan_.positions = {5, 0, 1, 2, 3};
  plan_.slots = {13, 28, 29, 30, 31};
  plan_.window_pages = {2};
  plan_.window_slots = {13, 8, 9, 10, 11};
  plan_.row_begin = {0, 1, 5};
  plan_.kv_len = {6, 4};
  plan_.prompt_len = {4, 3};
  std::vector<int32_t> table = {2, 4, 4, 0, 0, 0, 1, 3, 0, 4, 4, 4};
  EXPECT_EQ(FindPlanShapeFault(plan_, limits), "");
  EXPECT_EQ(FindPlanStateFault(plan_, limits, Tables(table.data())), "");
}

// The second row, which begins at position 0, in two segments.
TEST_F(PlanCheckTest, EachFaultOfStateSegmentsIsFound) {
  EngineLimits limits = Limits();
  limits.num_state_slots = 6;
  plan_.state_segments = {{0, 1, 4, 5}, {1, 2, kZeroState, 0}, {1, 1, 0, 2}};
  EXPECT_EQ(FindPlanShapeFault(plan_, limits), "");
  const BatchPlan sound = plan_;
  const std::vector<std::function<void(std::vector<StateSegment>*)>> mutations = {
      [](auto* segments) { segments->clear(); },
      [](auto* segments) { segments->pop_back(); },
      [](auto* segments) {
        segments->push_back({1, 1, 2, 3});
      },
      [](auto* segments) {
        segments->push_back({2, 1, 2, 3});
      },
      [](auto* segments) { std::swap((*segments)[0], (*segments)[1]); },
      [](auto* segments) { (*segments)[0].num_tokens = 2; },
      [](auto* segments) { (*segments)[1].num_tokens = 3, (*segments)[2].num_tokens = 0; },
      [](auto* segments) { (*segments)[0].read = kZeroState; },
      [](auto* segments) { (*segments)[0].read = 6; },
      [](auto* segments) { (*segments)[0].read = 5; },
      [](auto* segments) { (*segments)[0].read = 2; },
      [](auto* segments) { (*segments)[0].write = -1; },
      [](auto* segments) { (*segments)[0].write = 6; },
      [](auto* segments) { (*segments)[0].write = 2; },
      [](auto* segments) { (*segments)[2].read = kZeroState; },
      [](auto* segments) { (*segments)[2].read = 3; },
  };
  for (size_t i = 0; i < mutations.size(); ++i) {
    plan_ = sound;
    mutations[i](&plan_.state_segments);
    EXPECT_NE(FindPlanShapeFault(plan_, limits), "") << "mutation " << i;
  }
  plan_ = sound;
  EXPECT_NE(FindPlanShapeFault(plan_, Limits()), "");  // an engine without state slots
}

// Checks of every build.
TEST_F(PlanCheckTest, EachFaultOfSizeIsFound) {
  const std::vector<std::function<void(BatchPlan*)>> mutations = {
      [](BatchPlan* plan) { plan->slots.pop_back(); },
      [](BatchPlan* plan) { plan->kv_len.pop_back(); },
      [](BatchPlan* plan) { plan->row_begin.pop_back(); },
      [](BatchPlan* plan) { plan->row_begin.back() = 3; },
      [](BatchPlan* plan) { plan->row_begin[0] = 1; },
      [](BatchPlan* plan) { plan->row_begin[1] = 0; },
      [](BatchPlan* plan) { plan->row_begin[1] = 5; },
      [](BatchPlan* plan) { plan->kv_len[1] = 2; },
      [](BatchPlan* plan) { plan->kv_len[1] = 11; },
      [](BatchPlan* plan) {
        plan->positions.resize(9);
        plan->slots.resize(9);
        plan->row_begin.back() = 9;
        plan->kv_len[1] = 8;
      },
  };
  EXPECT_EQ(FindPlanSizeFault(plan_, Limits()), "");
  for (size_t i = 0; i < mutations.size(); ++i) {
    BatchPlan plan = plan_;
    mutations[i](&plan);
    EXPECT_NE(FindPlanSizeFault(plan, Limits()), "") << "mutation " << i;
  }
  EngineLimits limits = Limits();
  limits.max_running_requests = 1;  // and a row of padding
  EXPECT_EQ(FindPlanSizeFault(plan_, limits), "");
  limits.max_running_requests = 0;
  EXPECT_EQ(FindPlanSizeFault(plan_, limits), "2 rows, at most 1");
}

TEST_F(PlanCheckTest, TooManyTokensAreFound) {
  plan_.positions.resize(9);
  plan_.slots.resize(9);
  plan_.row_begin.back() = 9;
  EXPECT_NE(Fault().find("9 tokens, at most 8"), std::string::npos) << Fault();
}

TEST_F(PlanCheckTest, TooManyDraftsAreFound) {
  plan_.positions = {3, 4, 5, 0, 1, 2};  // two drafts in the first row
  plan_.slots = {23, 12, 13, 28, 29, 30};
  plan_.row_begin = {0, 3, 6};
  plan_.prompt_len[0] = 3;
  EXPECT_EQ(Fault(), "");
  plan_.num_drafts[0] = 1;
  EXPECT_EQ(Fault(), "");
  plan_.num_drafts[0] = 2;
  EXPECT_NE(Fault().find("3 drafts, at most 2"), std::string::npos) << Fault();
}

TEST_F(PlanCheckTest, DraftsOfThePaddingRowAreFound) {
  plan_.table_row[1] = 3;
  plan_.slots = {13, 32, 33, 34};
  plan_.num_drafts[1] = 0;
  EXPECT_EQ(Fault(), "");
  plan_.num_drafts[1] = 1;
  EXPECT_NE(Fault().find("padding"), std::string::npos) << Fault();
}

TEST_F(PlanCheckTest, DraftOutsideTheVocabularyIsFound) {
  token_pool_[2] = 100;  // table row 0, position 2
  EXPECT_NE(Fault().find("vocabulary"), std::string::npos) << Fault();
}

TEST_F(PlanCheckTest, TokenOutsideTheVocabularyIsFound) {
  for (const TokenId id : {-1, 100}) {
    token_pool_[25] = id;  // table row 2, position 5
    EXPECT_NE(Fault().find("vocabulary"), std::string::npos) << Fault();
  }
}

TEST_F(PlanCheckTest, OnePageUnderTwoRowsIsFoundWhereBothWrite) {
  page_table_[7] = 7;
  plan_.slots[0] = 29;
  EXPECT_EQ(Fault(), "a slot is written twice");
}

TEST_F(PlanCheckTest, PlanIsJsonWithEveryArray) {
  sampling_.logit_bias = {{3, 0.5f}};
  const auto json = ParseJson(plan_.ToJson());
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(json->Find("positions")->as_array().size(), 4u);
  EXPECT_EQ(json->Find("slots")->as_array()[3].as_int(), 30);
  EXPECT_EQ(json->Find("page_table_writes")->as_array()[0].Find("count")->as_int(), 1);
  const Json::Array& pool_writes = json->Find("token_pool_writes")->as_array();
  ASSERT_EQ(pool_writes.size(), 2u);
  EXPECT_EQ(pool_writes[1].Find("first")->as_int(), 2);
  ASSERT_EQ(json->Find("num_drafts")->as_array().size(), 2u);
  EXPECT_EQ(json->Find("num_drafts")->as_array()[1].as_int(), 1);
  EXPECT_EQ(json->Find("sampling")->as_array()[0].Find("logit_bias")->as_array().size(), 1u);
  for (const char* key : {"step", "pages", "tokens", "table_row", "row_begin", "kv_len",
                          "wants_token", "prompt_len"}) {
    EXPECT_NE(json->Find(key), nullptr) << key;
  }
}

}  // namespace
}  // namespace minisgl::engine
