// The products of a shape: which they are, what they move and compute, and their times on a device
// that the host emulates.
#include "bench/bench_products.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/host_device_ops.h"
#include "minisgl/model/token_weights.h"

namespace minisgl::bench {
namespace {

ModelConfig Qwen06() {
  ModelConfig config;
  config.num_layers = 28;
  config.hidden_size = 1024;
  config.num_heads = 16;
  config.num_kv_heads = 8;
  config.head_dim = 128;
  config.intermediate_size = 3072;
  config.vocab_size = 151936;
  config.layers.resize(28);
  return config;
}

TEST(BenchProductsTest, AreTheMatricesOfALayerAndTheHead) {
  const ModelConfig config = Qwen06();
  const std::vector<ProductShape> products = ProductsOf(config);
  EXPECT_EQ(products, (std::vector<ProductShape>{{"qkv", 4096, 1024},
                                                 {"attention output", 1024, 2048},
                                                 {"gate and up", 6144, 1024},
                                                 {"down", 1024, 3072},
                                                 {"head", 151936, 1024, true}}));
  double elements = 0;
  for (const ProductShape& product : products) {
    if (!product.is_head) elements += static_cast<double>(product.num_out * product.num_in);
  }
  EXPECT_EQ(28 * elements, CountTokenWeights(config).layers);
  // Layers of two kinds: one without keys of its own, and one without gates and attention.
  ModelConfig mixed = config;
  mixed.layers[1].kv_layer = 0;
  mixed.layers[2].has_experts = true;
  EXPECT_EQ(ProductsOf(mixed).size(), 6u);
  EXPECT_EQ(ProductsOf(mixed)[4], (ProductShape{"qkv", 2048, 1024}));
}

TEST(BenchProductsTest, MoveWeightsInputsAndOutputs) {
  const ProductShape down = {"down", 1024, 3072}, head = {"head", 151936, 1024, true};
  EXPECT_EQ(ProductBytes(down, 8, DType::kBF16, DType::kBF16),
            2.0 * (1024 * 3072 + 8 * (1024 + 3072)));
  EXPECT_EQ(ProductBytes(head, 2, DType::kBF16, DType::kBF16),
            2.0 * 151936 * 1024 + 2 * (2.0 * 1024 + 4.0 * 151936));
  const WeightFormat int8 = {DType::kBF16, Quantization::kInt8};
  EXPECT_EQ(ProductBytes(down, 1, int8, DType::kBF16),
            1024.0 * (3072 + 2 * 96) + 2.0 * (1024 + 3072));
  EXPECT_EQ(ProductFlops(down, 8), 2.0 * 8 * 1024 * 3072);
  // On an H200 8 rows wait for memory, 2,048 for the tensor cores.
  const Ceilings h200 = {.bytes_per_s = 4.3e12, .flops_per_s = 790e12};
  EXPECT_NEAR(ProductLimit(down, 8, DType::kBF16, DType::kBF16, h200), 1.478e-6, 1e-8);
  EXPECT_NEAR(ProductLimit(down, 2048, DType::kBF16, DType::kBF16, h200), 16.31e-6, 1e-7);
}

TEST(BenchProductsTest, TurnsOverColdBytes) {
  const ProductShape down = {"down", 1024, 3072};  // 6 MiB
  EXPECT_EQ(ProductCopies(down, DType::kBF16, 60 * kMiB), 10);
  EXPECT_EQ(ProductCopies(down, DType::kBF16, 61 * kMiB), 11);
  EXPECT_EQ(ProductCopies(down, DType::kBF16, 1), 1);
  EXPECT_EQ(ProductCopies({"tiny", 8, 8}, DType::kBF16, 60 * kMiB), 256);
}

TEST(BenchProductsTest, LaunchesOfEachNumberOfRowsAreOneGraph) {
  const auto counters = std::make_shared<HostDeviceCounters>();
  auto opened = BenchDevice::FromDevice(
      MakeHostDeviceOps(uint64_t{1} << 30, HostDeviceFaults(), counters, DType::kBF16));
  ASSERT_TRUE(opened.ok());
  BenchDevice device = std::move(opened).value();
  ASSERT_TRUE(device.Reserve(kCeilingLimits).ok());
  const ProductTimer timer = {.format = DType::kBF16, .cold_bytes = 4096, .repeat = 2};
  const int32_t tokens[] = {1, 3, 8};
  for (const ProductShape& product : {ProductShape{"down", 24, 40}, {"head", 24, 40, true}}) {
    const int before = counters->captures;
    const auto times = timer.Time(product, tokens, &device);
    ASSERT_TRUE(times.ok()) << times.status().message();
    ASSERT_EQ(times->size(), 3u);
    // The host device's graph of all 20 launches takes 1 ms.
    for (const double seconds : *times) EXPECT_DOUBLE_EQ(seconds, 1e-3 / 20);
    EXPECT_EQ(counters->captures - before, 3);
  }
  // 200 copies of 6 MiB are more than 60 % of 1 GiB.
  const ProductTimer large = {.format = DType::kBF16, .cold_bytes = 1200 * kMiB};
  const auto none = large.Time({"down", 1024, 3072}, tokens, &device);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace minisgl::bench
