// Sums and columns of several ranks: all ranks' kernels run as one grid, a row of blocks for each
// rank, so that blocks of all ranks are interleaved and the order of their accesses is checked.
#include <cmath>
#include <tuple>

#include "kernel_check.h"
#ifdef MINISGL_CHECKED_KERNELS
#include "rank_norm_cuh_checked.h"
#else
#include "kernels/rank_norm.cuh"
#endif
#include "exchange_scene.h"

namespace minisgl::cuda {

void RunRankSums();
void RunRankNorms();

namespace {

// Sums that depend on their order: large numbers cancel.
float Addend(int rank, int64_t i) {
  const float small = 0.001f * static_cast<float>(i % 97) + 0.37f * static_cast<float>(rank);
  if (rank == i % 3) return 4096.0f + small;
  return rank == (i + 1) % 3 ? -4096.0f + small : small;
}

template <typename T>
void CheckSums(int num_ranks, int64_t count, bool two_shots, int num_blocks) {
  SCOPED_TRACE(testing::Message() << num_ranks << " ranks, " << count << " elements, "
                                  << (two_shots ? "two shots" : "one shot"));
  ExchangeScene scene(num_ranks);
  for (int round = 0; round < 3; ++round) {  // as a graph that is launched again
    std::vector<std::vector<float>> parts;
    std::vector<T> wanted;
    for (int rank = 0; rank < num_ranks; ++rank) {
      std::vector<float> part;
      for (int64_t i = 0; i < count; ++i) {
        part.push_back(device::ToFloat(device::FromFloat<T>(Addend(rank, i + round))));
      }
      parts.push_back(std::move(part));
    }
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      float sum = parts[0][i];
      for (size_t rank = 1; rank < parts.size(); ++rank) sum += parts[rank][i];
      wanted.push_back(device::FromFloat<T>(sum));
    }
    const auto sums = scene.Sum<T>(parts, two_shots, num_blocks);
    for (int rank = 0; rank < num_ranks; ++rank) {
      ASSERT_EQ(std::memcmp(sums[static_cast<size_t>(rank)].data(), wanted.data(),
                            wanted.size() * sizeof(T)),
                0)
          << "rank " << rank << ", round " << round;
    }
  }
}

TEST(RankExchange, EveryRankHasTheSumsInTheOrderOfRanks) {
  for (const auto& [num_ranks, count, num_blocks] :
       {std::tuple{2, 40, 1}, {2, 2061, 2}, {4, 1029, 1}, {8, 517, 1}}) {
    for (const bool two_shots : {false, true}) {
      CheckSums<device::bf16>(num_ranks, count, two_shots, num_blocks);
    }
  }
  CheckSums<float>(3, 130, true, 1);
  CheckSums<device::f16>(2, 5, true, 1);
  // Several slices of a block.
  CheckSums<float>(2, 3 * 4 * kExchangeThreads + 2, false, 1);
}

TEST(RankExchange, BlocksMeetInEveryOrder) {
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    SCOPED_TRACE(order);
    for (const bool two_shots : {false, true}) CheckSums<device::bf16>(4, 300, two_shots, 2);
  });
}

TEST(RankExchange, ColumnsOfAllRanksStandBesideEachOther) {
  emulator::ForEachOrder(2, [&](int) {
    for (const auto& [bounds, num_tokens] : {std::pair{std::vector<int64_t>{0, 97, 194}, 3},
                                             {{0, 5, 9, 13}, 1},
                                             {{0, 700, 1401}, 2}}) {
      ExchangeScene scene(static_cast<int>(bounds.size()) - 1);
      for (int round = 0; round < 2; ++round) {
        const int64_t width = bounds.back(), stride = width + 3;
        const auto outs = scene.Gather(bounds, num_tokens, stride, static_cast<float>(round));
        for (const std::vector<float>& out : outs) {
          for (int64_t token = 0; token < num_tokens; ++token) {
            for (int64_t column = 0; column < width; ++column) {
              ASSERT_EQ(out[static_cast<size_t>(token * stride + column)],
                        ExchangeScene::Element(token, column) + static_cast<float>(round));
            }
          }
        }
      }
    }
  });
}

