// Sums over ranks and columns of ranks equal the oracle's, with the same bits on every rank and in
// every run, for any number of threads.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "minisgl/base/random.h"
#include "minisgl/ops.h"
#include "op_check.h"

namespace minisgl {
namespace {

using cpu::RandomFloats;

using MakeOne = std::function<std::unique_ptr<Ops>(const HostRank&)>;

std::unique_ptr<Ops> Naive(const HostRank& rank) { return MakeNaiveOps(DType::kF32, rank); }

MakeOne Cpu(int num_threads) {
  return [num_threads](const HostRank& rank) {
    return MakeCpuOps({.num_threads = num_threads, .target = "", .rank = rank}).value();
  };
}

// Calls body(rank, its operations) on a thread for each of `count` ranks.
void RunRanks(int32_t count, const MakeOne& make,
              const std::function<void(int32_t rank, Ops* ops)>& body) {
  const auto rendezvous = std::make_shared<Rendezvous>(count, /*spins=*/false);
  std::vector<std::unique_ptr<Ops>> ops;
  for (int32_t rank = 0; rank < count; ++rank) ops.push_back(make({rank, rendezvous}));
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] { body(rank, ops[static_cast<size_t>(rank)].get()); });
  }
  for (std::thread& thread : threads) thread.join();
}

// Returns each rank's values after the sum.
std::vector<std::vector<float>> Sums(int32_t count, int64_t size, const MakeOne& make) {
  std::vector<std::vector<float>> values;
  for (int32_t rank = 0; rank < count; ++rank) {
    values.push_back(RandomFloats(static_cast<size_t>(size), static_cast<uint64_t>(rank) + 7));
  }
  RunRanks(count, make, [&](int32_t rank, Ops* ops) {
    ops->AllReduce({.x = values[static_cast<size_t>(rank)].data(), .count = size});
  });
  return values;
}

TEST(RankCollectivesTest, SumsAreInTheOrderOfRanksOnEveryRank) {
  for (const int32_t count : {2, 3, 4}) {
    for (const int64_t size : {1, 15, 16, 17, 300, 3 * 8192 + 5}) {
      std::vector<float> wanted(static_cast<size_t>(size), 0.0f);
      for (int32_t rank = 0; rank < count; ++rank) {
        const auto part = RandomFloats(wanted.size(), static_cast<uint64_t>(rank) + 7);
        for (size_t i = 0; i < wanted.size(); ++i) {
          wanted[i] = rank == 0 ? part[i] : wanted[i] + part[i];
        }
      }
      for (const int num_threads : {1, 2}) {
        for (const auto& found : Sums(count, size, Cpu(num_threads))) {
          EXPECT_EQ(found, wanted) << count << " ranks, " << size;
        }
      }
      for (const auto& found : Sums(count, size, Naive)) {
        for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5);
      }
    }
  }
}

TEST(RankCollectivesTest, TheFirstRankGetsTheColumnsOfAll) {
  constexpr int64_t kTokens = 3, kWidths[] = {4, 1, 6}, kAll = 11;
  for (const MakeOne& make : {MakeOne(Naive), Cpu(1), Cpu(2)}) {
    std::vector<float> out(kTokens * kAll, -1.0f);
    RunRanks(3, make, [&](int32_t rank, Ops* ops) {
      int64_t first = 0;
      for (int32_t before = 0; before < rank; ++before) first += kWidths[before];
      std::vector<float> own;
      for (int64_t t = 0; t < kTokens; ++t) {
        for (int64_t i = 0; i < kWidths[rank]; ++i) {
          own.push_back(static_cast<float>(100 * t + first + i));
        }
      }
      ops->GatherColumns({.x = own.data(),
                          .out = rank == 0 ? out.data() : nullptr,
                          .num_tokens = kTokens,
                          .width = kWidths[rank],
                          .first = first,
                          .out_stride = kAll});
    });
    for (int64_t i = 0; i < kTokens * kAll; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], static_cast<float>(i / kAll * 100 + i % kAll));
    }
  }
}

// Vectors whose parts are on three ranks, in the middle of longer tokens.
TEST(RankCollectivesTest, NormsAreOverThePartsOfAllRanks) {
  constexpr int64_t kTokens = 5, kPart = 37, kStride = 40, kRanks = 3;
  std::vector<std::vector<float>> parts;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    parts.push_back(RandomFloats(kTokens * kStride, static_cast<uint64_t>(rank) + 40));
  }
  const std::vector<float> weight = RandomFloats(kRanks * kPart, 50);
  std::vector<float> wanted;  // [T, ranks * part]
  for (int64_t t = 0; t < kTokens; ++t) {
    for (const std::vector<float>& part : parts) {
      const auto begin = part.begin() + t * kStride;
      wanted.insert(wanted.end(), begin, begin + kPart);
    }
  }
  Naive({})->Norm({.x = wanted.data(),
                   .residual = nullptr,
                   .weight = weight.data(),
                   .out = wanted.data(),
                   .num_tokens = kTokens,
                   .width = kRanks * kPart,
                   .eps = 1e-5f});
  for (const MakeOne& make : {MakeOne(Naive), Cpu(1), Cpu(2)}) {
    std::vector<std::vector<float>> found = parts;
    RunRanks(kRanks, make, [&](int32_t rank, Ops* ops) {
      float* const x = found[static_cast<size_t>(rank)].data();
      std::vector<float> means(kTokens);
      ops->MeanSquares({.x = x,
                        .out = means.data(),
                        .num_tokens = kTokens,
                        .width = kPart,
                        .stride = kStride,
                        .share = 1.0f / kRanks});
      ops->AllReduce({.x = means.data(), .count = kTokens});
      ops->Norm({.x = x,
                 .residual = nullptr,
                 .weight = weight.data() + rank * kPart,
                 .out = x,
                 .num_tokens = kTokens,
                 .width = kPart,
                 .eps = 1e-5f,
                 .stride = kStride,
                 .mean_squares = means.data()});
    });
    for (int64_t i = 0; i < kTokens * kRanks * kPart; ++i) {
      const int64_t t = i / (kRanks * kPart), rank = i / kPart % kRanks,
                    at = t * kStride + i % kPart;
      EXPECT_NEAR(found[static_cast<size_t>(rank)][static_cast<size_t>(at)],
                  wanted[static_cast<size_t>(i)], 1e-5);
    }
    // Other elements of the tokens are left alone.
    EXPECT_EQ(found[1][kPart], parts[1][kPart]);
  }
}

// A table that begins at another id has rows for its ids alone.
TEST(RankCollectivesTest, IdsOfOtherRanksAreZeros) {
  const std::vector<float> table = RandomFloats(4 * 8, 3);
  const TensorView view{reinterpret_cast<const std::byte*>(table.data()), DType::kF32, {4, 8}};
  const std::vector<int32_t> ids = {9, 10, 13, 14, 0};
  for (const MakeOne& make : {MakeOne(Naive), Cpu(1)}) {
    const auto ops = make({});
    const Matrix packed = ops->PackEmbedding(view, DType::kF32).value();
    std::vector<float> out(ids.size() * 8, 7.0f);
    ops->Embedding({.ids = ids.data(),
                    .table = &packed,
                    .scale = 1,
                    .out = out.data(),
                    .num_tokens = 5,
                    .first_id = 10});
    for (size_t i = 0; i < out.size(); ++i) {
      const int32_t row = ids[i / 8] - 10;
      EXPECT_EQ(out[i], row >= 0 && row < 4 ? table[static_cast<size_t>(row) * 8 + i % 8] : 0.0f);
    }
  }
}

}  // namespace
}  // namespace minisgl
