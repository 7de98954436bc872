// Prefixes that outlive a runtime: saved in the background by one, loaded by the next.
#include <atomic>
#include <functional>
#include <thread>

#include "minisgl/store/kv_block_memory.h"
#include "runtime/runtime_fixture.h"

namespace minisgl::runtime {
namespace {

constexpr int64_t kNoEnds = 0;
constexpr auto kStorePatience = std::chrono::minutes(10);

// A store that takes its time.
class TardyStore final : public KvBlockStore {
 public:
  // Calls `wait` before each access.
  TardyStore(std::unique_ptr<KvBlockStore> store, std::function<void()> wait)
      : store_(std::move(store)), wait_(std::move(wait)) {}
  TardyStore(std::unique_ptr<KvBlockStore> store, std::chrono::milliseconds time)
      : TardyStore(std::move(store), [time] { std::this_thread::sleep_for(time); }) {}
  std::vector<KvBlockKey> Keys(const PrefixKey& key) const override { return store_->Keys(key); }
  int64_t Find(KvBlockPath path) override { return store_->Find(path); }
  bool Read(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    wait_();
    return store_->Read(path, block, data);
  }
  bool Write(KvBlockPath path, const PrefixKey& block, std::span<const std::byte> data) override {
    wait_();
    return store_->Write(path, block, data);
  }
  void Touch(KvBlockPath path) override { store_->Touch(path); }
  bool HasState(KvBlockPath path) override { return store_->HasState(path); }
  bool ReadState(KvBlockPath path, const PrefixKey& block, std::span<std::byte> data) override {
    wait_();
    return store_->ReadState(path, block, data);
  }
  bool WriteState(KvBlockPath path, const PrefixKey& block,
                  std::span<const std::byte> data) override {
    wait_();
    return store_->WriteState(path, block, data);
  }
  bool accepts_blocks() const override { return store_->accepts_blocks(); }
  KvBlockStoreStats stats() const override { return store_->stats(); }

