// Prompts that become vectors on the CUDA engine without a GPU: models of every kind that gives
// them, against the CPU's engine over the oracle, and the same bits in every schedule.
#include <gtest/gtest.h>

#include "engine/emulated_cuda.h"
#include "engine/vector_scene.h"
#include "gpu/gpu_models.h"
#include "slow.h"

namespace minisgl {
namespace {

class EmulatedVectorsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    MarkSlow("models on the emulator");
    model_ = cuda::MakeGpuArchitecture(GetParam());
    if (model_ == nullptr) GTEST_SKIP() << "no models beside the sources";
    scene_ = std::make_unique<VectorScene>(model_->config, model_->checkpoint.get());
  }
  std::unique_ptr<TestModel> model_;
  std::unique_ptr<VectorScene> scene_;
};

TEST_P(EmulatedVectorsTest, VectorsAgreeWithTheOracle) {
  const std::vector<Request> requests = scene_->Requests({19, 1, 40, 7, 2, 33, 1, 26});
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const double tolerance = dtype == DType::kF16 ? 0.01 : 0.08;
    const ScheduledRun expected = scene_->OnCpu({}, MakeNaiveOps(), requests);
    ASSERT_EQ(expected.vectors.size(), requests.size());
    const ScheduledRun run =
        scene_->OnDevice({}, EmulatedCuda({.activation_dtype = dtype}), requests);
    ExpectVectorsAgree(run, expected, tolerance, DTypeName(dtype));
  }
}

// Pages, chunks of causal prompts, graphs, room that grows, a start that warms up, and each prompt
// alone.
TEST_P(EmulatedVectorsTest, EveryScheduleGivesTheSameBits) {
  const std::vector<Request> requests = scene_->Requests({19, 44, 9, 1, 31, 12});
  const CudaOpsConfig deterministic = {.deterministic = true};
  const ScheduledRun expected = scene_->OnDevice({}, EmulatedCuda(deterministic), requests);
  ASSERT_EQ(expected.vectors.size(), requests.size());
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const ScheduledRun alone =
        scene_->OnDevice({.page_size = 4, .depth = 0}, EmulatedCuda(deterministic), {requests[i]});
    EXPECT_EQ(alone.vectors.at(requests[i].id), expected.vectors.at(requests[i].id)) << i;
  }
  const ScheduledRun cut =
      scene_->OnDevice({.page_size = 1,
                        .max_running_requests = 2,
                        .max_prefill_tokens = model_->config.attends_both_ways ? 45 : 10,
                        .graph_max_rows = 2,
                        .graph_max_tokens = 16,
                        .warms_up = true},
                       EmulatedCuda(deterministic), requests);
  EXPECT_EQ(cut.vectors, expected.vectors);
}

TEST_P(EmulatedVectorsTest, TwoRanksAgreeWithOne) {
  if (model_->config.num_kv_heads % 2 != 0) GTEST_SKIP() << "an odd number of heads";
  const std::vector<Request> requests = scene_->Requests({19, 24, 9});
  const CudaOpsConfig f16 = {.activation_dtype = DType::kF16};
  const ScheduledRun one = scene_->OnDevice({}, EmulatedCuda(f16), requests);
  const ScheduledRun two = scene_->OnDevices({}, EmulatedRanks(2, f16), requests);
  ExpectVectorsAgree(two, one, 0.006, "two ranks");
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedVectorsTest,
                         testing::Values("pooling/bert", "pooling/distilbert", "pooling/jina_bert",
                                         "pooling/mpnet", "pooling/roberta", "pooling/nomic_bert",
                                         "pooling/modernbert", "pooling/gemma3", "qwen3"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name.substr(name.find('/') + 1);
                         });

// The files of each kind as they are, whose heads are small: the CPU's vectors of them are those of
// the reference (tests/batch/encoder_program_test.cc).
TEST(EmulatedVectorFilesTest, VectorsAgreeWithTheCpu) {
  MarkSlow("models on the emulator");
  for (const char* const name :
       {"bert", "bert_old", "distilbert", "jina_bert", "jina_bert_normed", "mpnet", "roberta",
        "xlm_roberta", "nomic_bert", "modernbert", "gemma3"}) {
    SCOPED_TRACE(name);
    const std::string dir = std::string(MINISGL_SOURCE_DIR "/tests/golden/pooling/") + name;
    const auto config = LoadModelConfig(dir);
    ASSERT_TRUE(config.ok()) << config.status().message();
    const auto checkpoint = Checkpoint::Open(dir);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const VectorScene scene(*config, checkpoint->get());
    const std::vector<Request> requests = scene.Requests({19, 1, 40, 7});
    const ScheduledRun expected = scene.OnCpu({}, MakeNaiveOps(), requests);
    const ScheduledRun run =
        scene.OnDevice({}, EmulatedCuda({.activation_dtype = DType::kF16}), requests);
    ExpectVectorsAgree(run, expected, 0.01, name);
  }
}

}  // namespace
}  // namespace minisgl
