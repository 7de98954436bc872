// Loading reports its progress from nothing to the end, one step a layer, and the end also if it
// fails half-way.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "minisgl/base/log.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/tiny_model.h"

namespace minisgl {
namespace {

using Said = std::vector<std::pair<int64_t, int64_t>>;

class LoadingProgressTest : public testing::Test {
 protected:
  LoadingProgressTest() {
    SetProgressSink([this](std::string_view what, int64_t done, int64_t total) {
      EXPECT_EQ(what, "loading weights");
      said_.emplace_back(done, total);
    });
  }
  ~LoadingProgressTest() override { SetProgressSink(nullptr); }

  Status Load(const std::vector<FileTensor>& tensors) {
    const TinyModelDir dir;
    const auto checkpoint = WriteCheckpoint(dir, tensors);
    const auto ops = MakeNaiveOps();
    return model::LoadModelWeights(TinyConfig(), *checkpoint, DType::kF32, ops.get()).status();
  }

  Said said_;
};

TEST_F(LoadingProgressTest, OneStepALayerAndTheEndOnce) {
  ASSERT_TRUE(Load(TinyTensors(TinyConfig())).ok());
  EXPECT_EQ(said_, (Said{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
}

TEST_F(LoadingProgressTest, NothingIsSaidOfAModelThatIsRefused) {
  auto tensors = TinyTensors(TinyConfig());
  tensors.pop_back();
  ASSERT_FALSE(Load(tensors).ok());
  EXPECT_TRUE(said_.empty());
}

}  // namespace
}  // namespace minisgl
