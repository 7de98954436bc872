// Several ranks: on the emulator each has a device of its own, on a GPU two share it. Sums have the
// same bits on all ranks, tokens equal one rank's, and the time of a sum is printed by its bytes.
// On one GPU two kernels side by side, in the GPU's own memory, take that time.
#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>

#include "gpu/gpu_fixture.h"
#include "gpu/gpu_models.h"
#include "kernels/kernel_check.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

class GpuRanksTest : public GpuTest {
 protected:
  using Ranks = std::vector<std::unique_ptr<DeviceOps>>;

  static Ranks MakeRanks(const CudaOpsConfig& config = {},
                         int64_t one_shot_bytes = int64_t{1} << 60) {
    auto ranks = MakeGpuRanks(2, config, one_shot_bytes);
    MINISGL_CHECK(ranks.ok(), "{}", ranks.status().message());
    return std::move(ranks).value();
  }
  // Runs the kernel of a sum once, so that it is loaded before a rank waits for another one.
  static void Load(DeviceOps* ops, const AllReduceParams& sum) {
    ops->RunAlone(true);
    ops->AllReduce(sum);
    const Status status = ops->Synchronize();
    MINISGL_CHECK(status.ok(), "{}", status.message());
    ops->RunAlone(false);
  }
  // Runs work(rank) for all ranks at once.
  static void OnAll(const Ranks& ranks, const std::function<void(size_t)>& work) {
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks.size(); ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
  }
};

TEST_F(GpuRanksTest, SumsHaveTheSameBitsOnAllRanks) {
  const std::vector<int64_t> counts =
      IsSlow() ? std::vector<int64_t>{1, 520}
               : std::vector<int64_t>{1, 8, 4096, 4099, 65'536, 1'000'003, 16'777'216};
  for (const int64_t one_shot_bytes : {int64_t{1} << 60, int64_t{0}}) {
    for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32}) {
      const Ranks ranks = MakeRanks({}, one_shot_bytes);
      for (const int64_t count : counts) {
        SCOPED_TRACE(testing::Message() << count << " of " << DTypeName(dtype));
        std::vector<std::vector<float>> parts(2);
        std::vector<float> wanted;
        for (int64_t i = 0; i < count; ++i) {
          for (size_t rank = 0; rank < 2; ++rank) {
            parts[rank].push_back(
                static_cast<float>((i * 37 + 11 * static_cast<int64_t>(rank)) % 129) / 64);
          }
          wanted.push_back(parts[0].back() + parts[1].back());
        }
        std::vector<std::unique_ptr<GpuArray>> arrays;
        for (size_t rank = 0; rank < 2; ++rank) {
          arrays.push_back(std::make_unique<GpuArray>(ranks[rank].get(), dtype, parts[rank]));
          Load(ranks[rank].get(), {.x = arrays[rank]->ptr(dtype), .count = count});
        }
        std::vector<Status> done(2);
        OnAll(ranks, [&](size_t rank) {
          ranks[rank]->AllReduce({.x = arrays[rank]->ptr(dtype), .count = count});
          done[rank] = ranks[rank]->Synchronize();
        });
        std::vector<unsigned char> bytes(wanted.size() * DTypeBytes(dtype));
        StoreElements(bytes.data(), dtype, wanted);
        for (size_t rank = 0; rank < 2; ++rank) {
          ASSERT_TRUE(done[rank].ok()) << done[rank].message();
          EXPECT_EQ(arrays[rank]->Bytes(), bytes) << "rank " << rank;
        }
      }
    }
  }
}

