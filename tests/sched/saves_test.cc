// Prefixes that are kept by a source: when they are offered, what becomes of their pages, and what
// a request is told that begins with one.
#include "sched/sched_fixture.h"
#include "sim/sim_store.h"

namespace minisgl::sched {
namespace {

using sim::SimDriver;

constexpr int32_t kBlock = 8;

class SavesTest : public testing::Test {
 protected:
  void Start(int32_t num_pages, sim::StorePlan plan = {}, SchedulerOptions options = {},
             int32_t num_state_slots = 0) {
    EngineLimits limits;
    limits.vocab_size = kVocab;
    limits.page_size = 4;
    limits.num_pages = num_pages;
    limits.max_running_requests = 4;
    limits.max_seq_len = 200;
    limits.max_step_tokens = 204;
    limits.num_state_slots = num_state_slots;
    plan.block_tokens = kBlock;
    options.max_prefill_tokens = 200;
    if (store_ == nullptr) store_ = std::make_unique<sim::SimStore>(plan, 1);
    proxy_.driver = nullptr;
    options.kv_source = &proxy_;
    driver_ = std::make_unique<SimDriver>(limits, options, 1, kEndRate);
    auto work = std::make_unique<sim::SimWork>(0, 1);
    work_ = work.get();
    source_ = std::make_unique<runtime::PrefixSource>(&driver_->engine(), store_.get(),
                                                      std::move(work), kBlock);
    proxy_.driver = source_.get();
  }
  // Steps until nothing goes on; the disk works between steps if `works`.
  void Run(bool works = true) {
    for (int i = 0; i < 500; ++i) {
      if (works) work_->Tick();
      driver_->Step();
      if (driver_->scheduler().Idle() && (!works || !driver_->scheduler().Saving())) return;
    }
  }
  SchedulerStats Stats() { return driver_->scheduler().Stats(); }

  // The source is made after the engine, and the scheduler before both.
  struct Proxy final : KvSource {
    KvSource* driver = nullptr;
    std::optional<int64_t> Lookup(RequestId id, const PrefixKey& key, int64_t cached_len) override {
      return driver->Lookup(id, key, cached_len);
    }
    void Load(RequestId id, const PrefixKey& key, int64_t begin, int64_t count,
              std::span<const PageId> pages, StateSlot state) override {
      driver->Load(id, key, begin, count, pages, state);
    }
    void Cancel(RequestId id) override { driver->Cancel(id); }
    std::vector<KvLoadResult> TakeFinished() override { return driver->TakeFinished(); }
    void Forget(RequestId id) override { driver->Forget(id); }
    int32_t block_tokens() const override { return kBlock; }
    bool keeps_states() const override { return true; }
    KvSaveOffer Save(KvSaveId id, RequestId request, const KvPrefix& prefix) override {
      return driver->Save(id, request, prefix);
    }
    std::optional<KvSaveResult> DropSave(KvSaveId id) override { return driver->DropSave(id); }
    std::vector<KvSaveResult> TakeSaved() override { return driver->TakeSaved(); }
  };

