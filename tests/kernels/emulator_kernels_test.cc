// Correct kernels on the emulator: each has the right result in every order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "device/device.h"
#include "emulator/emulator.h"
#include "emulator_check.h"

namespace minisgl::cuda {
namespace {

using namespace device;
using emulator::DeviceArray;
using emulator::ForEachOrder;
using emulator::kNumOrders;

// Runs the kernel in every order and checks after each.
void RunInOrders(const CudaLaunch& launch, const std::function<void()>& kernel,
                 const std::function<void()>& check) {
  ForEachOrder(kNumOrders, [&](int order) {
    SCOPED_TRACE(order);
    emulator::RunGrid(launch, "test", kernel);
    check();
  });
}

TEST(EmulatorKernels, BlockReductions) {
  std::vector<float> values(1000);
  std::mt19937 random(1);
  for (float& value : values) value = static_cast<float>(random() % 2001) - 1000.0f;
  const DeviceArray<float> x(values);
  DeviceArray<float> out(6);
  const float* const in = x.data();
  float* const results = out.data();
  RunInOrders(
      {.grid = {3}, .block = {1024}, .shared_bytes = 2 * 33 * 4},
      [=] {
        SharedArena arena;
        const Shared<float> scratch = arena.Take<float>(33);
        const int i = Thread();
        const float value = i < 1000 ? in[i] : 0.0f;
        const float sum = BlockSum(value, scratch);
        const float largest = BlockMax(value, -INFINITY, scratch);
        if (i == static_cast<int>(blockIdx.x) * 17) {
          results[blockIdx.x * 2] = sum;
          results[blockIdx.x * 2 + 1] = largest;
        }
      },
      [&] {
        for (size_t block = 0; block < 3; ++block) {
          EXPECT_EQ(out[2 * block], std::accumulate(values.begin(), values.end(), 0.0f));
          EXPECT_EQ(out[2 * block + 1], *std::max_element(values.begin(), values.end()));
          out[2 * block] = out[2 * block + 1] = NAN;
        }
      });
}

TEST(EmulatorKernels, BuiltinVariables) {
  DeviceArray<int> out(2 * 3 * 4 * 4 * 2 * 2);
  int* const results = out.data();
  RunInOrders(
      {.grid = {2, 3, 4}, .block = {4, 2, 2}},
      [=] {
        const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
        const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
        results[block * 16 + thread] = static_cast<int>(block * 16 + thread);
      },
      [&] {
        for (size_t i = 0; i < out.size(); ++i) {
          EXPECT_EQ(out[i], static_cast<int>(i));
          out[i] = -1;
        }
      });
}

TEST(EmulatorKernels, TransposingTileCopy) {
  constexpr int kTile = 32;
  std::vector<float> values(kTile * kTile);
  std::iota(values.begin(), values.end(), 0.0f);
  const DeviceArray<float> x(values);
  DeviceArray<float> out(values.size());
  const float* const in = x.data();
  float* const results = out.data();
  RunInOrders(
      {.block = {256}, .shared_bytes = kTile * kTile * 4},
      [=] {
        SharedArena arena;
        const Shared<float> tile = arena.Take<float>(kTile * kTile);
        CopyAsync16(tile + 4 * Thread(), in + 4 * Thread(), true);
        CopyAsyncCommit();
        CopyAsyncWait<0>();
        __syncthreads();
        for (int i = Thread(); i < kTile * kTile; i += static_cast<int>(blockDim.x)) {
          results[i] = tile[i % kTile * kTile + i / kTile];
        }
      },
      [&] {
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_EQ(out[i], values[i % kTile * kTile + i / kTile]);
          out[i] = NAN;
        }
      });
}

// Each lane writes its result of an operation.
template <typename T, typename Fn>
std::vector<T> OfLanes(const Fn& fn) {
  DeviceArray<T> out(32);
  T* const results = out.data();
  std::vector<T> first;
  RunInOrders(
      {.block = {32}}, [=] { results[Lane()] = fn(Lane()); },
      [&] {
        if (first.empty()) first = out.values();
        EXPECT_EQ(out.values(), first);
      });
  return first;
}

TEST(EmulatorKernels, Shuffles) {
  const auto up = OfLanes<int>([](int i) { return __shfl_up_sync(kAllLanes, 100 + i, 3, 16); });
  const auto down = OfLanes<float>(
      [](int i) { return __shfl_down_sync(kAllLanes, 0.5f + static_cast<float>(i), 5); });
  const auto exchanged =
      OfLanes<double>([](int i) { return __shfl_xor_sync(kAllLanes, 0.25 + i, 9); });
  const auto indexed = OfLanes<int64_t>(
      [](int i) { return __shfl_sync(kAllLanes, (int64_t{1} << 40) + i, 37 + i, 8); });
  for (int i = 0; i < 32; ++i) {
    const size_t lane = static_cast<size_t>(i);
    EXPECT_EQ(up[lane], 100 + (i % 16 < 3 ? i : i - 3));
    EXPECT_EQ(down[lane], 0.5f + static_cast<float>(i + 5 > 31 ? i : i + 5));
    EXPECT_EQ(exchanged[lane], 0.25 + (i ^ 9));
    EXPECT_EQ(indexed[lane], (int64_t{1} << 40) + i / 8 * 8 + (37 + i) % 8);
  }
}

TEST(EmulatorKernels, VotesAndReductions) {
  const auto ballot = OfLanes<unsigned>([](int i) { return __ballot_sync(kAllLanes, i % 3 == 0); });
  const auto any = OfLanes<int>([](int i) { return __any_sync(kAllLanes, i == 31); });
  const auto all = OfLanes<int>([](int i) { return __all_sync(kAllLanes, i != 31); });
  const auto halves = OfLanes<unsigned>(
      [](int i) { return i < 16 ? __ballot_sync(0xffffu, 1) : __ballot_sync(0xffff0000u, i & 1); });
  const auto match = OfLanes<unsigned>([](int i) { return __match_any_sync(kAllLanes, i % 8); });
  const auto sum = OfLanes<unsigned>(
      [](int i) { return __reduce_add_sync(kAllLanes, static_cast<unsigned>(i)); });
  for (size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(ballot[i], 0x49249249u);
    EXPECT_EQ(any[i], 1);
    EXPECT_EQ(all[i], 0);
    EXPECT_EQ(halves[i], i < 16 ? 0xffffu : 0xaaaa0000u);
    EXPECT_EQ(match[i], 0x01010101u << i % 8);
    EXPECT_EQ(sum[i], 496u);
  }
}

TEST(EmulatorKernels, SharedElements) {
  DeviceArray<int> out(5);
  int* const results = out.data();
  RunInOrders(
      {.block = {1}, .shared_bytes = 32},
      [=] {
        SharedArena arena;
        const Shared<int> s = arena.Take<int>(8);
        s[0] = 5;
        s[0] += 2;
        s[1] = s[0];
        s[1] *= 3;
        results[0] = s[0] + s[1];
        results[1] = s[0]++;
        results[2] = ++s[0];
        (s + 2)[0] = s[1] > s[0] ? s[1] : 0;
        results[3] = s[2];
        s.As<uint16_t>()[6] = uint16_t{3};
        s.As<uint16_t>()[7] = uint16_t{1};
        results[4] = s[3];
      },
      [&] {
        EXPECT_EQ(out.values(), (std::vector<int>{28, 7, 9, 21, 65539}));
      });
}

// The product of a 16x16 tile and a 16x8 one, both taken to fragments by ldmatrix: A by rows; B
// from rows of k, so by .trans, as the values of attention are. `keys`: B from rows of columns, so
// without, as the keys are.
template <typename T>
void MmaKernel(const T* a, const T* b, float* d, bool keys) {
  SharedArena arena;
  const Shared<T> tile_a = arena.Take<T>(16 * 16);
  const Shared<T> tile_b = arena.Take<T>(16 * 16);
  CopyAsync16(tile_a + 8 * Lane(), a + 8 * Lane(), true);
  CopyAsync16(tile_b + 8 * Lane(), b + 8 * Lane(), true);
  CopyAsyncCommit();
  CopyAsyncWait<0>();
  __syncwarp();
  const int row = Lane() % 8, matrix = Lane() / 8;
  uint32_t fragments_a[4], fragments_b[4];
  // A's quarters: down first, then right.
  LoadMatrix4(fragments_a, tile_a + ((row + 8 * (matrix % 2)) * 16 + 8 * (matrix / 2)));
  if (keys) {
    // Rows are columns of B: matrices 0 and 1 are both halves of k of columns 0 to 7.
    LoadMatrix4(fragments_b, tile_b + ((row + 8 * (matrix / 2)) * 16 + 8 * (matrix % 2)));
  } else {
    // Rows are k: matrices 0 and 1 are both halves of k of columns 0 to 7.
    LoadMatrix4Trans(fragments_b, tile_b + ((row + 8 * (matrix % 2)) * 16 + 8 * (matrix / 2)));
  }
  for (int half = 0; half < 2; ++half) {
    float sums[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    const uint32_t b_half[2] = {fragments_b[2 * half], fragments_b[2 * half + 1]};
    Mma16816<T>(sums, fragments_a, b_half);
    const int group = Lane() / 4, column = 2 * (Lane() % 4) + 8 * half;
    for (int i = 0; i < 4; ++i) d[(group + 8 * (i / 2)) * 16 + column + i % 2] = sums[i];
  }
}

template <typename T>
void TestMma(bool keys) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<T> a(256), b(256);
  for (T& x : a) x = FromFloat<T>(normal(random));
  for (T& x : b) x = FromFloat<T>(normal(random));
  const DeviceArray<T> device_a(a), device_b(b);
  DeviceArray<float> d(256);
  RunInOrders(
      {.block = {32}, .shared_bytes = 1024},
      [&] { MmaKernel<T>(device_a.data(), device_b.data(), d.data(), keys); },
      [&] {
        for (size_t row = 0; row < 16; ++row) {
          for (size_t column = 0; column < 16; ++column) {
            double sum = 0.5, magnitude = 0.5;
            for (size_t k = 0; k < 16; ++k) {
              const double product = double{ToFloat(a[row * 16 + k])} *
                                     ToFloat(b[keys ? column * 16 + k : k * 16 + column]);
              sum += product;
              magnitude += std::fabs(product);
            }
            ASSERT_NEAR(d[row * 16 + column], sum, 16 * 0x1p-24 * magnitude)
                << "row " << row << " column " << column;
            d[row * 16 + column] = NAN;
          }
        }
      });
}

TEST(EmulatorKernels, MmaOfBf16) {
  TestMma<bf16>(false);
  TestMma<bf16>(true);
}
TEST(EmulatorKernels, MmaOfF16) {
  TestMma<f16>(false);
  TestMma<f16>(true);
}

// The fragments themselves, from values that name their row and column.
TEST(EmulatorKernels, LoadMatrixFragments) {
  std::vector<uint16_t> values(256);
  std::iota(values.begin(), values.end(), static_cast<uint16_t>(0));
  const DeviceArray<uint16_t> x(values);
  DeviceArray<uint32_t> out(256);
  RunInOrders(
      {.block = {32}, .shared_bytes = 512},
      [&] {
        SharedArena arena;
        const Shared<uint16_t> tile = arena.Take<uint16_t>(256);
        StoreShared(tile + 8 * Lane(), LoadVec<8>(x.data() + 8 * Lane()));
        __syncwarp();
        uint32_t plain[4], transposed[4];
        LoadMatrix4(plain, tile + 8 * Lane());
        LoadMatrix4Trans(transposed, tile + 8 * Lane());
        for (int i = 0; i < 4; ++i) {
          out[static_cast<size_t>(Lane() * 4 + i)] = plain[i];
          out[static_cast<size_t>(128 + Lane() * 4 + i)] = transposed[i];
        }
      },
      [&] {
        for (uint32_t lane = 0; lane < 32; ++lane) {
          for (uint32_t matrix = 0; matrix < 4; ++matrix) {
            const uint32_t base = matrix * 64, row = lane / 4, column = lane % 4 * 2;
            EXPECT_EQ(out[lane * 4 + matrix],
                      (base + row * 8 + column) | (base + row * 8 + column + 1) << 16);
            EXPECT_EQ(out[128 + lane * 4 + matrix],
                      (base + column * 8 + row) | (base + (column + 1) * 8 + row) << 16);
          }
        }
      });
}

TEST(EmulatorKernels, StorageTypes) {
  EXPECT_EQ(ToFloat(FromFloat<bf16>(1.00390625f)), 1.0f);       // a tie, to even
  EXPECT_EQ(ToFloat(FromFloat<bf16>(1.01171875f)), 1.015625f);  // a tie, to even
  EXPECT_EQ(ToFloat(FromFloat<f16>(1.00048828125f)), 1.0f);     // a tie, to even
  EXPECT_EQ(ToFloat(FromFloat<f16>(65520.0f)), INFINITY);
  const float2 pair = Unpack2<bf16>(Pack2<bf16>(1.5f, -2.0f));
  EXPECT_EQ(pair.x, 1.5f);
  EXPECT_EQ(pair.y, -2.0f);
  EXPECT_EQ(Pack2<f16>(1.0f, 0.0f), 0x3c00u);
}

// Orders differ: the order in which threads reach an atomic, and blocks run, is not the same in any
// two of them.
TEST(EmulatorKernels, OrdersDiffer) {
  std::vector<std::vector<int>> seen;
  ForEachOrder(kNumOrders, [&](int) {
    DeviceArray<int> order(128);
    DeviceArray<int> next(std::vector<int>{0});
    emulator::RunGrid({.grid = {2}, .block = {64}}, "test", [&] {
      order[static_cast<size_t>(AtomicAddGlobal(next.data(), 1))] =
          Thread() + 64 * static_cast<int>(blockIdx.x);
    });
    for (const auto& other : seen) EXPECT_NE(order.values(), other);
    seen.push_back(order.values());
  });
}

// A block of 1024 threads with many barriers and warp operations: the cost of the emulator.
TEST(EmulatorKernels, ManyMeetings) {
  DeviceArray<float> out(1024);
  RunInOrders(
      {.block = {1024}, .shared_bytes = 33 * 4},
      [&] {
        SharedArena arena;
        const Shared<float> scratch = arena.Take<float>(33);
        float sum = 0;
        for (int i = 0; i < 4; ++i) sum += BlockSum(static_cast<float>(Thread()), scratch);
        out[static_cast<size_t>(Thread())] = sum;
      },
      [&] { EXPECT_EQ(out.values(), std::vector<float>(1024, 4 * 523776.0f)); });
}

}  // namespace
}  // namespace minisgl::cuda