// One kernel, and the two kernels one after the other.
template <typename T>
void CheckSumNorm(int num_ranks, const NormParams& norm, int num_blocks) {
  SCOPED_TRACE(testing::Message() << num_ranks << " ranks, " << norm.num_tokens << " tokens of "
                                  << norm.width);
  const int64_t count = norm.num_tokens * norm.width;
  const DeviceInput residual(DType::kF32, RandomFloats(count, 5));
  const DeviceInput weight(DType::kF32, RandomFloats(norm.width, 6));
  NormParams params = norm;
  if (params.eps > 0) params.weight = weight.f32();
  if (params.kind == NormKind::kLayer) params.bias = weight.f32();
  ExchangeScene scene(num_ranks);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::vector<float>> parts(static_cast<size_t>(num_ranks));
    for (int rank = 0; rank < num_ranks; ++rank) {
      for (int64_t i = 0; i < count; ++i) {
        parts[static_cast<size_t>(rank)].push_back(Addend(rank, i + round));
      }
    }
    const auto found = scene.SumNorm<T>(parts, residual.values(), params, num_blocks);
    ExchangeScene unfused(num_ranks);
    DeviceArray<T> x(unfused.Sum<T>(parts, false, 1)[0]);
    DeviceArray<float> stream(residual.values());
    NormParams alone = params;
    alone.x = alone.out = ActivationPtr(x.data(), kDTypeOf<T>);
    alone.residual = stream.data();
    KernelDevice device;
    ASSERT_EQ(LaunchNorm(device.context, alone), kCudaSuccess);
    const std::vector<T> wanted = x.values();
    for (const auto& of_rank : found) {
      EXPECT_EQ(std::memcmp(of_rank.out.data(), wanted.data(), wanted.size() * sizeof(T)), 0);
      EXPECT_EQ(of_rank.residual, stream.values());
    }
  }
}

TEST(RankExchange, ASumWithANormHasTheBitsOfBoth) {
  const NormParams rms = {.num_tokens = 3, .width = 264, .eps = 1e-5f, .x_scale = 0.7f};
  NormParams layer = rms, none = rms;
  layer.kind = NormKind::kLayer;
  layer.residual_factor = 0.5f;
  none.eps = 0;  // without weights: the stream is rounded
  for (const NormParams& norm : {rms, layer, none}) {
    CheckSumNorm<device::bf16>(2, norm, 2);
    CheckSumNorm<device::f16>(3, norm, 1);
  }
  CheckSumNorm<device::bf16>(4, {.num_tokens = 1, .width = 8, .eps = 1e-5f, .x_scale = 1}, 1);
}

// Runs a sum of four ranks of which rank 1 never comes; true if one says that it waited for that.
// Others may be stopped by the alarm, or wait for a rank that waits for it.
bool SaysWhomItWaitedFor(bool two_shots, int64_t wait_ns) {
  ExchangeScene scene(4);
  scene.SetWait(wait_ns);
  scene.SetDead(1);
  const std::vector<std::vector<float>> parts(4, std::vector<float>(20, 1));
  scene.Sum<float>(parts, two_shots, 1);
  EXPECT_NE(scene.alarm(0), 0u);
  bool waited_for_it = false;
  for (const int rank : {0, 2, 3}) waited_for_it = waited_for_it || scene.alarm(1 + rank) == 2;
  // Every later wait ends at once.
  scene.SetWait(int64_t{1} << 60);
  scene.Sum<float>(parts, two_shots, 1);
  return waited_for_it;
}

// The wait is one of a real clock. Where this process does not run for as long, ranks that have had
// no turn yet are taken for dead, too: then once more, with a longer one.
TEST(RankExchange, AWaitForARankThatDiesEnds) {
  for (const bool two_shots : {false, true}) {
    int64_t wait_ns = 2'000'000;
    while (!SaysWhomItWaitedFor(two_shots, wait_ns)) {
      wait_ns *= 2;
      ASSERT_LT(wait_ns, 100'000'000'000) << "none says that it waited for rank 1";
    }
  }
}

}  // namespace

// The scene of planted faults: sums of three exchanges in one shot and in two, which three ranks
// must have alike.
void RunRankSums() {
  std::vector<std::vector<float>> parts(3);
  for (int64_t i = 0; i < 9 * kExchangeThreads; ++i) {
    for (int rank = 0; rank < 3; ++rank)
      parts[static_cast<size_t>(rank)].push_back(Addend(rank, i));
  }
  for (const bool two_shots : {false, true}) {
    ExchangeScene scene(3);
    scene.SetLate(1);
    const auto sums = scene.Sum<float>(parts, two_shots, 1);
    if (sums[1] != sums[0] || sums[2] != sums[0]) {
      throw emulator::Fault("ranks have different sums");
    }
  }
}

// The same with norms behind the sums.
void RunRankNorms() {
  std::vector<std::vector<float>> parts(3);
  for (int64_t i = 0; i < 2 * 256; ++i) {
    for (int rank = 0; rank < 3; ++rank)
      parts[static_cast<size_t>(rank)].push_back(Addend(rank, i));
  }
  const std::vector<float> residual(2 * 256, 1.0f);
  const DeviceInput weight(DType::kF32, RandomFloats(256, 6));
  ExchangeScene scene(3);
  scene.SetLate(1);
  const auto found = scene.SumNorm<device::bf16>(
      parts, residual, {.weight = weight.f32(), .num_tokens = 2, .width = 256, .eps = 1e-5f}, 1);
  if (found[1].residual != found[0].residual || found[2].residual != found[0].residual) {
    throw emulator::Fault("ranks have different sums");
  }
}

}  // namespace minisgl::cuda
