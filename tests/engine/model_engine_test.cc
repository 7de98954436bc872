// Promise 1 at the level of the engine: a row's tokens and log-probabilities are the same bit for
// bit, whatever shares its steps and however it was cut. Also the pipeline's promises about order
// and failure.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <stdexcept>
#include <utility>

#include "engine/engine_driver.h"
#include "engine/forwarding_ops.h"
#include "engine/watching_ops.h"

namespace minisgl {
namespace {

class ModelEngineTest : public testing::Test {
 protected:
  // The expected answer to `prompt`: alone, in one prefill.
  std::vector<RowResult> Alone(const std::vector<TokenId>& prompt, int32_t num_tokens,
                               const DriverOptions& options = {}) {
    EngineDriver driver(*model_, options);
    return driver.Generate(driver.AddRow(prompt), kAll, num_tokens);
  }

  const std::unique_ptr<TestModel> model_ = MakeTinyModel();
};

TEST_F(ModelEngineTest, ChunkedPrefillEqualsWhole) {
  const auto prompt = RandomPrompt(75, 1);
  const auto whole = Alone(prompt, 8);
  ASSERT_EQ(whole.size(), 8u);
  ASSERT_EQ(whole[0].top_logprobs.size(), 20u);
  for (const int32_t chunk : {1, 2, 3, 7, 16, 17, 32, 74}) {
    EngineDriver driver(*model_, {});
    EXPECT_TRUE(SameResults(driver.Generate(driver.AddRow(prompt), chunk, 8), whole))
        << "chunks of " << chunk;
  }
}

TEST_F(ModelEngineTest, DecodingEqualsPrefillingTheAnswer) {
  const auto prompt = RandomPrompt(29, 2);
  const auto decoded = Alone(prompt, 12);
  auto said = prompt;
  for (const RowResult& result : decoded) {
    EXPECT_TRUE(SameResults({result}, Alone(said, 1))) << "after " << said.size() << " tokens";
    said.push_back(result.token);
  }
}

TEST_F(ModelEngineTest, PageSizeChangesNothing) {
  const auto prompt = RandomPrompt(75, 3);
  const auto wanted = Alone(prompt, 10);
  for (const int32_t page_size : {1, 2, 4, 8, 32, 64}) {
    EXPECT_TRUE(SameResults(Alone(prompt, 10, {.page_size = page_size}), wanted))
        << "pages of " << page_size;
  }
}

TEST_F(ModelEngineTest, ThreadsChangeNothing) {
  const auto prompt = RandomPrompt(75, 4);
  const auto wanted = Alone(prompt, 10);
  for (const int32_t threads : {2, 3}) {
    EXPECT_TRUE(SameResults(Alone(prompt, 10, {.num_threads = threads}), wanted))
        << threads << " threads";
  }
}

TEST_F(ModelEngineTest, BatchMatesChangeNothing) {
  EngineDriver driver(*model_, {});
  std::vector<TestRow*> rows;
  for (const int32_t length : {1, 40, 2, 17, 33, 64, 5}) {
    rows.push_back(driver.AddRow(RandomPrompt(length, static_cast<uint64_t>(length))));
  }
  // Rows join one by one, some in chunks of 13, while other rows already decode.
  for (size_t step = 0; step < 14; ++step) {
    for (size_t i = 0; i < rows.size() && i <= step; ++i) {
      const int32_t left = rows[i]->known_len - rows[i]->computed_len;
      driver.Extend(rows[i], i % 2 == 1 ? std::min(left, 13) : left);
    }
    ASSERT_TRUE(driver.Step().ok());
  }
  for (const TestRow* row : rows) {
    ASSERT_GE(row->results.size(), 4u);
    EXPECT_TRUE(
        SameResults(row->results, Alone(row->prompt, static_cast<int32_t>(row->results.size()))))
        << "prompt of " << row->prompt.size();
  }
}

TEST_F(ModelEngineTest, SharedPagesEqualComputedOnes) {
  for (const int32_t page_size : {1, 4, 16}) {
    EngineDriver driver(*model_, {.page_size = page_size});
    const auto stem = RandomPrompt(48, 5);
    auto first = stem, second = stem;
    first.insert(first.end(), {1, 2, 3});
    second.insert(second.end(), {9, 8, 7, 6, 5});
    TestRow* one = driver.AddRow(first);
    driver.Generate(one, kAll, 3);
    TestRow* two = driver.AddRowSharing(*one, 48 / page_size, second);
    // Both continue at once, and neither changes the pages that they share.
    for (int step = 0; step < 4; ++step) {
      driver.ExtendAll(two);
      driver.ExtendAll(one);
      ASSERT_TRUE(driver.Step().ok());
    }
    EXPECT_TRUE(SameResults(one->results, Alone(first, 7))) << "pages of " << page_size;
    EXPECT_TRUE(SameResults(two->results, Alone(second, 4))) << "pages of " << page_size;
  }
}

TEST_F(ModelEngineTest, PagesAndTableRowsAreReusedWithoutTraces) {
  EngineDriver driver(*model_, {.num_pages = 16, .max_running_requests = 1});
  for (uint64_t seed = 0; seed < 6; ++seed) {
    const auto prompt = RandomPrompt(seed % 2 == 0 ? 200 : 20, seed);
    TestRow* row = driver.AddRow(prompt);
    EXPECT_TRUE(SameResults(driver.Generate(row, kAll, 5), Alone(prompt, 5))) << "seed " << seed;
    driver.FreeRow(row);
  }
}

TEST_F(ModelEngineTest, LaunchingAheadEqualsOneAtATime) {
  const auto prompt = RandomPrompt(21, 6), other = RandomPrompt(9, 7);
  EngineDriver driver(*model_, {});
  TestRow* one = driver.AddRow(prompt);
  TestRow* two = driver.AddRow(other);
  driver.ExtendAll(one);
  driver.Launch();
  // Each plan reads the token that the previous plan, not yet collected, samples.
  for (int step = 0; step < 10; ++step) {
    driver.ExtendAll(one);
    if (step >= 3) driver.ExtendAll(two);
    driver.Launch();
    ASSERT_TRUE(driver.Collect().ok());
  }
  ASSERT_TRUE(driver.Collect().ok());
  EXPECT_TRUE(SameResults(one->results, Alone(prompt, 11)));
  EXPECT_TRUE(SameResults(two->results, Alone(other, 7)));
}

TEST_F(ModelEngineTest, PaddingChangesNothing) {
  const auto prompt = RandomPrompt(21, 8);
  EngineDriver driver(*model_, {});
  TestRow* row = driver.AddRow(prompt);
  for (int step = 0; step < 6; ++step) {
    driver.ExtendAll(row);
    driver.Pad();
    ASSERT_TRUE(driver.Step().ok());
  }
  EXPECT_TRUE(SameResults(row->results, Alone(prompt, 6)));
}

TEST_F(ModelEngineTest, SampledTokensDependOnSeedAndIndexAlone) {
  const auto prompt = RandomPrompt(30, 9);
  const auto generate = [&](uint64_t seed, int32_t chunk, int32_t page_size) {
    EngineDriver driver(*model_, {.page_size = page_size});
    TestRow* row = driver.AddRow(prompt);
    row->sampling.temperature = 1.5;
    row->sampling.top_p = 0.95;
    row->sampling.repetition_penalty = 1.1;
    row->sampling.seed = seed;
    return driver.Generate(row, chunk, 12);
  };
  const auto wanted = generate(1, kAll, 16);
  EXPECT_TRUE(SameResults(generate(1, 7, 4), wanted));
  EXPECT_FALSE(SameResults(generate(2, kAll, 16), wanted));
}

TEST_F(ModelEngineTest, RowAtTheFullLengthSamplesItsLastToken) {
  EngineDriver driver(*model_, {.max_seq_len = 33});
  const auto prompt = RandomPrompt(33, 10);
  TestRow* row = driver.AddRow(prompt);
  EXPECT_TRUE(SameResults(driver.Generate(row, kAll, 1), Alone(prompt, 1)));
}

TEST_F(ModelEngineTest, NonFiniteLogitsFailTheirRowAlone) {
  auto tensors = TinyTensors(model_->config);
  FileTensor& embedding = TensorNamed(&tensors, "model.embed_tokens.weight");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const size_t row_bytes = static_cast<size_t>(model_->config.hidden_size) * sizeof(float);
  std::memcpy(embedding.bytes.data() + 5 * row_bytes, &nan, sizeof(nan));
  TestModel damaged;
  damaged.config = model_->config;
  damaged.checkpoint = WriteCheckpoint(damaged.dir, tensors);

  EngineDriver driver(damaged, {});
  TestRow* good = driver.AddRow({1, 2, 3});
  TestRow* bad = driver.AddRow({1, 5, 3});
  driver.ExtendAll(good);
  driver.ExtendAll(bad);
  ASSERT_TRUE(driver.Step().ok());
  ASSERT_EQ(bad->results.size(), 1u);
  EXPECT_EQ(bad->results[0].outcome, RowResult::Outcome::kNonFinite);
  EXPECT_TRUE(SameResults(good->results, Alone({1, 2, 3}, 1)));
}

// Runs out of memory in one of its matrix products.
class FailingOps final : public ForwardingOps {
 public:
  explicit FailingOps(int fails_at) : fails_at_(fails_at) {}
  void Linear(const LinearParams& params) override {
    if (++calls_ == fails_at_) throw std::bad_alloc();
    ForwardingOps::Linear(params);
  }

