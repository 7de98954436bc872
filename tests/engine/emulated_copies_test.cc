// Copies of keys and values through the CUDA engine's streams, on the emulator.
#include <gtest/gtest.h>

#include "engine/emulated_cuda.h"
#include "engine/kv_copies.h"
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

}  // namespace
}  // namespace minisgl
