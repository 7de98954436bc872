// Loading takes no more memory than the packed weights and one layer of the files: pages of files
// that were read do not stay in the resident set.
#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "minisgl/base/check.h"
#include "minisgl/model/pack_source.h"
#include "minisgl/ops.h"
#include "model/model_weights.h"
#include "model/tiny_model.h"
#include "temporary_folder.h"
#include "weights/architectures.h"

namespace minisgl {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kSlack = 6 * kMiB;  // the allocator, threads, rows that are converted

// A figure of /proc/self/status, in bytes.
int64_t OwnStatus(const std::string& name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return -1;
}

// The peak of the resident set from here on, above the set resident now.
class PeakMemory {
 public:
  PeakMemory() {
    std::ofstream("/proc/self/clear_refs") << "5";  // VmHWM begins anew
    begin_ = OwnStatus("VmRSS");
    MINISGL_CHECK(OwnStatus("VmHWM") < begin_ + kMiB, "the peak cannot be set back");
  }
  int64_t bytes() const { return OwnStatus("VmHWM") - begin_; }

 private:
  int64_t begin_;
};

// 12 layers of 2 MB in bf16, and between them one of 13 MB.
class LoadingMemoryTest : public testing::Test {
 protected:
  static constexpr int32_t kLargeLayer = 5;

  LoadingMemoryTest() : config_(TinyConfig()) {
    config_.hidden_size = 256;
    config_.intermediate_size = 1280;
    config_.num_layers = 13;
    config_.layers.resize(13);
    config_.layers[kLargeLayer].intermediate_size = 8192;
    std::vector<FileTensor> tensors;
    const auto required = weights::RequiredTensors(config_);
    MINISGL_CHECK(required.ok(), "{}", required.status().message());
    for (const weights::RequiredTensor& tensor : *required) {
      int64_t num_bytes = 2;
      for (const int64_t size : tensor.shape) num_bytes *= size;
      tensors.push_back(
          {tensor.name, "BF16", tensor.shape, std::string(static_cast<size_t>(num_bytes), '\0')});
      const bool is_large = tensor.name.find(fmt::format(".{}.", kLargeLayer)) != std::string::npos;
      if (is_large) large_layer_ += num_bytes;
    }
    checkpoint_ = WriteCheckpoint(dir_, tensors);
    tensors.clear();
  }

  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "the sanitizer's own memory is resident, too";
#endif
  }

  ModelConfig config_;
  int64_t large_layer_ = 0;  // its bytes
  const TinyModelDir dir_;
  std::unique_ptr<Checkpoint> checkpoint_;
};

TEST_F(LoadingMemoryTest, FilesAreResidentALayerAtATime) {
  ASSERT_GT(checkpoint_->total_bytes(), uint64_t{30 * kMiB});
  const WeightFormat int8(DType::kBF16, Quantization::kInt8);
  for (const auto& [format, target] :
       {std::pair(WeightFormat(DType::kBF16), ""), {int8, ""}, {int8, "amx_stand_in"}}) {
    auto ops = MakeCpuOps({.num_threads = 2, .target = target});
    ASSERT_TRUE(ops.ok());
    const PeakMemory peak;
    const auto weights = model::LoadModelWeights(config_, *checkpoint_, format, ops->get());
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const auto packed = model::ModelWeightBytes(config_, format, DType::kF32);
    ASSERT_TRUE(packed.has_value());
    EXPECT_LT(peak.bytes(), static_cast<int64_t>(*packed) + large_layer_ + kSlack) << format.Name();
    EXPECT_GT(peak.bytes(), static_cast<int64_t>(*packed / 2)) << "not the peak of loading";
  }
}

TEST_F(LoadingMemoryTest, FilesThatAreHashedAreNotResident) {
  const TemporaryFolder folder;
  const PeakMemory peak;
  const WeightFormat format = DType::kBF16;
  const auto source = MakePackSource(config_, *checkpoint_, {&format, 1}, folder.Path("packed"), 2);
  ASSERT_TRUE(source.has_value());
  EXPECT_FALSE(source->key.empty());
  EXPECT_LT(peak.bytes(), kSlack);
}

}  // namespace
}  // namespace minisgl
