// The checks of order over whole steps of the CUDA engine: every kernel after the one that it
// follows there.
#include <gtest/gtest.h>

#include "emulator/emulator.h"
#include "engine/emulated_cuda.h"
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
  engine->ExtendWithDrafts(b, std::vector<TokenId>{1, 2});
  step();
}

TEST(OrderEngineTest, StepsOfModelsAreClean) {
  for (const char* const name : {"", "gpt_oss", "qwen2_moe"}) {
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

}  // namespace
}  // namespace minisgl::cuda