 private:
  const int fails_at_;
  int calls_ = 0;
};

TEST_F(ModelEngineTest, FailureInsideAStepIsItsResultAndTheNextStepRuns) {
  EngineDriver driver(model_->config, *model_->checkpoint, {}, std::make_unique<FailingOps>(2));
  TestRow* row = driver.AddRow({1, 2, 3});
  driver.ExtendAll(row);
  const Status status = driver.Step();
  EXPECT_EQ(status.code(), StatusCode::kOutOfMemory);
  EXPECT_NE(status.message().find("step 1"), std::string::npos) << status.message();
  EXPECT_TRUE(row->results.empty());
  TestRow* next = driver.AddRow({4, 5});
  EXPECT_EQ(driver.Generate(next, kAll, 3).size(), 3u);
}

// Throws the given fault, once.
class ThrowingOps final : public ForwardingOps {
 public:
  explicit ThrowingOps(void (*fault)()) : fault_(fault) {}
  void RopeKvWrite(const RopeKvWriteParams& params) override {
    if (const auto fault = std::exchange(fault_, nullptr)) fault();
    ForwardingOps::RopeKvWrite(params);
  }

 private:
  void (*fault_)();
};

TEST_F(ModelEngineTest, AnExceptionOfAnyKindIsTheStepsResultAndTheNextStepRuns) {
  const struct {
    void (*fault)();
    StatusCode code;
    const char* message;
  } kCases[] = {
      {[] { throw std::bad_alloc(); }, StatusCode::kOutOfMemory, "step 1 ran out of memory"},
      {[] { throw std::runtime_error("odd\nfault"); }, StatusCode::kInternal, "odd\\nfault"},
      {[] { throw 42; }, StatusCode::kInternal, "step 1 failed (of an unknown kind)"},
  };
  for (const auto& test : kCases) {
    EngineDriver driver(model_->config, *model_->checkpoint, {},
                        std::make_unique<ThrowingOps>(test.fault));
    driver.ExtendAll(driver.AddRow({1, 2, 3}));
    const Status status = driver.Step();
    EXPECT_EQ(status.code(), test.code);
    EXPECT_NE(status.message().find(test.message), std::string::npos) << status.message();
    EXPECT_EQ(driver.Generate(driver.AddRow({4, 5}), kAll, 3).size(), 3u);
  }
}

TEST_F(ModelEngineTest, MayGoAwayWithPlansInFlight) {
  EngineDriver driver(*model_, {});
  TestRow* row = driver.AddRow(RandomPrompt(200, 11));
  driver.ExtendAll(row);
  driver.Launch();
  driver.ExtendAll(row);
  driver.Launch();
}

TEST_F(ModelEngineTest, SamplerSeesThePromptAndTheAnswerSoFar) {
  std::vector<Sampled> sampled;
  EngineDriver driver(model_->config, *model_->checkpoint, {},
                      std::make_unique<WatchingOps>(&sampled));
  const auto prompt = RandomPrompt(20, 13);
  TestRow* row = driver.AddRow(prompt);
  driver.Generate(row, 8, 4);
  ASSERT_EQ(sampled.size(), 4u);  // only the last chunk samples
  auto known = prompt;
  for (size_t i = 0; i < sampled.size(); ++i) {
    EXPECT_EQ(sampled[i].history, known);
    EXPECT_EQ(sampled[i].prompt_len, 20);
    known.push_back(row->results[i].token);
  }
}

TEST_F(ModelEngineTest, TokenPastTheFullLengthIsWrittenNowhere) {
  std::vector<Sampled> sampled;
  EngineDriver driver(model_->config, *model_->checkpoint, {.max_seq_len = 12},
                      std::make_unique<WatchingOps>(&sampled));
  TestRow* next = driver.AddRow({50, 51, 52});  // the table row after the full one's
  TestRow* full = driver.AddRow(RandomPrompt(12, 14));
  ASSERT_EQ(next->table_row, full->table_row + 1);
  driver.Generate(next, kAll, 1);
  driver.Generate(full, kAll, 1);
  ASSERT_NE(full->results[0].token, 50);
  driver.Generate(next, kAll, 2);
  EXPECT_EQ(sampled.back().history, (std::vector<TokenId>{50, 51, 52, next->results[0].token}));
}

TEST_F(ModelEngineTest, PaddingHasAPageOfItsOwn) {
  std::vector<Sampled> sampled;  // WatchingOps checks each write against the end of its layer
  EngineDriver driver(model_->config, *model_->checkpoint, {.num_pages = 16},
                      std::make_unique<WatchingOps>(&sampled));
  TestRow* row = driver.AddRow(RandomPrompt(256, 15));  // all pages
  driver.Pad();
  driver.ExtendAll(row);
  EXPECT_TRUE(driver.Step().ok());
}

// Resident memory of this process.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_F(ModelEngineTest, UnusedRoomCostsNoMemory) {
  const int64_t before = ResidentBytes();
  // Page table and token pool of 100 MB each, 100 MB of pages, logits of 40 MB.
  EngineDriver driver(*model_,
                      {.page_size = 1, .num_pages = 400000, .max_running_requests = 100000});
  driver.Generate(driver.AddRow(RandomPrompt(20, 12)), kAll, 3);
  EXPECT_LT(ResidentBytes() - before, int64_t{48} << 20);
}

TEST_F(ModelEngineTest, FaultOfTheModelIsAStatusNotAnEngine) {
  ModelConfig config = model_->config;
  config.intermediate_size += 1;
  const auto memory = PlanMemory(config, {}, uint64_t{1} << 32);
  ASSERT_TRUE(memory.ok());
  const auto engine = MakeModelEngine(config, *model_->checkpoint, *memory, MakeNaiveOps());
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kBadInput);
}

TEST_F(ModelEngineTest, ComputeLogitsRefusesIdsOutsideTheVocabulary) {
  const auto ops = MakeNaiveOps();
  for (const std::vector<TokenId>& ids : {std::vector<TokenId>{}, {-1}, {1, 97}}) {
    const auto logits =
        ComputeLogits(model_->config, *model_->checkpoint, DType::kF32, ops.get(), ids);
    EXPECT_EQ(logits.status().code(), StatusCode::kBadInput);
  }
}

}  // namespace
}  // namespace minisgl