 private:
  const std::unique_ptr<KvBlockStore> store_;
  const std::function<void()> wait_;
};

std::unique_ptr<KvBlockStore> MakeStoreOfMemory() {
  return MakeKvBlockMemory({.max_bytes = 1 << 20,
                            .identity = "sim",
                            .block_bytes = kKvBlockTokens * 8,
                            .state_bytes = 8});
}

std::unique_ptr<Runtime> RuntimeOver(std::shared_ptr<KvBlockStore> store,
                                     int32_t num_state_slots = 0) {
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.kv_store = std::move(store);
  EngineLimits limits = SmallLimits();
  limits.num_state_slots = num_state_slots;
  return Runtime::Create(std::make_unique<sim::SimEngine>(limits, kNoEnds), nullptr, options)
      .value();
}

Collected AnswerOf(Runtime* runtime, const Prompt& prompt) {
  EventQueue queue;
  runtime->Submit(prompt, &queue, 0);
  Collected collected;
  while (collected.num_done == 0) {
    const auto event = queue.Pop(kStorePatience);
    if (!event) {
      ADD_FAILURE() << "no answer";
      break;
    }
    collected.Take(*event);
  }
  return collected;
}

// The engines know the marks by the seed.
Collected MarkedAnswerOf(std::shared_ptr<KvBlockStore> store, std::vector<KeyMark> marks) {
  Prompt prompt = MakePrompt(1, 150, 30);
  prompt.sampling.seed = 5;
  prompt.marks = marks;
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.kv_store = std::move(store);
  auto engine = std::make_unique<sim::SimEngine>(SmallLimits(), kNoEnds);
  engine->KnowMarks(5, marks);
  const auto runtime = Runtime::Create(std::move(engine), nullptr, options).value();
  Collected answer = AnswerOf(runtime.get(), prompt);
  EXPECT_EQ(answer.ids, sim::RightAnswer({prompt.ids, marks}, 30, true, 50, kNoEnds));
  runtime->FinishSaves(kStorePatience);
  return answer;
}

TEST(PrefixStoreTest, BlocksAreFoundWithTheirMarks) {
  const std::shared_ptr<KvBlockStore> store = MakeStoreOfMemory();
  const ContentHash cat = {7, 1}, dog = {7, 2};
  const auto cached = [&store](std::vector<KeyMark> marks) {
    return MarkedAnswerOf(store, std::move(marks)).done.usage.cached_tokens;
  };
  EXPECT_EQ(cached({{70, cat}}), 0);
  EXPECT_EQ(cached({{70, cat}}), 128);
  EXPECT_EQ(cached({{70, dog}}), 64);
  EXPECT_EQ(cached({{0, cat}, {70, cat}}), 0);
  EXPECT_EQ(cached({}), 64);
  EXPECT_EQ(cached({{128, cat}}), 128);
  EXPECT_EQ(store->stats().blocks_written, 2 + 1 + 2 + 1);
}

TEST(PrefixStoreTest, TheNextRuntimeGoesOnFromWhatOneKept) {
  const std::shared_ptr<KvBlockStore> store = MakeStoreOfMemory();
  const Prompt prompt = MakePrompt(1, 150, 30);
  const auto right = sim::RightAnswer(prompt.ids, 30, true, 50, kNoEnds);
  {
    const auto runtime = RuntimeOver(store);
    const Collected answer = AnswerOf(runtime.get(), prompt);
    EXPECT_EQ(answer.ids, right);
    EXPECT_EQ(answer.done.usage.cached_tokens, 0);
    runtime->FinishSaves(kStorePatience);
    // 179 tokens have keys: 2 blocks of 64, which are 32 pages.
    EXPECT_EQ(runtime->Stats().scheduler.saved_pages, 32);
    EXPECT_EQ(runtime->Stats().scheduler.dropped_pages, 0);
  }
  EXPECT_EQ(store->stats().blocks_written, 2);
  const auto runtime = RuntimeOver(store);
  const Collected answer = AnswerOf(runtime.get(), prompt);
  EXPECT_EQ(answer.ids, right);
  EXPECT_EQ(answer.done.usage.cached_tokens, 128);
  runtime->FinishSaves(kStorePatience);
  EXPECT_EQ(store->stats().blocks_written, 2);
}

TEST(PrefixStoreTest, TheNextRuntimeGoesOnFromAState) {
  const std::shared_ptr<KvBlockStore> store = MakeStoreOfMemory();
  const Prompt prompt = MakePrompt(1, 150, 30);
  for (const int64_t cached : {0, 128}) {
    const auto runtime = RuntimeOver(store, 20);
    const Collected answer = AnswerOf(runtime.get(), prompt);
    EXPECT_EQ(answer.ids, sim::RightAnswer(prompt.ids, 30, true, 50, kNoEnds));
    EXPECT_EQ(answer.done.usage.cached_tokens, cached);
    runtime->FinishSaves(kStorePatience);
    EXPECT_EQ(runtime->Stats().scheduler.loaded_states, cached > 0 ? 1 : 0);
  }
  // After 128 tokens, and after 64, where a step of the prompt ended.
  EXPECT_EQ(store->stats().states_written, 2);
}

TEST(PrefixStoreTest, WhatIsNotSavedInTimeIsDroppedAndCounted) {
  std::atomic<bool> writes = false;
  const auto runtime = RuntimeOver(std::make_shared<TardyStore>(MakeStoreOfMemory(), [&writes] {
    while (!writes) std::this_thread::yield();
  }));
  for (TokenId first = 1; first <= 6; ++first) {
    AnswerOf(runtime.get(), MakePrompt(5 * first, 130, 3));
  }
  // The block under way is written after the others are dropped.
  std::thread opener([&] {
    while (runtime->Stats().scheduler.dropped_pages == 0) std::this_thread::yield();
    writes = true;
  });
  runtime->FinishSaves(std::chrono::milliseconds(0));
  opener.join();
  const SchedulerStats stats = runtime->Stats().scheduler;
  EXPECT_GT(stats.dropped_pages, 0);
  EXPECT_EQ(stats.dropped_pages + stats.saved_pages, 6 * 32);
  EXPECT_EQ(stats.saves, 0);
}

// A destructor waits for the block that is being written, and for no other.
TEST(PrefixStoreTest, ARuntimeMayEndWhileItSavesAndLoads) {
  const auto store =
      std::make_shared<TardyStore>(MakeStoreOfMemory(), std::chrono::milliseconds(5));
  const Prompt prompt = MakePrompt(1, 190, 3);
  for (int round = 0; round < 8; ++round) {
    EventQueue queue;
    const auto runtime = RuntimeOver(store);
    runtime->Submit(prompt, &queue, 0);
    if (round % 2 == 0) static_cast<void>(queue.Pop(kStorePatience));
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
  }
  const auto runtime = RuntimeOver(store);
  EXPECT_EQ(AnswerOf(runtime.get(), prompt).ids,
            sim::RightAnswer(prompt.ids, 3, true, 50, kNoEnds));
}

TEST(PrefixStoreTest, ManyRequestsOfAFewPrefixesAnswerRight) {
  const auto store =
      std::make_shared<TardyStore>(MakeStoreOfMemory(), std::chrono::milliseconds(1));
  // In later rounds of a model with states, in slots for all and for one.
  for (const int32_t num_state_slots : {0, 0, 0, 40, 40, 3, 5}) {
    EventQueue queue;
    const auto runtime = RuntimeOver(store, num_state_slots);
    std::map<uint64_t, Prompt> prompts;
    for (uint64_t tag = 0; tag < 24; ++tag) {
      prompts[tag] = MakePrompt(static_cast<TokenId>(tag % 3 * 9), 130 + tag % 5 * 10, 6);
      runtime->Submit(prompts[tag], &queue, tag);
    }
    std::map<uint64_t, Collected> collected;
    for (size_t done = 0; done < prompts.size();) {
      const auto event = queue.Pop(kStorePatience);
      ASSERT_TRUE(event.has_value());
      collected[event->tag].Take(*event);
      done += event->kind == Event::Kind::kDone ? 1 : 0;
    }
    for (const auto& [tag, prompt] : prompts) {
      EXPECT_EQ(collected[tag].ids, sim::RightAnswer(prompt.ids, 6, true, 50, kNoEnds));
    }
    runtime->FinishSaves(kStorePatience);
  }
}

// An engine without memory for copies.
class CopylessEngine final : public sim::SimEngine {
 public:
  explicit CopylessEngine(const EngineLimits& limits) : SimEngine(limits, kNoEnds) {}
  std::unique_ptr<KvBlockCopy> ReadPages(std::span<const PageId>) override { return nullptr; }
  std::unique_ptr<KvBlockCopy> BeginWrite(std::span<const PageId>) override { return nullptr; }
};

TEST(PrefixStoreTest, AnEngineWithoutMemoryForCopiesStillAnswers) {
  const std::shared_ptr<KvBlockStore> store = MakeStoreOfMemory();
  const Prompt prompt = MakePrompt(1, 150, 5);
  {
    const auto runtime = RuntimeOver(store);
    AnswerOf(runtime.get(), prompt);
    runtime->FinishSaves(kStorePatience);
  }
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 32;
  options.kv_store = store;
  const auto runtime =
      Runtime::Create(std::make_unique<CopylessEngine>(SmallLimits()), nullptr, options).value();
  const Collected answer = AnswerOf(runtime.get(), prompt);
  EXPECT_EQ(answer.ids, sim::RightAnswer(prompt.ids, 5, true, 50, kNoEnds));
  EXPECT_EQ(answer.done.usage.cached_tokens, 0);
  AnswerOf(runtime.get(), MakePrompt(20, 150, 5));
  runtime->FinishSaves(kStorePatience);
  EXPECT_EQ(runtime->Stats().scheduler.saved_pages, 0);
  EXPECT_EQ(runtime->Stats().scheduler.dropped_pages, 32);
}

}  // namespace
}  // namespace minisgl::runtime
