// Products of few rows by kernels made for what stands behind the sums, with hints for the caches:
// the bits of the kernels that they replace. Whole lines change the order of sums, for all numbers
// of tokens alike. And what a product fetches for those behind attention.
#include <algorithm>

#include "product_parts.h"

namespace minisgl::cuda {
namespace {

constexpr int kWays = 4;

class ProductEndsTest : public ProductPartsTest {
 protected:
  // Way 0: today's kernels.
  void SetWay(int way) {
    device_.context.product_ends = way == 1 || way == 3;
    device_.context.l2_hint = way >= 2;
  }
  // The same bits in every way. Each product with its parts is one kernel.
  void ExpectSameInEveryWay(const PartsCase& c) {
    SetWay(0);
    Scene wanted(c);
    RunAsOne(c, &wanted);
    for (int way = 1; way < kWays; ++way) {
      SetWay(way);
      Scene scene(c);
      RunAsOne(c, &scene);
      EXPECT_TRUE(scene.GuardsIntact()) << Name(c);
      ExpectSameBytes(scene.Result(c).data(), wanted.Result(c).data(), wanted.Result(c).num_bytes(),
                      Name(c) + ", way " + std::to_string(way));
    }
  }
};

// Tiles of 8 rows by 16 and by 8 warps, of 16 and of 24 rows; several tiles for a block, a last one
// cut short; several batches for a warp.
TEST_P(ProductEndsTest, HaveTheBitsOfTheKernelsThatTheyReplace) {
  for (const auto& [num_out, num_in] :
       {std::pair{46, 4200}, {2052, 72}, {4104, 136}, {6144, 40}, {4104, 1288}}) {
    device_.context.num_multiprocessors = num_out == 6144 ? 132 : 4;
    for (const int64_t num_tokens : {1, 3, 8}) {
      // Large matrices are slow here.
      if (num_out > 4000 && num_tokens != (num_in > 1000 ? 1 : 8)) continue;
      const PartsCase c = {.num_tokens = num_tokens, .num_out = num_out, .num_in = num_in};
      PartsCase adds = c, gated = c, both = c;
      adds.adds = true;
      gated.activates = true;
      both.has_norm = both.activates = true;
      ExpectSameInEveryWay(c);
      ExpectSameInEveryWay(adds);
      ExpectSameInEveryWay(gated);
      if (GetParam() && num_in % 8 == 0 && num_tokens * num_in <= 4096) ExpectSameInEveryWay(both);
    }
  }
}

// What no kernel is made for: other types, biases, activations, more tokens, rows that are not
// aligned.
TEST_P(ProductEndsTest, OtherProductsKeepTheirKernels) {
  ExpectSameInEveryWay({.dtype = DType::kF16, .num_tokens = 2, .num_out = 45, .num_in = 520});
  ExpectSameInEveryWay({.num_tokens = 12, .num_out = 45, .num_in = 520, .adds = true});
  ExpectSameInEveryWay({.num_tokens = 2, .num_out = 45, .num_in = 33});
  ExpectSameInEveryWay({.num_tokens = 2, .num_out = 45, .num_in = 96, .has_bias = true});
  ExpectSameInEveryWay(
      {.num_tokens = 2, .num_out = 4104, .num_in = 40, .has_bias = true, .activates = true});
  for (const Activation activation : {Activation::kGeluTanh, Activation::kClampedSwiglu}) {
    ExpectSameInEveryWay({.num_tokens = 2,
                          .num_out = 4104,
                          .num_in = 40,
                          .activates = true,
                          .activation = activation});
  }
  ExpectSameInEveryWay(
      {.num_tokens = 1, .num_out = 4104, .num_in = 40, .activates = true, .is_gated = false});
}

TEST_P(ProductEndsTest, EveryThreadOrderGivesTheSame) {
  device_.context.product_ends = true;
  for (const bool adds : {false, true}) {
    const PartsCase c = {.num_tokens = 2, .num_out = 45, .num_in = 520, .adds = adds};
    Scene first(c);
    RunAsOne(c, &first);
    emulator::ForEachOrder(emulator::kNumOrders, [&](int) {
      Scene scene(c);
      RunAsOne(c, &scene);
      ExpectSameBytes(scene.Result(c).data(), first.Result(c).data(), first.Result(c).num_bytes(),
                      Name(c));
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, ProductEndsTest, testing::Bool());

class WholeLinesTest : public ProductEndsTest {
 protected:
  std::vector<float> Run(const PartsCase& c) {
    Scene scene(c);
    RunAsOne(c, &scene);
    EXPECT_TRUE(scene.GuardsIntact()) << Name(c);
    return scene.Result(c).values();
  }
};

TEST_P(WholeLinesTest, AreTheSameSumsForAnyNumberOfTokens) {
  for (const int64_t num_in : {40, 2056}) {
    // 8 tokens of 2,056 inputs are not staged.
    PartsCase c = {.num_tokens = 16, .num_out = 4104, .num_in = num_in};
    SetWay(0);
    device_.context.whole_lines = false;
    const std::vector<float> today = Run(c);
    device_.context.whole_lines = true;
    const std::vector<float> all = Run(c);
    for (size_t i = 0; i < all.size(); ++i) {
      ASSERT_NEAR(all[i], today[i], 0.02 + 0.01 * std::abs(today[i])) << num_in << ", " << i;
    }
    for (const int64_t num_tokens : {1, 8}) {
      c.num_tokens = num_tokens;
      for (int way = 0; way<kWays; way += num_in> 1000 ? 3 : 1) {
        SetWay(way);
        const std::vector<float> few = Run(c);
        ExpectSameBytes(few.data(), all.data(), few.size() * sizeof(float), Name(c));
      }
    }
  }
}

TEST_P(WholeLinesTest, PartsAreThoseOfKernelsOfTheirOwn) {
  device_.context.whole_lines = true;
  PartsCase adds = {.num_tokens = 2, .num_out = 4104, .num_in = 264, .adds = true};
  PartsCase gated = {
      .num_tokens = 2, .num_out = 4104, .num_in = 264, .has_norm = true, .activates = true};
  for (const PartsCase& c : {adds, gated}) {
    for (int way = 0; way < kWays; ++way) {
      SetWay(way);
      Check(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, WholeLinesTest, testing::Values(true));

class FetchFarTest : public ProductPartsTest {
 protected:
  // The bytes of `matrix`, whose weights begin at `begin`, that a product of `num_tokens` asks for;
  // each once.
  std::vector<bool> Fetched(const PartsCase& c, const BehindAttention& behind,
                            const Matrix& matrix) {
    Scene scene(c);
    scene.linear.behind_attention = behind;
    Scene plain(c);
    RunAsOne(c, &plain);
    emulator::Options options = emulator::GetOptions();
    options.records_prefetches = true;
    emulator::SetOptions(options);
    RunAsOne(c, &scene);
    options.records_prefetches = false;
    emulator::SetOptions(options);
    ExpectSameBytes(scene.Result(c).data(), plain.Result(c).data(), plain.Result(c).num_bytes(),
                    Name(c));
    const auto num_bytes = static_cast<size_t>(matrix.num_out * matrix.num_in * 2);
    std::vector<bool> fetched(num_bytes);
    for (const emulator::Prefetch& part : emulator::TakePrefetches()) {
      const auto at = static_cast<size_t>(static_cast<const std::byte*>(part.begin) -
                                          static_cast<const std::byte*>(matrix.storage.get()));
      for (size_t i = at; i < at + part.num_bytes && at < num_bytes; ++i) {
        EXPECT_FALSE(fetched.at(i)) << "byte " << i << " twice";
        fetched.at(i) = true;
      }
    }
    return fetched;
  }
  static std::vector<bool> Bytes(size_t num_bytes, std::vector<std::pair<size_t, size_t>> ranges) {
    std::vector<bool> bytes(num_bytes);
    for (const auto& [begin, end] : ranges) {
      std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                bytes.begin() + static_cast<std::ptrdiff_t>(end), true);
    }
    return bytes;
  }
};

TEST_P(FetchFarTest, TheFirstMatrixAndTheBeginningsOfTheNext) {
  const DeviceInput first(DType::kBF16, std::vector<float>(300 * 64));
  const DeviceInput second(DType::kBF16, std::vector<float>(400 * 64));
  const auto matrix = [](const DeviceInput& weight, int64_t num_out) {
    return Matrix{.num_out = num_out,
                  .num_in = 64,
                  .dtype = DType::kBF16,
                  .storage = {weight.data(), [](const void*) {}}};
  };
  const Matrix output = matrix(first, 300), next = matrix(second, 400);
  BehindAttention behind = {.output = &output, .next = &next, .next_is_gated = true};
  const PartsCase c = {.num_tokens = 2, .num_out = GetParam() ? 4104 : 40, .num_in = 72};
  const size_t all = 300 * 128, all_next = 400 * 128;
  EXPECT_EQ(Fetched(c, behind, output), Bytes(all, {})) << "not asked for";
  device_.context.far_bytes = 20'000;
  EXPECT_EQ(Fetched(c, behind, output), Bytes(all, {{0, 20'000}}));
  EXPECT_EQ(Fetched(c, behind, next), Bytes(all_next, {}));
  device_.context.far_bytes = static_cast<int64_t>(all) + 8'000;
  EXPECT_EQ(Fetched(c, behind, output), Bytes(all, {{0, all}}));
  EXPECT_EQ(Fetched(c, behind, next),
            Bytes(all_next, {{0, 4'000}, {all_next / 2, all_next / 2 + 4'000}}));
  device_.context.far_bytes = 1 << 30;
  EXPECT_EQ(Fetched(c, behind, next), Bytes(all_next, {{0, all_next}}));
  behind.next_is_gated = false;
  device_.context.far_bytes = static_cast<int64_t>(all) + 8'000;
  EXPECT_EQ(Fetched(c, behind, next), Bytes(all_next, {{0, 8'000}}));
  PartsCase many = c;
  many.num_tokens = 9;
  EXPECT_EQ(Fetched(many, behind, output), Bytes(all, {})) << "of more tokens";
}

INSTANTIATE_TEST_SUITE_P(Ring, FetchFarTest, testing::Bool());

}  // namespace
}  // namespace minisgl::cuda