  std::unique_ptr<sim::SimStore> store_;
  Proxy proxy_;
  std::unique_ptr<SimDriver> driver_;
  sim::SimWork* work_ = nullptr;
  std::unique_ptr<runtime::PrefixSource> source_;
};

// 30 tokens and 10 more: 39 have keys, which are 9 whole pages, which are 4 blocks.
TEST_F(SavesTest, APrefixIsSavedAtItsEndAndOnce) {
  Start(100);
  const Request request = MakeRequest(1, 30, 10);
  driver_->Submit(request);
  Run();
  ExpectRight(*driver_, request);
  EXPECT_EQ(store_->num_writes(), 4);
  EXPECT_EQ(Stats().saved_pages, 8);
  EXPECT_EQ(Stats().dropped_pages, 0);
  EXPECT_EQ(Stats().pages_locked, 0);
  Request again = request;
  again.id = 2;
  driver_->Submit(again);
  Run();
  EXPECT_EQ(store_->num_writes(), 4);
  // A longer one adds what is new.
  again.id = 3;
  again.max_tokens = 18;
  driver_->Submit(again);
  Run();
  EXPECT_EQ(store_->num_writes(), 5);
  EXPECT_EQ(store_->violation(), "");
}

TEST_F(SavesTest, RequestsOfOnePrefixSaveItOnce) {
  Start(100);
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = MakeRequest(1, 33, 2);
    request.id = id;
    driver_->Submit(request);
  }
  Run();
  EXPECT_EQ(store_->num_writes(), 4);
}

TEST_F(SavesTest, LoadedTokensCountAsCached) {
  Start(100);
  const Request request = MakeRequest(1, 30, 10);
  driver_->Submit(request);
  Run();
  source_.reset();
  Start(100);  // another process, the same disk
  driver_->Submit(request);
  Run();
  ExpectRight(*driver_, request);
  EXPECT_EQ(driver_->answers()[1].cached_tokens, 24);
  EXPECT_EQ(Stats().cached_tokens, 24);
  EXPECT_EQ(Stats().loaded_tokens, 24);
  EXPECT_EQ(Stats().computed_tokens, 6);
  EXPECT_EQ(store_->num_writes(), 4);
}

// A prefix of less than a block is not worth a load, nor is less than a block past the cached ones.
TEST_F(SavesTest, LittleIsNotLoaded) {
  Start(100);
  driver_->Submit(MakeRequest(1, 30, 10));
  Run();
  source_.reset();
  Start(100);
  Request request = MakeRequest(1, 30, 2);
  request.prompt.resize(kBlock);  // the last token is always computed
  driver_->Submit(request);
  Run();
  EXPECT_EQ(Stats().loaded_tokens, 0);
  request = MakeRequest(1, 30, 2);
  request.id = 2;
  request.prompt.resize(kBlock + 6);  // a block is cached
  driver_->Submit(request);
  Run();
  EXPECT_EQ(Stats().loaded_tokens, 0);
  EXPECT_EQ(store_->num_reads(), 0);
}

// The disk does nothing: of the first prefix blocks are being read, the second waits.
TEST_F(SavesTest, PagesThatWaitToBeSavedMakeNoRequestWait) {
  Start(24);
  driver_->Submit(MakeRequest(1, 36, 3));
  driver_->Submit(MakeRequest(2, 36, 3));
  Run(/*works=*/false);
  EXPECT_EQ(Stats().saves, 2);
  EXPECT_EQ(Stats().pages_locked, 18);
  const Request other = MakeRequest(3, 36, 3);
  driver_->Submit(other);
  Run(/*works=*/false);
  ExpectRight(*driver_, other);
  EXPECT_EQ(Stats().dropped_pages, 8);
}

TEST_F(SavesTest, PagesThatAreNeededAreNotSaved) {
  Start(20);
  driver_->Submit(MakeRequest(1, 70, 3));
  Run(/*works=*/false);
  ASSERT_TRUE(driver_->scheduler().Saving());
  const Request other = MakeRequest(2, 70, 3);
  driver_->Submit(other);
  for (int i = 0; i < 20; ++i) driver_->Step();
  EXPECT_TRUE(driver_->scheduler().WaitsOutside()) << "for the blocks that are being read";
  EXPECT_GT(Stats().dropped_pages + Stats().saves, 0);
  Run();
  ExpectRight(*driver_, other);
  EXPECT_GT(Stats().dropped_pages, 0);
  EXPECT_EQ(Stats().pages_locked, 0);
}

TEST_F(SavesTest, WhatAFailedRequestComputedIsNotKept) {
  Start(100);
  driver_->engine().NonFiniteInNextStep(0);
  driver_->Submit(MakeRequest(1, 30, 10));
  Run();
  EXPECT_EQ(driver_->answers()[1].error_code, "nan_logits");
  EXPECT_EQ(store_->num_writes(), 0);
}

TEST_F(SavesTest, AFullDiskDropsAndIsCounted) {
  sim::StorePlan plan;
  plan.full_after = 2;
  Start(100, plan);
  driver_->Submit(MakeRequest(1, 30, 10));
  Run();
  EXPECT_EQ(Stats().saved_pages, 2);
  EXPECT_EQ(Stats().dropped_pages, 6);
  driver_->Submit(MakeRequest(2, 30, 10));
  Run();
  EXPECT_EQ(Stats().dropped_pages, 14);
}

TEST_F(SavesTest, ADamagedBlockIsComputedOrFailsTheRequest) {
  for (const auto policy : {KvFailurePolicy::kRecompute, KvFailurePolicy::kFail}) {
    sim::StorePlan plan;
    plan.torn_percent = 100;
    source_.reset();
    store_.reset();
    Start(100, plan, {.kv_failure = policy});
    const Request request = MakeRequest(1, 30, 10);
    store_->Fill(request.prompt, 3);
    driver_->Submit(request);
    Run();
    EXPECT_EQ(Stats().failed_loads, 1);
    if (policy == KvFailurePolicy::kRecompute) {
      ExpectRight(*driver_, request);
      EXPECT_EQ(driver_->answers()[1].cached_tokens, 0);
    } else {
      EXPECT_EQ(driver_->answers()[1].error_code, "kv_load_failed");
    }
  }
}

// The same for a model with states.
class StateSavesTest : public SavesTest {
 protected:
  void StartWithStates(int32_t num_slots = 20, SchedulerOptions options = {}) {
    source_.reset();  // another process, the same disk
    Start(100, {}, options, num_slots);
  }
  void Answer(const Request& request) {
    driver_->Submit(request);
    Run();
  }
  const Request request_ = MakeRequest(1, 30, 10);
};

// 28 of the 30 tokens are whole pages, and 24 whole blocks. The answer ends behind 39 tokens, of
// which 32 are whole blocks.
TEST_F(StateSavesTest, AStateAtTheEndOfABlockIsSavedAndLoaded) {
  StartWithStates();
  Answer(request_);
  EXPECT_EQ(store_->num_writes(), 4);
  EXPECT_EQ(store_->num_state_writes(), 2);
  EXPECT_EQ(Stats().saved_states, 2);
  StartWithStates();
  Answer(request_);
  ExpectRight(*driver_, request_);
  EXPECT_EQ(driver_->answers()[1].cached_tokens, 24);
  EXPECT_EQ(Stats().loaded_states, 1);
  EXPECT_EQ(Stats().loaded_tokens, 24);
  EXPECT_EQ(Stats().computed_tokens, 6);
  EXPECT_EQ(store_->num_state_writes(), 2) << "they are there";
  EXPECT_EQ(store_->violation(), "");
}

TEST_F(StateSavesTest, WhatIsFoundEndsAtTheLastState) {
  StartWithStates();
  store_->Fill(request_.prompt, 3, std::vector<int64_t>{1, 2});
  Answer(request_);
  ExpectRight(*driver_, request_);
  EXPECT_EQ(driver_->answers()[1].cached_tokens, 16);
  EXPECT_EQ(Stats().loaded_states, 1);
}

TEST_F(StateSavesTest, TheLastBlockOfAnAnswerHasAState) {
  StartWithStates();
  Answer(request_);
  StartWithStates();
  Request longer = request_;  // goes on from the answer, whose last block has a state
  const auto answer = sim::RightAnswer(request_.prompt, 10, false, kVocab, kEndRate);
  longer.prompt.insert(longer.prompt.end(), answer.begin(), answer.end());
  Answer(longer);
  ExpectRight(*driver_, longer);
  EXPECT_EQ(driver_->answers()[1].cached_tokens, 32);
  // It adds those behind 40 and 48 of its 49.
  EXPECT_EQ(store_->num_state_writes(), 4);
  StartWithStates();
  Answer(longer);
  EXPECT_EQ(driver_->answers()[1].cached_tokens, 32) << "its last token is computed";
}

TEST_F(StateSavesTest, BlocksWithoutAStateAreComputedAndTheStateIsSavedAgain) {
  StartWithStates();
  Answer(request_);
  store_->DropStates();
  StartWithStates();
  Answer(request_);
  ExpectRight(*driver_, request_);
  EXPECT_EQ(Stats().loaded_tokens, 0);
  EXPECT_EQ(Stats().failed_loads, 0);
  EXPECT_EQ(store_->num_writes(), 4);
  EXPECT_EQ(store_->num_state_writes(), 4);
}

TEST_F(StateSavesTest, ADamagedStateIsComputedOrFailsTheRequest) {
  for (const auto policy : {KvFailurePolicy::kRecompute, KvFailurePolicy::kFail}) {
    StartWithStates();
    Answer(request_);
    store_->TearStates();
    StartWithStates(20, {.kv_failure = policy});
    Answer(request_);
    EXPECT_EQ(Stats().failed_loads, 1);
    if (policy == KvFailurePolicy::kRecompute) {
      ExpectRight(*driver_, request_);
      EXPECT_EQ(driver_->answers()[1].cached_tokens, 0);
      EXPECT_EQ(Stats().saved_states, 1);
    } else {
      EXPECT_EQ(driver_->answers()[1].error_code, "kv_load_failed");
    }
    source_.reset();
    store_.reset();
  }
}

// Prompts that part in the middle of a block leave a state at the end of the block before.
TEST_F(StateSavesTest, AStateIsKeptWherePromptsPart) {
  StartWithStates();
  std::vector<Request> requests;
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = MakeRequest(7, 21, 2);
    request.id = id;
    request.prompt.push_back(static_cast<TokenId>(71 + id));
    request.prompt.push_back(3);
    requests.push_back(request);
    driver_->Submit(request);
  }
  Run();
  for (const Request& request : requests) ExpectRight(*driver_, request);
  StartWithStates();
  Request other = requests[0];
  other.prompt[21] = 75;
  Answer(other);
  ExpectRight(*driver_, other);
  EXPECT_EQ(driver_->answers()[1].cached_tokens, 16);
}

// The slots are those of one request. 30 tokens and 3 more: 32 have keys, which are whole blocks.
TEST_F(StateSavesTest, SlotsThatWaitToBeSavedMakeNoRequestWait) {
  StartWithStates(StateSlotsPerRequest(2));
  driver_->Submit(MakeRequest(1, 30, 3));
  Run(/*works=*/false);
  ASSERT_TRUE(driver_->scheduler().Saving());
  const Request other = MakeRequest(2, 30, 3);
  driver_->Submit(other);
  for (int i = 0; i < 20; ++i) driver_->Step();
  EXPECT_TRUE(driver_->scheduler().WaitsOutside()) << "for the blocks that are being read";
  Run();
  ExpectRight(*driver_, other);
  EXPECT_EQ(Stats().saved_states, 1) << "of the second";
  EXPECT_EQ(Stats().dropped_pages, 8);
}

}  // namespace
}  // namespace minisgl::sched