// A graph of sums, launched again and again; the parts are zero, so that sums stay the same.
TEST_F(GpuRanksTest, SumsInGraphsAndTheirTime) {
  const int num_sums = IsSlow() ? 2 : 100, num_launches = IsSlow() ? 2 : 20;
  for (const int64_t one_shot_bytes : {int64_t{1} << 60, int64_t{0}}) {
    const Ranks ranks = MakeRanks({}, one_shot_bytes);
    for (int64_t num_bytes = 2048; num_bytes <= (IsSlow() ? 2048 : 16 << 20); num_bytes *= 4) {
      const std::vector<float> zeros(static_cast<size_t>(num_bytes / 2));
      std::vector<std::unique_ptr<GpuArray>> arrays;
      std::vector<std::unique_ptr<DeviceGraph>> graphs;
      for (const auto& ops : ranks) {
        arrays.push_back(std::make_unique<GpuArray>(ops.get(), DType::kBF16, zeros));
        Load(ops.get(), {.x = arrays.back()->ptr(DType::kBF16), .count = num_bytes / 2});
        ASSERT_TRUE(ops->BeginCapture().ok());
        for (int i = 0; i < num_sums; ++i) {
          ops->AllReduce({.x = arrays.back()->ptr(DType::kBF16), .count = num_bytes / 2});
        }
        auto graph = ops->EndCapture();
        ASSERT_TRUE(graph.ok()) << graph.status().message();
        graphs.push_back(std::move(graph).value());
      }
      double best_us = 0;
      for (int launch = 0; launch < num_launches; ++launch) {
        std::vector<Status> done(2);
        const auto begin = std::chrono::steady_clock::now();
        OnAll(ranks, [&](size_t rank) {
          ranks[rank]->Replay(graphs[rank].get());
          done[rank] = ranks[rank]->Synchronize();
        });
        const std::chrono::duration<double, std::micro> taken =
            std::chrono::steady_clock::now() - begin;
        for (const Status& status : done) ASSERT_TRUE(status.ok()) << status.message();
        const double us = taken.count() / num_sums;
        best_us = launch == 0 ? us : std::min(best_us, us);
      }
      std::printf("sum over 2 ranks in %s: %9lld bytes %8.2f us\n",
                  one_shot_bytes > 0 ? "one shot " : "two shots", static_cast<long long>(num_bytes),
                  best_us);
      for (const auto& array : arrays) {
        const auto bytes = array->Bytes();
        EXPECT_TRUE(std::all_of(bytes.begin(), bytes.end(), [](auto byte) { return byte == 0; }));
      }
    }
  }
}

// Greedy tokens and their log-probabilities, in graphs and without, with one step in flight and
// with two.
TEST_F(GpuRanksTest, TokensAreThoseOfOneRank) {
  MarkSlow("a model on the emulator");
  const auto model = MakeGpuTinyModel();
  const auto prompt = RandomPrompt(IsSlow() ? 9 : 70, 3);
  const int32_t num_tokens = IsSlow() ? 3 : 30;
  const CudaOpsConfig f16{.activation_dtype = DType::kF16};
  DriverOptions options = {.max_running_requests = 2, .warms_up = !IsSlow()};
  EngineDriver alone(*model, options, Make(f16));
  const auto wanted = alone.Generate(alone.AddRow(prompt), kAll, num_tokens);
  std::vector<RowResult> first;
  options.num_ranks = 2;
  for (const int32_t graph_max_rows : {0, 2}) {
    options.graph_max_rows = options.graph_max_tokens = graph_max_rows;
    EngineDriver two(*model, options, MakeRanks(f16));
    for (const int32_t chunk : {7, kAll}) {
      const auto actual = two.Generate(two.AddRow(prompt), chunk, num_tokens);
      ASSERT_EQ(actual.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(actual[i].outcome, RowResult::Outcome::kToken);
        const auto& top = wanted[i].top_logprobs;
        EXPECT_NEAR(actual[i].top_logprobs[0].logprob, top[0].logprob, 0.02) << "token " << i;
        if (actual[i].token != wanted[i].token) {
          EXPECT_LT(top[0].logprob - top[1].logprob, 0.04) << "token " << i;
          break;  // from here on the two answer different texts
        }
      }
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
