// Recurrences by chunks of tokens (recurrence_chunk.cu): the state and the outputs of a chunk, by
// the warps that hold the state.
#pragma once

#include "device/device.h"
#include "kernels/chunk.h"
#include "kernels/recurrence_chunk.cuh"

namespace minisgl::cuda {

// The warps that hold 16 columns of the head's matrix each.
template <typename T, bool DELTA, int KEYS>
class ColumnWarp {
 public:
  using Memory = ChunkMemory<T, KEYS>;
  static constexpr int kKeyRow = ChunkShape<KEYS>::kKeyRow;
  static constexpr int kGroups = kChunkTokens / 8;  // of 8 tokens

  MINISGL_DEVICE ColumnWarp(const RecurrenceKernelParams& params, const Memory& memory)
      : params_(params),
        p_(params.recurrence),
        memory_(memory),
        lane_(static_cast<int>(threadIdx.x) % device::kWarpSize),
        tile_column_(static_cast<int>(threadIdx.x) / device::kWarpSize * kColumnsOfWarp),
        column_(static_cast<int>(blockIdx.x) * kColumnsOfBlock + tile_column_),
        skip_(DELTA ? 0 : p_.skip[blockIdx.y]) {}

  // False for the warps of tokens, and past the last column.
  MINISGL_DEVICE bool exists() const {
    return tile_column_ < kColumnsOfBlock && column_ < p_.value_dim;
  }

  // slot: -1 for zeros.
  MINISGL_DEVICE void Load(int slot) {
    const float* const from = ColumnsOf(slot);
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool valid = slot >= 0 && KeyOf(n, i) < p_.key_dim;
        state_[n][i] = valid ? from[IndexOf(n, i)] : 0;
      }
    }
  }

  MINISGL_DEVICE void Store(int slot) const {
    float* const to = ColumnsOf(slot);
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (KeyOf(n, i) < p_.key_dim) to[IndexOf(n, i)] = state_[n][i];
      }
    }
  }

  MINISGL_DEVICE void Run(const TokenChunk& chunk, int stage, int parity) {
    float out[kGroups][4] = {}, added[kGroups][4] = {};
    MultiplyState(stage, out, added);
    AddInputs(stage, parity, out, added);
    SplitOperand first = SplitSums<T>(added[0], added[1]), second;
    if constexpr (DELTA) {
      Solve(parity, 0, first, &added[0]);
      first = SplitSums<T>(added[0], added[1]);
      MultiplyMatrix(parity, kSolve, 1, 0, first, &added[2]);
      Solve(parity, 1, SplitSums<T>(added[2], added[3]), &added[2]);
    }
    second = SplitSums<T>(added[2], added[3]);
    MultiplyMatrix(parity, kRead, 0, 0, first, &out[0]);
    MultiplyMatrix(parity, kRead, 1, 0, first, &out[2]);
    MultiplyMatrix(parity, kRead, 1, 1, second, &out[2]);
    StoreOut(chunk, stage, out);
    Update(stage, parity, added);
  }

 private:
  MINISGL_DEVICE float* ColumnsOf(int64_t slot) const {
    return p_.states + slot * params_.slot_floats + blockIdx.y * params_.head_floats +
           RecurrenceStateAt(p_.key_dim, 0, column_);
  }
  MINISGL_DEVICE int KeyOf(int n, int i) const { return n * 8 + lane_ % 4 * 2 + i % 2; }
  MINISGL_DEVICE int IndexOf(int n, int i) const {
    return KeyOf(n, i) * kColumnsOfWarp + i / 2 * 8 + lane_ / 4;
  }
  // A factor of the lane's tokens of group n.
  MINISGL_DEVICE device::Vec<float, 2> FactorsAt(int parity, TokenFactor factor, int n) const {
    return device::LoadShared<2>(memory_.Factors(parity, factor) + (n * 8 + lane_ % 4 * 2));
  }

  // from_queries = S^T Q^T, and of the delta rule from_keys = S^T K^T.
  MINISGL_DEVICE void MultiplyState(int stage, float (&from_queries)[kGroups][4],
                                    float (&from_keys)[kGroups][4]) const {
    const device::Shared<T> queries = SecondOperand(memory_.Queries(stage), kKeyRow, lane_);
    const device::Shared<T> keys = SecondOperand(memory_.Keys(stage), kKeyRow, lane_);
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
      if (k * 16 >= p_.key_dim) break;
      const SplitOperand state = SplitSums<T>(state_[2 * k], state_[2 * k + 1]);
#pragma unroll
      for (int block = 0; block < kTokenBlocks; ++block) {
        const int at = block * kTokenBlock * kKeyRow + k * 16;
        MultiplyParts(queries + at, state, &from_queries[2 * block]);
        if constexpr (DELTA) MultiplyParts(keys + at, state, &from_keys[2 * block]);
      }
    }
  }

  // sums += both parts of `a` times 16 columns, which are rows of shared memory.
  MINISGL_DEVICE static void MultiplyParts(device::Shared<T> columns, const SplitOperand& a,
                                           float (*sums)[4]) {
    uint32_t b[4];
    device::LoadMatrix4<T>(b, columns);
    const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    device::Mma16816<T>(sums[0], a.high, low);
    device::Mma16816<T>(sums[1], a.high, high);
    device::Mma16816<T>(sums[0], a.low, low);
    device::Mma16816<T>(sums[1], a.low, high);
  }

  // sums += a times a block of a matrix, transposed, both in two parts.
  MINISGL_DEVICE void MultiplyMatrix(int parity, TokenMatrix matrix, int row, int column,
                                     const SplitOperand& a, float (*sums)[4]) const {
    const auto at = [&](int part) {
      return SecondOperand(
          memory_.MatrixBlock(parity, static_cast<TokenMatrix>(matrix + part), row, column),
          kTokenMatrixRow, lane_);
    };
    MultiplyParts(at(0), a, sums);
    uint32_t b[4];
    device::LoadMatrix4<T>(b, at(1));
    const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
    device::Mma16816<T>(sums[0], a.high, low);
    device::Mma16816<T>(sums[1], a.high, high);
  }

  MINISGL_DEVICE void Solve(int parity, int block, const SplitOperand& a, float (*sums)[4]) const {
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[n][i] = 0;
    }
    MultiplyMatrix(parity, kSolve, block, block, a, sums);
  }

  // Decays the products with the state, and adds the values: out is then exp(g) S^T q + skip v, and
  // added is b (v - exp(g) S^T k) or b v.
  MINISGL_DEVICE void AddInputs(int stage, int parity, float (&out)[kGroups][4],
                                float (&added)[kGroups][4]) const {
    // Transposed, 16 tokens and columns give fragments of two groups of tokens.
    const device::Shared<T> values =
        SecondOperand(memory_.Values(stage) + tile_column_, kChunkValueRow, lane_);
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      uint32_t words[4];
      device::LoadMatrix4Trans<T>(words, values + block * kTokenBlock * kChunkValueRow);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int n = 2 * block + half;
        const auto since = FactorsAt(parity, kSince, n), gain = FactorsAt(parity, kGain, n);
        const float2 upper = device::Unpack2<T>(words[2 * half]);
        const float2 lower = device::Unpack2<T>(words[2 * half + 1]);
        const float value[4] = {upper.x, upper.y, lower.x, lower.y};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          out[n][i] *= since[i % 2];
          if constexpr (DELTA) {
            added[n][i] = gain[i % 2] * fmaf(-since[i % 2], added[n][i], value[i]);
          } else {
            out[n][i] = fmaf(skip_, value[i], out[n][i]);
            added[n][i] = gain[i % 2] * value[i];
          }
        }
      }
    }
  }

  // By the place of the warp's values in shared memory, so that a lane stores a token.
  MINISGL_DEVICE void StoreOut(const TokenChunk& chunk, int stage,
                               const float (&out)[kGroups][4]) const {
    const device::Shared<T> rows = memory_.Values(stage) + tile_column_;
    __syncwarp();  // no lane reads the values any more
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[KeyOf(n, i) * kChunkValueRow + i / 2 * 8 + lane_ / 4] =
            device::FromFloat<T>(out[n][i]);
      }
    }
    __syncwarp();  // the warp's columns of all tokens are there
    if (lane_ >= chunk.count) return;
    const int64_t row = int64_t{chunk.begin + lane_} * p_.num_heads + blockIdx.y;
    T* const to = p_.out.template as<T>() + row * p_.value_dim + column_;
