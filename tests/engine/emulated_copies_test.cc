// Copies of keys and values through the CUDA engine's streams, on the emulator.
#include <gtest/gtest.h>

#include "engine/emulated_cuda.h"
#include "engine/kv_copies.h"
#include "minisgl/engine/device_engine.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/store/kv_block_memory.h"
#include "slow.h"

namespace minisgl {
namespace {

using EmulatedCopiesTest = EmulatedCudaTest;

TEST_F(EmulatedCopiesTest, APrefixFromBlocksAnswersAsComputed) {
  MarkSlow("a model on the emulator");
  const CudaOpsConfig config{.deterministic = true};
  const auto prompt = RandomPrompt(kBlock + 5, 4);
  const auto alone = OnCuda({.max_running_requests = 4}, config);
  const auto wanted = alone->Generate(alone->AddRow(prompt), kAll, 3);
  const auto from = OnCuda({.page_size = 4, .max_running_requests = 4}, config);
  const auto to = OnCuda({.max_running_requests = 4}, config);
  EXPECT_TRUE(SameResults(AnswerFromBlocks(from.get(), 4, to.get(), 16, prompt, 3), wanted));
}

// Steps are launched beside a read, and it still takes what it was asked for.
TEST_F(EmulatedCopiesTest, StepsGoOnBesideARead) {
  MarkSlow("a model on the emulator");
  const auto cuda = OnCuda({.max_running_requests = 4}, {.deterministic = true});
  TestRow* row = cuda->AddRow(RandomPrompt(kBlock + 5, 4));
  cuda->ExtendAll(row);
  ASSERT_TRUE(cuda->Step().ok());
  const auto wanted = ReadBlocks(cuda.get(), *row, 16, 1);
  const auto copy = cuda->engine()->ReadPages(PagesOfBlock(*cuda, *row, 16, 0));
  cuda->ExtendAll(row);
  cuda->Launch();
  static_cast<void>(copy->IsReady());  // does not wait: the step goes on
  ASSERT_TRUE(cuda->Collect().ok());
  ASSERT_TRUE(copy->IsReady());
  Block block(wanted[0].size());
  ASSERT_TRUE(copy->TakeBlock(block).ok());
  EXPECT_TRUE(block == wanted[0]);
}

// Prefixes that left the KV cache come back from the tier in the host's memory, and are answered as
// before.
TEST_F(EmulatedCopiesTest, PrefixesComeBackFromTheHostsMemory) {
  MarkSlow("a model on the emulator");
  auto device = EmulatedCuda({.deterministic = true});
  const ModelEngineOptions engine_options = {.max_running_requests = 2,
                                             .max_prefill_tokens = 96,
                                             .max_seq_len = 120,
                                             .page_size = 16,
                                             .num_pages = 8,  // of one request
                                             .memory_ratio = 0.9};
  const auto plan = PlanMemory(model_->config, engine_options, 0, device.get());
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  auto engine = MakeDeviceEngine(model_->config, *model_->checkpoint, *plan, std::move(device), {});
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  const int64_t block_bytes = (*engine)->KvBlockBytes(kKvBlockTokens);
  EXPECT_EQ(block_bytes, static_cast<int64_t>(plan->kv_bytes_per_token) * kKvBlockTokens);
  const std::shared_ptr<KvBlockStore> store = MakeKvBlockMemory(
      {.max_bytes = 4 * block_bytes, .identity = "emulated", .block_bytes = block_bytes});
  RuntimeOptions options;
  options.scheduler.max_prefill_tokens = 96;
  options.kv_store = store;
  EventQueue queue;
  auto runtime = Runtime::Create(std::move(engine).value(), nullptr, options);
  ASSERT_TRUE(runtime.ok()) << runtime.status().message();
  std::vector<std::vector<TokenId>> answers;
  std::vector<int64_t> cached;
  for (const uint64_t seed : {1, 2, 1}) {
    Prompt prompt;
    prompt.ids = RandomPrompt(seed == 2 ? 116 : kBlock + 20, seed);  // the second takes all pages
    prompt.max_tokens = 4;
    (*runtime)->Submit(std::move(prompt), &queue);
    answers.emplace_back();
    while (true) {
      const auto event = queue.Pop(std::chrono::minutes(2));
      ASSERT_TRUE(event.has_value());
      answers.back().insert(answers.back().end(), event->token_ids.begin(), event->token_ids.end());
      if (event->kind != Event::Kind::kDone) continue;
      EXPECT_EQ(event->error_message, "");
      cached.push_back(event->usage.cached_tokens);
      break;
    }
    (*runtime)->FinishSaves(std::chrono::minutes(2));
  }
  EXPECT_EQ(cached, (std::vector<int64_t>{0, 0, kBlock}));
  EXPECT_EQ(answers[0], answers[2]);
  EXPECT_EQ((*runtime)->Stats().scheduler.loaded_tokens, kBlock);
  EXPECT_EQ(store->stats().blocks_written, 2);
}

}  // namespace
}  // namespace minisgl
