// Ranks that exchange, as one grid of the emulator: row y of its blocks is rank y. Included after
// kernels/rank_norm.cuh, or its checked copy.
#pragma once

#include <memory>
#include <type_traits>
#include <vector>

#include "kernel_check.h"

namespace minisgl::cuda {

template <typename T>
inline constexpr DType kDTypeOf = std::is_same_v<T, float>          ? DType::kF32
                                  : std::is_same_v<T, device::bf16> ? DType::kBF16
                                                                    : DType::kF16;

class ExchangeScene {
 public:
  // A scene for kernels of at most kBlocksMax blocks.
  explicit ExchangeScene(int num_ranks) : num_ranks_(num_ranks), alarm_(Zeros(kAlarmBytes / 4)) {
    RankExchange common = {
        .count = num_ranks, .alarm = alarm_.data(), .wait_ns = int64_t{1'000'000'000'000}};
    for (int rank = 0; rank < num_ranks; ++rank) {
      const auto words = static_cast<size_t>(ExchangeBytes(num_ranks, kBlocksMax)) / 4;
      pieces_.push_back(std::make_unique<DeviceArray<uint32_t>>(Zeros(words)));
      common.pieces[rank] = reinterpret_cast<std::byte*>(pieces_.back()->data());
      epochs_.push_back(std::make_unique<DeviceArray<uint32_t>>(Zeros(kExchangeBlocks)));
    }
    for (int rank = 0; rank < num_ranks; ++rank) {
      common.rank = rank;
      common.epochs = epochs_[static_cast<size_t>(rank)]->data();
      ranks_.push_back(common);
    }
  }

  void SetWait(int64_t wait_ns) {
    for (RankExchange& rank : ranks_) rank.wait_ns = wait_ns;
  }
  // The rank's kernels end at once.
  void SetDead(int rank) { dead_ = rank; }
  // The rank's blocks begin when others have gone on for a while.
  void SetLate(int rank) { late_ = rank; }
  uint32_t alarm(int word) const { return alarm_.data()[word]; }

  // Each rank's array after the sum over `parts` [ranks][count].
  template <typename T>
  std::vector<std::vector<T>> Sum(const std::vector<std::vector<float>>& parts, bool two_shots,
                                  int num_blocks) {
    std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
    std::vector<RankSumParams> params;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const std::vector<float>& part = parts[static_cast<size_t>(rank)];
      std::vector<T> values;
      for (const float value : part) values.push_back(device::FromFloat<T>(value));
      arrays.push_back(std::make_unique<DeviceArray<T>>(values));
      params.push_back({.ranks = ranks_[static_cast<size_t>(rank)],
                        .x = arrays.back()->data(),
                        .count = std::ssize(part),
                        .slice = kExchangeThreads,
                        .two_shots = two_shots});
    }
    Run(num_blocks, [&](int rank) {
      device::SharedArena arena;
      RankSum<T>(params[static_cast<size_t>(rank)], arena.Take<uint32_t>(1)).Run();
    });
    std::vector<std::vector<T>> sums;
    for (const auto& array : arrays) sums.push_back(array->values());
    return sums;
  }

