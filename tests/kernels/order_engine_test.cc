// The checks of order over whole steps of the CUDA engine: every kernel after the one that it
// follows there.
#include <gtest/gtest.h>

#include "emulator/emulator.h"
#include "engine/emulated_cuda.h"
#include "engine/scheduled_run.h"
#include "gpu/gpu_models.h"

namespace minisgl::cuda {
namespace {

// Prompts in chunks, rows that decode in a graph, drafts; one row samples.
void RunSteps(EngineDriver* engine, int32_t vocab_size) {
  TestRow* const a = engine->AddRow(RandomPrompt(5, 1, vocab_size));
  TestRow* const b = engine->AddRow(RandomPrompt(20, 2, vocab_size));
  b->sampling = {.temperature = 0.8, .top_p = 0.9, .repetition_penalty = 1.1};
  const auto step = [&] {
    const Status status = engine->Step();
    ASSERT_TRUE(status.ok()) << status.message();
  };
  engine->ExtendAll(a);
  engine->Extend(b, 13);
  step();
  engine->ExtendAll(a);
  engine->ExtendAll(b);
  step();
  engine->ExtendAll(a);
  engine->ExtendAll(b);
  step();
  engine->ExtendAll(a);
  // The driver plans no drafts for models with states.
  if (engine->engine()->limits().num_state_slots > 0) {
    engine->ExtendAll(b);
  } else {
    engine->ExtendWithDrafts(b, std::vector<TokenId>{1, 2});
  }
  step();
}

TEST(OrderEngineTest, StepsOfModelsAreClean) {
  for (const char* const name : {"", "gpt_oss", "qwen2_moe", "qwen3_next", "falcon_h1"}) {
    SCOPED_TRACE(name);
    const auto model = *name == 0 ? MakeGpuTinyModel() : MakeGpuArchitecture(name);
    if (model == nullptr) continue;  // no tests/golden/models beside the sources
    emulator::ForEachOrder(*name == 0 ? 3 : 1, [&](int order) {
      SCOPED_TRACE(order);
      EngineDriver engine(*model, {.max_running_requests = 2, .graph_max_rows = 2},
                          EmulatedCuda({}));
      RunSteps(&engine, static_cast<int32_t>(model->config.vocab_size));
    });
  }
}

// With the words that put untried kernels in use, and large matrices' kernels for all.
TEST(OrderEngineTest, StepsByUntriedKernelsAreClean) {
  const auto model = MakeGpuTinyModel();
  for (const bool ring : {false, true}) {
    SCOPED_TRACE(ring);
    emulator::ForEachOrder(2, [&](int order) {
      SCOPED_TRACE(order);
      EngineDriver engine(*model, {.max_running_requests = 2, .graph_max_rows = 2},
                          EmulatedCuda({}, nullptr,
                                       {.ring = ring,
                                        .product_ends = true,
                                        .l2_hint = true,
                                        .whole_lines = true,
                                        .fetch_far = true}));
      RunSteps(&engine, static_cast<int32_t>(model->config.vocab_size));
    });
  }
}

// A prompt that is scored beside one that is answered: the head in pieces of two rows, each of
// which uses the memory of the one before it; results stay in the step's own memory while the next
// step runs.
TEST(OrderEngineTest, StepsThatScoreAreClean) {
  const auto model = MakeGpuTinyModel();
  const auto vocab_size = static_cast<int32_t>(model->config.vocab_size);
  Request scored, answered;
  scored.id = 1;
  scored.prompt = RandomPrompt(14, 1, vocab_size);
  scored.sampling.num_prompt_logprobs = 3;
  answered.id = 2;
  answered.prompt = RandomPrompt(5, 2, vocab_size);
  answered.max_tokens = 4;
  answered.sampling.num_logprobs = 2;
  emulator::ForEachOrder(3, [&](int order) {
    SCOPED_TRACE(order);
    EngineDriver engine(*model, {.max_running_requests = 2, .graph_max_rows = 2}, EmulatedCuda({}));
    const ScheduledRun run =
        RunScheduled(engine.engine(), {.max_prefill_tokens = 8}, {scored, answered}, 1);
    EXPECT_EQ(run.scored.at(1).size(), 13u);
    EXPECT_EQ(run.answers.at(2).size(), 4u);
  });
}

}  // namespace
}  // namespace minisgl::cuda
