// Products that run as one kernel have the bits of products that run one after another, in every
// order of blocks and threads, one chain after another.
#include "chain_scene.h"

namespace minisgl::cuda {
namespace {

// True: weights go through the ring of large matrices.
class GemvChainTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) device_.context.ring_bytes_min = 0;
  }

  void ExpectSame(const ChainCase& c) {
    ChainScene wanted(c), chain(c);
    wanted.RunOneByOne(device_.context);
    chain.RunAsChain(device_.context, arrived_.data());
    EXPECT_TRUE(chain.GuardsIntact()) << Name(c);
    const auto same = [&](const DeviceOutput& found, const DeviceOutput& expected,
                          const char* what) {
      for (const float value : expected.values()) ASSERT_FALSE(std::isnan(value)) << Name(c);
      ExpectSameBytes(found.data(), expected.data(), expected.num_bytes(), Name(c) + what);
    };
    same(chain.gated(), wanted.gated(), ", gated");
    same(chain.stream(), wanted.stream(), ", stream");
    same(chain.qkv(), wanted.qkv(), ", qkv");
    EXPECT_EQ(arrived_[0] % 0x80000000u, 0u);
  }

  KernelDevice device_;
  DeviceArray<uint32_t> arrived_ = DeviceArray<uint32_t>(std::vector<uint32_t>{0});
};

// Rows that end within a group, widths that are no whole tiles, more tiles than blocks.
TEST_P(GemvChainTest, HasTheBitsOfSeparateKernels) {
  for (const DType dtype : kHalfTypes) {
    for (const int64_t num_tokens : {1, 3, 8}) {
      ExpectSame({.dtype = dtype, .num_tokens = num_tokens});
      ExpectSame({.dtype = dtype,
                  .num_tokens = num_tokens,
                  .attention = 264,
                  .hidden = 104,
                  .intermediate = 40,
                  .qkv = 51,
                  .has_bias = true});
    }
  }
}

// Tiles that 8 warps share, two at a time for a block, and each length of a run.
TEST_P(GemvChainTest, DividesAsTheKernelsOfOneProduct) {
  device_.context.num_multiprocessors = 3;
  ExpectSame({.num_tokens = 2, .attention = 72, .hidden = 2064, .intermediate = 24, .qkv = 40});
  ExpectSame({.attention = 4200, .hidden = 40, .intermediate = 1032, .qkv = 2056});
  ExpectSame({.attention = 40, .hidden = 136, .intermediate = 2056, .qkv = 4104});
}

TEST_P(GemvChainTest, EveryOrderGivesTheSame) {
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    SCOPED_TRACE(order);
    ExpectSame({.num_tokens = 2, .attention = 96, .hidden = 72, .intermediate = 136, .qkv = 45});
  });
}

// One block: it meets none.
TEST_P(GemvChainTest, OneMultiprocessorIsEnough) {
  device_.context.num_multiprocessors = 1;
  ExpectSame({.num_tokens = 2});
}

INSTANTIATE_TEST_SUITE_P(Ring, GemvChainTest, testing::Bool());

TEST(GemvChainTakesTest, ProductsOfFewTokensWithWholeChunks) {
  const KernelDevice device;
  ChainScene scene({});
  const ProductParams product = scene.Products(true)[1];
  EXPECT_TRUE(ChainTakes(device.context, product));
  const auto takes = [&](const auto& change) {
    ProductParams changed = product;
    Matrix matrix = *product.linear.weight;
    NormParams norm = *product.norm;
    change(&changed, &matrix, &norm);
    changed.linear.weight = &matrix;
    changed.norm = &norm;
    return ChainTakes(device.context, changed);
  };
  EXPECT_FALSE(takes([](auto* p, auto*, auto*) { p->linear.num_tokens = 9; }));
  EXPECT_FALSE(takes([](auto*, auto* matrix, auto*) { matrix->num_in = 60; }));
  EXPECT_FALSE(
      takes([](auto*, auto* matrix, auto*) { matrix->quantization = Quantization::kInt8; }));
  EXPECT_FALSE(takes([](auto*, auto*, auto* norm) { norm->kind = NormKind::kLayer; }));
  EXPECT_FALSE(takes([](auto*, auto*, auto* norm) { norm->residual_factor = 0.5f; }));
  // More inputs than there is room for in shared memory.
  EXPECT_FALSE(takes([](auto*, auto* matrix, auto*) { matrix->num_in = 65536; }));
}

}  // namespace
}  // namespace minisgl::cuda
