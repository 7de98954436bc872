// A sum over ranks in one shot and the norm behind it: a block exchanges a token at a time, and has
// its sums in registers when it normalises them.
//
// The bits are the same as after RankSum and the kernel of the norm: sums are rounded to the type
// of x, and a block has as many threads as in that kernel.
#pragma once

#include "kernels/norm_row.cuh"
#include "kernels/rank_exchange.cuh"

namespace minisgl::cuda {

// Chunks of a thread. Its registers would not hold more beside the exchange.
inline constexpr int kRankNormChunks = 1;
inline constexpr int64_t kRankNormWidthMax = int64_t{kRankNormChunks} * kNormThreadsMax * kChunk;

// The norm is of one group over aligned rows without gaps, and has an output; its x is the rank's
// part of the sums.
struct RankNormParams {
  RankExchange ranks;
  NormKernelParams norm;
};

// A block's tokens: blockIdx.x, blockIdx.x + gridDim.x, ...
template <typename T>
class RankNorm {
 public:
  // `scratch` and `center_scratch`: a float for each warp.
  MINISGL_DEVICE RankNorm(const RankNormParams& params, device::Shared<uint32_t> failed,
                          device::Shared<float> scratch, device::Shared<float> center_scratch)
      : params_(params),
        scratch_(scratch),
        center_scratch_(center_scratch),
        exchange_(params.ranks, failed) {}

  // `weight`: LoadNormWeights.
  MINISGL_DEVICE void Run(const float (&weight)[kRankNormChunks][kChunk]) {
    const NormParams& norm = params_.norm.norm;
    for (int64_t token = blockIdx.x; token < norm.num_tokens; token += gridDim.x) {
      const int64_t row = token * norm.width;
      exchange_.Next();
      Give(row);
      if (!exchange_.Meet(0)) return;
      float v[kRankNormChunks][kChunk];
      Sum(row, v);
      // The barriers of the next meeting stand between two uses of the scratches.
      FinishNormRow<T>(params_.norm, 0, row, nullptr, weight, scratch_, center_scratch_, v);
    }
    exchange_.End();
  }

 private:
  static_assert(kPackElements<T> == kChunk);
  using Elements = device::Vec<T, kChunk>;

  MINISGL_DEVICE void Give(int64_t row) const {
    const RankExchange& ranks = params_.ranks;
#pragma unroll
    for (int c = 0; c < kRankNormChunks; ++c) {
      if (NormChunk(c) >= params_.norm.norm.width) continue;
      const Elements own = Own(row, c);
      for (int turn = 1; turn < ranks.count; ++turn) {
        device::StoreVec(Part((ranks.rank + turn) % ranks.count, ranks.rank, c), own);
      }
    }
  }

  // Sets v to the values to be normalised.
  MINISGL_DEVICE void Sum(int64_t row, float (&v)[kRankNormChunks][kChunk]) const {
#pragma unroll
    for (int c = 0; c < kRankNormChunks; ++c) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) v[c][i] = 0;
      const int64_t first = NormChunk(c), count = params_.norm.norm.width - first;
      if (count <= 0) continue;
      float sums[kChunk];
      SumOfRanks(row, c, sums);
      AddToNormRow(params_.norm, row + first, count, sums, v[c]);
    }
  }

  MINISGL_DEVICE void SumOfRanks(int64_t row, int c, float (&sums)[kChunk]) const {
    const RankExchange& ranks = params_.ranks;
    for (int from = 0; from < ranks.count; ++from) {
      const Elements addends =
          from == ranks.rank ? Own(row, c) : device::LoadVec<kChunk>(Part(ranks.rank, from, c));
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        const float addend = device::ToFloat(addends[i]);
        sums[i] = from == 0 ? addend : sums[i] + addend;
      }
    }
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sums[i] = device::ToFloat(device::FromFloat<T>(sums[i]));
  }

  MINISGL_DEVICE Elements Own(int64_t row, int c) const {
    return device::LoadVec<kChunk>(params_.norm.norm.x.as<T>() + row + NormChunk(c));
  }
  // The place of the thread's chunk.
  MINISGL_DEVICE T* Part(int to, int from, int c) const {
    return reinterpret_cast<T*>(exchange_.Part(to, from)) + NormChunk(c);
  }

  const RankNormParams& params_;
  const device::Shared<float> scratch_, center_scratch_;
  BlockExchange exchange_;
};

}  // namespace minisgl::cuda
