// Drafted tokens. Whatever the drafts, a row's tokens and log-probabilities equal bit for bit the
// row generated one token at a time, and a rejected draft changes nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "engine/engine_driver.h"
#include "engine/watching_ops.h"
#include "minisgl/base/random.h"
#include "slow.h"

namespace minisgl {
namespace {

constexpr int32_t kVocabSize = 97;
constexpr TokenId kPoison = 5;  // its embedding is NaN in the damaged model

enum class Guess : uint8_t { kRight, kWrong, kPartRight, kRandom };

// `count` drafts of what follows the first `at` tokens of `answer`. Fewer near its end, so that no
// answer grows longer.
std::vector<TokenId> DraftsFor(const std::vector<RowResult>& answer, size_t at, size_t count,
                               Guess guess, uint64_t seed) {
  std::vector<TokenId> drafts;
  const auto random = [&](uint64_t index) { return UniformDouble(seed, at, index); };
  count = std::min(count, answer.size() - at - 1);
  if (guess == Guess::kRandom) count = std::min(count, static_cast<size_t>(random(100) * 9));
  for (size_t i = 0; i < count; ++i) {
    const bool right = guess == Guess::kRight || (guess == Guess::kPartRight && i != 2) ||
                       (guess == Guess::kRandom && random(i) < 0.7);
    drafts.push_back(right ? answer[at + i].token : (answer[at + i].token + 1) % kVocabSize);
  }
  return drafts;
}

// Greedy, then with every parameter that depends on earlier tokens or on the position.
std::vector<SamplingParams> Samplings() {
  std::vector<SamplingParams> samplings(4);
  for (SamplingParams& sampling : samplings) sampling.num_logprobs = 20;
  samplings[1].repetition_penalty = 1.4;
  samplings[1].presence_penalty = 0.3;
  samplings[1].frequency_penalty = 0.5;
  samplings[2] = samplings[1];
  samplings[2].temperature = 1.2;
  samplings[2].top_p = 0.9;
  samplings[2].seed = 7;
  samplings[3].temperature = 0.8;
  samplings[3].top_k = 12;
  samplings[3].seed = 8;
  samplings[3].num_logprobs = 0;
  samplings[3].min_tokens = 9;
  samplings[3].banned_until_min.resize(40);
  std::iota(samplings[3].banned_until_min.begin(), samplings[3].banned_until_min.end(), 0);
  samplings[3].logit_bias = {{3, 4.0f}, {60, 1.0f}};
  return samplings;
}

TestRow* AddSamplingRow(EngineDriver* driver, const std::vector<TokenId>& prompt,
                        const SamplingParams& sampling) {
  TestRow* row = driver->AddRow(prompt);
  row->sampling = sampling;
  return row;
}

// The expected answer: generated alone, one token at a time.
std::vector<RowResult> Plain(const TestModel& model, const std::vector<TokenId>& prompt,
                             const SamplingParams& sampling, int32_t num_tokens,
                             const DriverOptions& options = {}) {
  EngineDriver driver(model, options);
  return driver.Generate(AddSamplingRow(&driver, prompt, sampling), kAll, num_tokens);
}

// Generates the rest of `answer` with `count` drafts a step. Returns the number of steps.
int Follow(EngineDriver* driver, TestRow* row, const std::vector<RowResult>& answer, size_t count,
           Guess guess) {
  int steps = 0;
  for (; row->results.size() < answer.size(); ++steps) {
    driver->ExtendWithDrafts(row, DraftsFor(answer, row->results.size(), count, guess, 1));
    EXPECT_TRUE(driver->Step().ok());
  }
  return steps;
}

class DraftsTest : public testing::Test {
 protected:
  const std::unique_ptr<TestModel> model_ = MakeTinyModel();
};

TEST_F(DraftsTest, AnyGuessesGiveTheAnswerOfOneTokenAtATime) {
  MarkSlow("many guesses");
  const auto prompt = RandomPrompt(21, 1);
  for (const SamplingParams& sampling : Samplings()) {
    const auto wanted = Plain(*model_, prompt, sampling, 40);
    for (const int32_t page_size : {1, 4, 16}) {
      for (const int32_t threads : {1, 2}) {
        for (const Guess guess :
             {Guess::kRight, Guess::kWrong, Guess::kPartRight, Guess::kRandom}) {
          EngineDriver driver(*model_, {.page_size = page_size, .num_threads = threads});
          TestRow* row = AddSamplingRow(&driver, prompt, sampling);
          Follow(&driver, row, wanted, 7, guess);
          EXPECT_TRUE(SameResults(row->results, wanted))
              << "pages of " << page_size << ", " << threads << " threads, temperature "
              << sampling.temperature << ", guesses " << static_cast<int>(guess);
        }
      }
    }
  }
}

TEST_F(DraftsTest, AsManyAreAcceptedAsAreRight) {
  const auto prompt = RandomPrompt(30, 2);
  for (const SamplingParams& sampling : Samplings()) {
    const auto wanted = Plain(*model_, prompt, sampling, 32);
    const struct {
      Guess guess;
      int steps;
    } kCases[] = {{Guess::kRight, 4}, {Guess::kWrong, 32}, {Guess::kPartRight, 11}};
    for (const auto& test : kCases) {
      EngineDriver driver(*model_, {});
      TestRow* row = AddSamplingRow(&driver, prompt, sampling);
      EXPECT_EQ(Follow(&driver, row, wanted, 7, test.guess), test.steps)
          << "guesses " << static_cast<int>(test.guess);
      EXPECT_TRUE(SameResults(row->results, wanted));
    }
  }
}

TEST_F(DraftsTest, BatchMatesWithDraftsAndWithoutChangeNothing) {
  constexpr int32_t kNumTokens = 30;
  const auto samplings = Samplings();
  std::vector<std::vector<RowResult>> wanted;
  for (uint64_t i = 0; i < 7; ++i) {
    wanted.push_back(Plain(*model_, RandomPrompt(static_cast<int32_t>(3 + 17 * i), i),
                           samplings[i % samplings.size()], kNumTokens));
  }
  for (const int32_t page_size : {1, 4, 16}) {
    EngineDriver driver(*model_, {.page_size = page_size, .num_threads = 2});
    std::vector<TestRow*> rows;
    for (uint64_t i = 0; i < 7; ++i) {
      rows.push_back(AddSamplingRow(&driver, RandomPrompt(static_cast<int32_t>(3 + 17 * i), i),
                                    samplings[i % samplings.size()]));
    }
    // Rows join one by one, longer prompts in chunks, while other rows draft.
    bool any = true;
    for (size_t step = 0; any; ++step) {
      any = step + 1 < rows.size();
      for (size_t i = 0; i < rows.size() && i <= step; ++i) {
        TestRow* row = rows[i];
        if (row->results.size() == size_t{kNumTokens}) continue;
        any = true;
        const int32_t left = row->known_len - row->computed_len;
        if (left > 13) {
          driver.Extend(row, 13);
        } else if (i == 3) {
          driver.ExtendAll(row);
        } else {
          const auto guess = static_cast<Guess>(i % 4);
          driver.ExtendWithDrafts(row,
                                  DraftsFor(wanted[i], row->results.size(), 2 + i, guess, step));
        }
      }
      if (!any) break;
      if (step % 3 == 0) driver.Pad();
      ASSERT_TRUE(driver.Step().ok());
    }
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_TRUE(SameResults(rows[i]->results, wanted[i]))
          << "row " << i << ", pages of " << page_size;
    }
  }
}

TEST_F(DraftsTest, DraftsMayFollowAStepInFlight) {
  const auto prompt = RandomPrompt(21, 6), other = RandomPrompt(9, 7);
  const SamplingParams sampling = Samplings()[2];
  const auto wanted = Plain(*model_, prompt, sampling, 24);
  EngineDriver driver(*model_, {});
  TestRow* drafts = AddSamplingRow(&driver, prompt, sampling);
  TestRow* ahead = AddSamplingRow(&driver, other, sampling);
  driver.ExtendAll(ahead);
  driver.Launch();
  while (drafts->results.size() < wanted.size()) {
    const size_t at = drafts->results.size();
    driver.ExtendWithDrafts(drafts, DraftsFor(wanted, at, 3, Guess::kPartRight, 0));
    driver.ExtendAll(ahead);
    driver.Launch();
    ASSERT_TRUE(driver.Collect().ok());
    driver.ExtendAll(ahead);
    driver.Launch();
    ASSERT_TRUE(driver.Collect().ok());
  }
  ASSERT_TRUE(driver.Collect().ok());
  EXPECT_TRUE(SameResults(drafts->results, wanted));
  const auto count = static_cast<int32_t>(ahead->results.size());
  EXPECT_TRUE(SameResults(ahead->results, Plain(*model_, other, sampling, count)));
}

TEST_F(DraftsTest, PagesWithAcceptedDraftsCanBeShared) {
  for (const int32_t page_size : {1, 4, 16}) {
    const auto prompt = RandomPrompt(20, 3);
    const auto wanted = Plain(*model_, prompt, {.num_logprobs = 20}, 40);
    EngineDriver driver(*model_, {.page_size = page_size});
    TestRow* row = driver.AddRow(prompt);
    Follow(&driver, row, wanted, 5, Guess::kRandom);
    auto said = prompt;
    for (const RowResult& result : wanted) said.push_back(result.token);
    TestRow* next = driver.AddRowSharing(*row, row->computed_len / page_size, said);
    EXPECT_TRUE(
        SameResults(driver.Generate(next, kAll, 5), Plain(*model_, said, {.num_logprobs = 20}, 5)))
        << "pages of " << page_size;
  }
}

TEST_F(DraftsTest, SamplerSeesTheHistoryThatEndsAtEachPlace) {
  std::vector<Sampled> sampled;
  EngineDriver driver(model_->config, *model_->checkpoint, {},
                      std::make_unique<WatchingOps>(&sampled));
  const auto prompt = RandomPrompt(20, 13);
  TestRow* row = driver.AddRow(prompt);
  driver.Extend(row, 8);
  ASSERT_TRUE(driver.Step().ok());
  ASSERT_TRUE(sampled.empty());
  for (const int32_t num_drafts : {3, 0, 2}) {
    auto history = prompt;
    for (const RowResult& result : row->results) history.push_back(result.token);
    const auto drafts = RandomPrompt(num_drafts, 14);
    sampled.clear();
    driver.ExtendWithDrafts(row, drafts);
    ASSERT_TRUE(driver.Step().ok());
    ASSERT_EQ(sampled.size(), 1 + drafts.size());
    for (size_t i = 0; i < sampled.size(); ++i) {
      EXPECT_EQ(sampled[i].history, history);
      EXPECT_EQ(sampled[i].prompt_len, 20);
      if (i < drafts.size()) history.push_back(drafts[i]);
    }
  }
}

TEST_F(DraftsTest, AnswerIsAcceptedUpToTheFullLength) {
  const auto prompt = RandomPrompt(12, 14);
  const auto wanted = Plain(*model_, prompt, {.num_logprobs = 20}, 9);
  for (const int32_t num_plain : {0, 1, 7}) {
    EngineDriver driver(*model_, {.max_seq_len = 20});
    TestRow* row = driver.AddRow(prompt);
    if (num_plain > 0) driver.Generate(row, kAll, num_plain);
    EXPECT_EQ(Follow(&driver, row, wanted, 8, Guess::kRight), 1);
    EXPECT_TRUE(SameResults(row->results, wanted)) << num_plain << " before the drafts";
  }
}

TEST_F(DraftsTest, TokenPastTheFullLengthIsWrittenNowhere) {
  std::vector<Sampled> sampled;
  EngineDriver driver(model_->config, *model_->checkpoint, {.max_seq_len = 20},
                      std::make_unique<WatchingOps>(&sampled));
  const auto prompt = RandomPrompt(12, 14);
  TestRow* plain = driver.AddRow(prompt);
  const auto wanted = driver.Generate(plain, kAll, 9);
  TestRow* next = driver.AddRow({50, 51, 52});  // the table row after the full one's
  TestRow* full = driver.AddRow(prompt);
  ASSERT_EQ(next->table_row, full->table_row + 1);
  driver.Generate(next, kAll, 1);
  ASSERT_EQ(Follow(&driver, full, wanted, 8, Guess::kRight), 1);
  ASSERT_EQ(full->results.size(), 9u);
  ASSERT_NE(full->results.back().token, 50);
  driver.Generate(next, kAll, 2);
  EXPECT_EQ(sampled.back().history, (std::vector<TokenId>{50, 51, 52, next->results[0].token}));
}

// A model in which the token kPoison makes all later values of its row NaN. It is as likely to be
// sampled as before, so `sampling` may ban it.
class PoisonTest : public DraftsTest {
 protected:
  PoisonTest() {
    auto tensors = TinyTensors(model_->config);
    FileTensor& embedding = TensorNamed(&tensors, "model.embed_tokens.weight");
    const auto width = static_cast<size_t>(model_->config.hidden_size);
    const std::vector<float> row(width, std::numeric_limits<float>::quiet_NaN());
    std::memcpy(embedding.bytes.data() + kPoison * width * sizeof(float), row.data(),
                width * sizeof(float));
    damaged_.config = model_->config;
    damaged_.checkpoint = WriteCheckpoint(damaged_.dir, tensors);
  }
  TestModel damaged_;
};

TEST_F(PoisonTest, RejectedDraftsLeaveNoTrace) {
  auto prompt = RandomPrompt(14, 4);
  std::replace(prompt.begin(), prompt.end(), kPoison, kPoison + 1);
  SamplingParams sampling = Samplings()[2];
  sampling.logit_bias = {{kPoison, -1000.0f}};
  const auto wanted = Plain(*model_, prompt, sampling, 30);
  for (const int32_t page_size : {1, 4, 16}) {
    for (const size_t right : {0u, 1u, 3u}) {
      EngineDriver driver(damaged_, {.page_size = page_size});
      TestRow* row = AddSamplingRow(&driver, prompt, sampling);
      bool drafting = true;
      while (row->results.size() < wanted.size()) {
        const size_t at = row->results.size();
        std::vector<TokenId> drafts;
        if (drafting) drafts = DraftsFor(wanted, at, right, Guess::kRight, 0);
        if (drafting) drafts.insert(drafts.end(), 6, kPoison);
        driver.ExtendWithDrafts(row, drafts);
        ASSERT_TRUE(driver.Step().ok());
        drafting = !drafting;  // the next step finds this step's tokens in the pool
      }
      EXPECT_TRUE(SameResults(row->results, wanted))
          << "pages of " << page_size << ", " << right << " right";
    }
  }
}

TEST_F(PoisonTest, NonFinitePlaceIsTheLastResult) {
  auto prompt = RandomPrompt(14, 4);
  std::replace(prompt.begin(), prompt.end(), kPoison, kPoison + 1);
  SamplingParams sampling = Samplings()[2];
  sampling.logit_bias = {{kPoison, 1000.0f}};  // sampled as soon as it is allowed
  sampling.banned_until_min = {kPoison};
  const auto mate = Plain(*model_, RandomPrompt(9, 5), {.num_logprobs = 20}, 4);
  for (const int32_t finite : {1, 2, 4}) {
    sampling.min_tokens = finite - 1;
    const auto wanted = Plain(damaged_, prompt, sampling, finite + 1);
    ASSERT_EQ(wanted[static_cast<size_t>(finite) - 1].token, kPoison);
    ASSERT_EQ(wanted.back().outcome, RowResult::Outcome::kNonFinite);

    EngineDriver driver(damaged_, {});
    TestRow* row = AddSamplingRow(&driver, prompt, sampling);
    TestRow* beside = driver.AddRow(RandomPrompt(9, 5));
    auto drafts = DraftsFor(wanted, 0, static_cast<size_t>(finite), Guess::kRight, 0);
    drafts.insert(drafts.end(), {kPoison, 9, 9});
    driver.ExtendWithDrafts(row, drafts);
    driver.ExtendWithDrafts(beside, DraftsFor(mate, 0, 3, Guess::kRight, 0));
    ASSERT_TRUE(driver.Step().ok());
    EXPECT_TRUE(SameResults(row->results, wanted)) << finite << " finite";
    EXPECT_TRUE(SameResults(beside->results, mate));
  }
}

TEST_F(PoisonTest, StepInFlightAfterANonFiniteOneReadsAnIdOfTheVocabulary) {
  std::vector<Sampled> sampled;  // WatchingOps checks each id against the vocabulary
  EngineDriver driver(damaged_.config, *damaged_.checkpoint, {},
                      std::make_unique<WatchingOps>(&sampled));
  TestRow* row = driver.AddRow({1, kPoison, 3});
  for (int step = 0; step < 2; ++step) {
    driver.ExtendAll(row);
    driver.Launch();
  }
  ASSERT_TRUE(driver.Collect().ok());
  ASSERT_TRUE(driver.Collect().ok());
  EXPECT_EQ(row->results[0].outcome, RowResult::Outcome::kNonFinite);
}

TEST_F(PoisonTest, RowThatIsNonFiniteFromTheStartGivesOneResult) {
  EngineDriver driver(damaged_, {});
  TestRow* row = driver.AddRow({1, kPoison, 3});
  driver.ExtendWithDrafts(row, std::vector<TokenId>{4, 5, 6});
  ASSERT_TRUE(driver.Step().ok());
  ASSERT_EQ(row->results.size(), 1u);
  EXPECT_EQ(row->results[0].outcome, RowResult::Outcome::kNonFinite);
}

}  // namespace
}  // namespace minisgl