#pragma unroll
    for (int first = 0; first < kColumnsOfWarp; first += kChunk) {
      const auto values = device::LoadShared<kChunk>(rows + (lane_ * kChunkValueRow + first));
      const int left = p_.value_dim - column_ - first;
      if (params_.aligned && left >= kChunk) {
        device::StoreVec(to + first, values);
        continue;
      }
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (i < left) to[first + i] = values[i];
      }
    }
  }

  // S^T = exp(g_end) S^T + (diag(exp(g_end - g)) U)^T K
  MINISGL_DEVICE void Update(int stage, int parity, float (&added)[kGroups][4]) {
    const float whole = memory_.Factors(parity, kSince)[kChunkTokens - 1];
#pragma unroll
    for (int n = 0; n < kGroups; ++n) {
      const auto until = FactorsAt(parity, kUntil, n);
#pragma unroll
      for (int i = 0; i < 4; ++i) added[n][i] *= until[i % 2];
    }
    SplitOperand a[kTokenBlocks];
#pragma unroll
    for (int block = 0; block < kTokenBlocks; ++block) {
      a[block] = SplitSums<T>(added[2 * block], added[2 * block + 1]);
    }
    // Keys of 16 tokens with 16 elements each: the elements are the columns of the product.
    const device::Shared<T> keys = FirstOperand(memory_.Keys(stage), kKeyRow, lane_);
#pragma unroll
    for (int k = 0; k < KEYS / 16; ++k) {
      if (k * 16 >= p_.key_dim) break;
#pragma unroll
      for (int n = 2 * k; n < 2 * k + 2; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) state_[n][i] *= whole;
      }
#pragma unroll
      for (int block = 0; block < kTokenBlocks; ++block) {
        uint32_t b[4];
        device::LoadMatrix4Trans<T>(b, keys + (block * kTokenBlock * kKeyRow + k * 16));
        const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
        device::Mma16816<T>(state_[2 * k], a[block].high, low);
        device::Mma16816<T>(state_[2 * k + 1], a[block].high, high);
        device::Mma16816<T>(state_[2 * k], a[block].low, low);
        device::Mma16816<T>(state_[2 * k + 1], a[block].low, high);
      }
    }
  }

  const RecurrenceKernelParams& params_;
  const RecurrenceParams& p_;
  const Memory& memory_;
  const int lane_;
  const int tile_column_, column_;  // the warp's first column, in the tile and in the head
  const float skip_;
  float state_[KEYS / 8][4];  // of S^T: 16 columns of S, 8 keys
};

}  // namespace minisgl::cuda
