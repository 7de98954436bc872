// The vectors of pooled prompts: each pooling, and prompts in chunks beside each other.
#include "engine/pooled_prompts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace minisgl::engine {
namespace {

const std::vector<float> kStates = {1, -2, 3, 5, 2, -9};  // of three tokens, two elements each

std::vector<float> PoolInChunks(Pooling pooling, const std::vector<int64_t>& chunks) {
  PooledPrompts prompts;
  const float other[] = {100, 100};
  prompts.Add(/*table_row=*/1, pooling, other, 1, 2);  // of a prompt that never ended
  prompts.Begin(1);
  const float* next = kStates.data();
  for (const int64_t count : chunks) {
    prompts.Add(1, pooling, next, count, 2);
    prompts.Add(2, Pooling::kLast, other, 1, 2);
    next += count * 2;
  }
  EXPECT_EQ(prompts.End(2, Pooling::kLast), std::vector<float>({100, 100}));
  return prompts.End(1, pooling);
}

TEST(PooledPromptsTest, EachPoolingIsItsFormulaHoweverThePromptIsCut) {
  const float root = std::sqrt(3.0F);
  const struct {
    Pooling pooling;
    std::vector<float> vector;
  } cases[] = {
      {Pooling::kLast, {2, -9}},
      {Pooling::kFirst, {1, -2}},
      {Pooling::kMean, {2, -2}},
      {Pooling::kMax, {3, 5}},
      {Pooling::kMeanSqrt, {6 / root, -6 / root}},
      {Pooling::kWeightedMean, {13.0F / 6, -19.0F / 6}},
  };
  for (const auto& [pooling, vector] : cases) {
    const std::vector<float> whole = PoolInChunks(pooling, {3});
    ASSERT_EQ(whole.size(), 2u);
    EXPECT_NEAR(whole[0], vector[0], 1e-6) << static_cast<int>(pooling);
    EXPECT_NEAR(whole[1], vector[1], 1e-6) << static_cast<int>(pooling);
    EXPECT_EQ(PoolInChunks(pooling, {1, 1, 1}), whole);
    EXPECT_EQ(PoolInChunks(pooling, {2, 1}), whole);
  }
}

TEST(PooledPromptsTest, TokensThatDoNotCountAreLeftOut) {
  const struct {
    Pooling pooling;
    std::vector<float> vector;
  } cases[] = {{Pooling::kLast, {2, -9}},
               {Pooling::kFirst, {3, 5}},
               {Pooling::kMean, {2.5, -2}},
               {Pooling::kMax, {3, 5}},
               {Pooling::kMeanSqrt, {5 / std::sqrt(2.0F), -4 / std::sqrt(2.0F)}},
               {Pooling::kWeightedMean, {12.0F / 5, -17.0F / 5}}};
  for (const auto& [pooling, vector] : cases) {
    PooledPrompts whole, cut;
    whole.Add(0, pooling, kStates.data(), 3, 2, 1);
    cut.Add(0, pooling, kStates.data(), 1, 2, 1);
    cut.Add(0, pooling, kStates.data() + 2, 2, 2);
    const std::vector<float> found = whole.End(0, pooling);
    EXPECT_NEAR(found[0], vector[0], 1e-6) << static_cast<int>(pooling);
    EXPECT_NEAR(found[1], vector[1], 1e-6) << static_cast<int>(pooling);
    EXPECT_EQ(cut.End(0, pooling), found);
  }
}

TEST(PooledPromptsTest, WhatIsNoNumberStays) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kMax, Pooling::kWeightedMean}) {
    PooledPrompts prompts;
    const float states[] = {1, NAN, 2};
    prompts.Add(0, pooling, states, 3, 1);
    EXPECT_TRUE(std::isnan(prompts.End(0, pooling)[0]));
  }
}

}  // namespace
}  // namespace minisgl::engine
