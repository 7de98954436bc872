// Recurrences by chunks of tokens (recurrence_chunk.cu): what does not depend on the state, made by
// half of a block's warps.
#pragma once

#include "device/device.h"
#include "kernels/recurrence_chunk.cuh"

namespace minisgl::cuda {

// The warps that make A and R.
template <typename T, bool DELTA, int KEYS>
class TokenWarp {
 public:
  using Memory = ChunkMemory<T, KEYS>;
  static constexpr int kKeyRow = ChunkShape<KEYS>::kKeyRow;

  MINISGL_DEVICE TokenWarp(const RecurrenceKernelParams& params, const Memory& memory)
      : p_(params.recurrence),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % device::kWarpSize),
        warp_(static_cast<int>(threadIdx.x) / device::kWarpSize - kColumnWarps) {}

  // Reads the scalars of a chunk. Make takes the scalars of the call before the last one.
  MINISGL_DEVICE void LoadAhead(const TokenChunk& chunk) {
    scalars_ = ahead_;
    if (lane_ < chunk.count) {
      ahead_ = LoadScalars<DELTA>(p_, chunk.begin + lane_, static_cast<int>(blockIdx.y));
    }
  }

  // Everything of `chunk` that does not depend on the state.
  MINISGL_DEVICE void Make(const TokenChunk& chunk, int stage, int parity) {
    SumLogs(chunk, parity);
    const device::Shared<T> keys = memory_.Keys(stage), queries = memory_.Queries(stage);
    if constexpr (DELTA) {
      if (warp_ < kTokenBlocks) {
        MakeInverse(keys, warp_, parity);
      } else if (warp_ == 2) {
        MakeBetween(keys, parity);
        MakeRead(queries, keys, 1, 0, parity);
      } else {
        MakeRead(queries, keys, 0, 0, parity);
        MakeRead(queries, keys, 1, 1, parity);
      }
    } else {
      if (warp_ < kTokenBlocks) MakeRead(queries, keys, warp_, warp_, parity);
      if (warp_ == 2) MakeRead(queries, keys, 1, 0, parity);
    }
  }

 private:
  // A lane's token: its sum of logarithms and its gain. Tokens past the last have neither decay nor
  // gain.
  MINISGL_DEVICE void SumLogs(const TokenChunk& chunk, int parity) {
    sum_ = {};
    gain_ = 0;
    if (lane_ < chunk.count) {
      const auto factors = FactorsOf<DELTA>(p_, scalars_, static_cast<int>(blockIdx.y));
      sum_.high = factors.log_decay < kLogDecayMin ? kLogDecayMin : factors.log_decay;
      gain_ = factors.gain;
    }
#pragma unroll
    for (int distance = 1; distance < device::kWarpSize; distance *= 2) {
      const LongSum before = {__shfl_up_sync(device::kAllLanes, sum_.high, distance),
                              __shfl_up_sync(device::kAllLanes, sum_.low, distance)};
      if (lane_ >= distance) sum_ = AddSums(before, sum_);
    }
    const LongSum end = SumOf(kChunkTokens - 1);
    if (warp_ != kTokenWarps - 1) return;
    memory_.Factors(parity, kSince)[lane_] = device::Exp(sum_.high + sum_.low);
    memory_.Factors(parity, kUntil)[lane_] = device::Exp(Difference(end, sum_));
    memory_.Factors(parity, kGain)[lane_] = gain_;
  }
  MINISGL_DEVICE LongSum SumOf(int token) const {
    return {__shfl_sync(device::kAllLanes, sum_.high, token),
            __shfl_sync(device::kAllLanes, sum_.low, token)};
  }