  // What each rank has after a sum over `parts` [ranks][T * D] with a norm behind it. `norm`: in
  // place of the parts, with a residual stream that begins as `residual` [T * D].
  template <typename T>
  struct Normed {
    std::vector<T> out;
    std::vector<float> residual;
  };
  template <typename T>
  std::vector<Normed<T>> SumNorm(const std::vector<std::vector<float>>& parts,
                                 const std::vector<float>& residual, NormParams norm,
                                 int num_blocks) {
    std::vector<std::unique_ptr<DeviceArray<T>>> arrays;
    std::vector<std::unique_ptr<DeviceArray<float>>> streams;
    std::vector<RankNormParams> params;
    norm.group_width = norm.stride = norm.width;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      std::vector<T> values;
      for (const float value : parts[static_cast<size_t>(rank)]) {
        values.push_back(device::FromFloat<T>(value));
      }
      arrays.push_back(std::make_unique<DeviceArray<T>>(values));
      streams.push_back(std::make_unique<DeviceArray<float>>(residual));
      norm.x = norm.out = ActivationPtr(arrays.back()->data(), kDTypeOf<T>);
      norm.residual = streams.back()->data();
      params.push_back(
          {.ranks = ranks_[static_cast<size_t>(rank)], .norm = {.norm = norm, .aligned = true}});
    }
    const auto kernel = [&](int rank) {
      const RankNormParams& own = params[static_cast<size_t>(rank)];
      device::SharedArena arena;
      const device::Shared<uint32_t> failed = arena.Take<uint32_t>(1);
      const device::Shared<float> scratch = arena.Take<float>(device::kWarpSize);
      const device::Shared<float> center_scratch = arena.Take<float>(device::kWarpSize);
      float weight[kRankNormChunks][kChunk];
      LoadNormWeights(own.norm, 0, weight);
      RankNorm<T>(own, failed, scratch, center_scratch).Run(weight);
    };
    Run(num_blocks, kernel, NormThreads(norm.width));
    std::vector<Normed<T>> all;
    for (size_t rank = 0; rank < arrays.size(); ++rank) {
      all.push_back({arrays[rank]->values(), streams[rank]->values()});
    }
    return all;
  }

  static float Element(int64_t token, int64_t column) {
    return static_cast<float>(1000 * token + column);
  }
  // Each rank's [num_tokens, stride], of Element plus `more`.
  std::vector<std::vector<float>> Gather(const std::vector<int64_t>& bounds, int32_t num_tokens,
                                         int64_t stride, float more) {
    std::vector<std::unique_ptr<DeviceArray<float>>> xs, outs;
    std::vector<RankGatherParams> params;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const auto at = static_cast<size_t>(rank);
      std::vector<float> own;
      for (int64_t token = 0; token < num_tokens; ++token) {
        for (int64_t i = bounds[at]; i < bounds[at + 1]; ++i)
          own.push_back(Element(token, i) + more);
      }
      xs.push_back(std::make_unique<DeviceArray<float>>(own));
      outs.push_back(
          std::make_unique<DeviceArray<float>>(static_cast<size_t>(num_tokens * stride)));
      params.push_back({.ranks = ranks_[at],
                        .x = xs.back()->data(),
                        .out = outs.back()->data(),
                        .out_stride = stride,
                        .num_tokens = num_tokens,
                        .slice = kExchangeThreads});
      std::copy(bounds.begin(), bounds.end(), params.back().bounds);
    }
    Run(1, [&](int rank) {
      device::SharedArena arena;
      RankGather(params[static_cast<size_t>(rank)], arena.Take<uint32_t>(1)).Run();
    });
    std::vector<std::vector<float>> all;
    for (const auto& out : outs) all.push_back(out->values());
    return all;
  }

 private:
  static constexpr int kBlocksMax = 2;

  static std::vector<uint32_t> Zeros(size_t count) { return std::vector<uint32_t>(count); }

  template <typename Kernel>
  void Run(int num_blocks, const Kernel& kernel, unsigned num_threads = kExchangeThreads) {
    emulator::Options options = emulator::GetOptions();
    const int before = options.blocks_at_once;
    options.blocks_at_once = num_blocks * num_ranks_;
    emulator::SetOptions(options);
    emulator::FinishKernels();
    const CudaLaunch launch = {
        .grid = {static_cast<unsigned>(num_blocks), static_cast<unsigned>(num_ranks_)},
        .block = {num_threads},
        .shared_bytes = kExchangePackBytes + 2 * device::kWarpSize * sizeof(float)};
    const auto restore = [&] {
      options.blocks_at_once = before;
      emulator::SetOptions(options);
    };
    try {
      emulator::RunGrid(launch, "ranks", [&] {
        const int rank = static_cast<int>(blockIdx.y);
        for (int i = 0; rank == late_ && i < 100; ++i) __syncthreads();
        if (rank != dead_) kernel(rank);
      });
    } catch (...) {
      restore();
      throw;
    }
    restore();
  }

  const int num_ranks_;
  int dead_ = -1, late_ = -1;
  DeviceArray<uint32_t> alarm_;
  std::vector<std::unique_ptr<DeviceArray<uint32_t>>> pieces_, epochs_;
  std::vector<RankExchange> ranks_;
};

}  // namespace minisgl::cuda