  // products[n][i] = left row * right row * decay between the two tokens, of block (row, column);
  // 0 where the row's token is the earlier one.
  MINISGL_DEVICE void Multiply(device::Shared<T> left, device::Shared<T> right, int row, int column,
                               float (&products)[2][4]) const {
    float sums[2][2][4] = {};  // of even and of odd steps: chains of half the length
    const device::Shared<T> a_rows =
        FirstOperand(left + row * kTokenBlock * kKeyRow, kKeyRow, lane_);
    const device::Shared<T> b_rows =
        SecondOperand(right + column * kTokenBlock * kKeyRow, kKeyRow, lane_);
#pragma unroll(kKeyStepsAtOnce)
    for (int k = 0; k < KEYS / 16; ++k) {
      if (k * 16 >= p_.key_dim) break;
      uint32_t a[4], b[4];
      device::LoadMatrix4<T>(a, a_rows + k * 16);
      device::LoadMatrix4<T>(b, b_rows + k * 16);
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
      device::Mma16816<T>(sums[k % 2][0], a, low);
      device::Mma16816<T>(sums[k % 2][1], a, high);
    }
    LongSum rows[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) rows[h] = SumOf(row * kTokenBlock + h * 8 + lane_ / 4);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int from = column * kTokenBlock + n * 8 + lane_ % 4 * 2 + e;
        const LongSum start = SumOf(from);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const bool earlier = row * kTokenBlock + h * 8 + lane_ / 4 < from;
          const float decay = earlier ? 0 : device::Exp(Difference(rows[h], start));
          const int i = h * 2 + e;
          products[n][i] = decay * (sums[0][n][i] + sums[1][n][i]);
        }
      }
    }
  }

  // Stores a block in two parts, the second in matrix + 1.
  MINISGL_DEVICE void StoreBlock(const float (&values)[2][4], TokenMatrix matrix, int row,
                                 int column, int parity) const {
    const int at = (lane_ / 4 * kTokenMatrixRow + lane_ % 4 * 2) / 2;
    const auto high = memory_.MatrixBlock(parity, matrix, row, column).template As<uint32_t>() + at;
    const auto low = memory_.MatrixBlock(parity, static_cast<TokenMatrix>(matrix + 1), row, column)
                         .template As<uint32_t>() +
                     at;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint32_t word;
        low[(h * 8 * kTokenMatrixRow + n * 8) / 2] =
            SplitPair<T>(values[n][2 * h], values[n][2 * h + 1], &word);
        high[(h * 8 * kTokenMatrixRow + n * 8) / 2] = word;
      }
    }
  }

  MINISGL_DEVICE void MakeRead(device::Shared<T> queries, device::Shared<T> keys, int row,
                               int column, int parity) const {
    float products[2][4];
    Multiply(queries, keys, row, column, products);
    StoreBlock(products, kRead, row, column, parity);
  }

  // Gains of the lane's rows of a block.
  MINISGL_DEVICE void GainsOf(int row, float (&gains)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      gains[h] = __shfl_sync(device::kAllLanes, gain_, row * kTokenBlock + h * 8 + lane_ / 4);
    }
  }

  // -A below the diagonal's blocks.
  MINISGL_DEVICE void MakeBetween(device::Shared<T> keys, int parity) const {
    float products[2][4], gains[2];
    Multiply(keys, keys, 1, 0, products);
    GainsOf(1, gains);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) products[n][i] *= -gains[i / 2];
    }
    StoreBlock(products, kSolve, 1, 0, parity);
  }

  // The inverse of block `block` on the diagonal of I + A, by substitution: a lane has a column.
  MINISGL_DEVICE void MakeInverse(device::Shared<T> keys, int block, int parity) const {
    const device::Shared<float> rows = memory_.inverses + block * kTokenBlock * kInverseRow;
    float products[2][4], gains[2];
    Multiply(keys, keys, block, block, products);
    GainsOf(block, gains);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const device::Vec<float, 2> pair = {
            {products[n][2 * h] * gains[h], products[n][2 * h + 1] * gains[h]}};
        device::StoreShared(rows + ((h * 8 + lane_ / 4) * kInverseRow + n * 8 + lane_ % 4 * 2),
                            pair);
      }
    }
    __syncwarp();  // the block's rows are there
    const int column = lane_ % kTokenBlock;
    float inverse[kTokenBlock];
#pragma unroll
    for (int i = 0; i < kTokenBlock; ++i) {
      inverse[i] = i == column ? 1 : 0;
#pragma unroll
      for (int first = 0; first < i; first += 4) {
        const device::Vec<float, 4> row = device::LoadShared<4>(rows + (i * kInverseRow + first));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (first + j < i) inverse[i] = fmaf(-row[j], inverse[first + j], inverse[i]);
        }
      }
    }
    // The first half of the lanes stores the first parts, the others the second.
    const bool is_low = lane_ >= kTokenBlock;
    const device::Shared<T> to =
        memory_.MatrixBlock(parity, is_low ? kSolveLow : kSolve, block, block) + column;
#pragma unroll
    for (int i = 0; i < kTokenBlock; ++i) {
      const T high = device::FromFloat<T>(inverse[i]);
      to[i * kTokenMatrixRow] =
          is_low ? device::FromFloat<T>(inverse[i] - device::ToFloat(high)) : high;
    }
  }

  const RecurrenceParams& p_;
  const Memory& memory_;
  const int lane_, warp_;
  RecurrenceScalars scalars_, ahead_;  // of the lane's token
  LongSum sum_;
  float gain_ = 0;
};

}  // namespace minisgl::cuda
