// Recurrences by chunks of tokens (recurrence_chunk.cu): a chunk in shared memory, and numbers in
// two parts.
#pragma once

#include "device/device.h"
#include "kernels/recurrence_params.h"

namespace minisgl::cuda {

inline constexpr int kChunkTokens = 32;  // of a chunk: one for each lane
inline constexpr int kTokenBlock = 16;   // tokens of a block of A and R
inline constexpr int kColumnWarps = 4, kTokenWarps = 4;
inline constexpr int kColumnsOfWarp = 16;
inline constexpr int kColumnsOfBlock = kColumnWarps * kColumnsOfWarp;
inline constexpr int kChunkThreads = (kColumnWarps + kTokenWarps) * device::kWarpSize;
inline constexpr int kChunkStages = 3;
inline constexpr int kTokenBlocks = kChunkTokens / kTokenBlock;
static_assert(kChunkTokens == device::kWarpSize && kTokenBlocks == 2 &&
              kColumnsOfWarp == kStateColumns);
// How far loops are unrolled that would otherwise take registers from the state.
inline constexpr int kChunkCopiesAtOnce = 2, kKeyStepsAtOnce = 4;
// exp of it is 0. Smaller logarithms would only cost the sums their precision.
inline constexpr float kLogDecayMin = -120;
// Rows have 8 elements of padding: the 8 rows of 16 bytes that a matrix load reads at once are in
// different banks.
inline constexpr int kChunkValueRow = kColumnsOfBlock + 8, kTokenMatrixRow = kChunkTokens + 8;
inline constexpr int kTokenMatrixSize = kChunkTokens * kTokenMatrixRow;  // elements
inline constexpr int kInverseRow = kTokenBlock + 4;                      // floats
enum TokenMatrix { kSolve, kSolveLow, kRead, kReadLow, kMatrices };
enum TokenFactor { kSince, kUntil, kGain, kFactors };

template <int KEYS>
struct ChunkShape {
  static constexpr int kKeyRow = KEYS + 8;
  static constexpr int kStage = kChunkTokens * (2 * kKeyRow + kChunkValueRow);  // elements
  static constexpr size_t Bytes() {
    return size_t{2} * (kChunkStages * kStage + 2 * kMatrices * kTokenMatrixSize) +
           sizeof(float) * (2 * kFactors * kChunkTokens + kTokenBlocks * kTokenBlock * kInverseRow);
  }
};

// A sum in two floats.
struct LongSum {
  float high = 0, low = 0;
};

MINISGL_DEVICE LongSum AddSums(const LongSum& a, const LongSum& b) {
  const float high = a.high + b.high, part = high - a.high;
  const float error = (a.high - (high - part)) + (b.high - part);
  return {high, a.low + b.low + error};
}

MINISGL_DEVICE float Difference(const LongSum& a, const LongSum& b) {
  return (a.high - b.high) + (a.low - b.low);
}

// Two numbers as two parts each: `high`, and in the result what its rounding left. Both parts of
// f16 end at its largest number, so that a larger one is the sum of two, and none is infinite: what
// is left of infinity is NaN.
template <typename T>
MINISGL_DEVICE uint32_t SplitPair(float x, float y, uint32_t* high) {
  *high = device::Pack2Finite<T>(x, y);
  const float2 rounded = device::Unpack2<T>(*high);
  return device::Pack2Finite<T>(x - rounded.x, y - rounded.y);
}

// Two fragments of sums, 8 columns each, as the first operand of a product, in two parts.
struct SplitOperand {
  uint32_t high[4], low[4];
};

template <typename T>
MINISGL_DEVICE SplitOperand SplitSums(const float (&left)[4], const float (&right)[4]) {
  SplitOperand a;
  a.low[0] = SplitPair<T>(left[0], left[1], &a.high[0]);
  a.low[1] = SplitPair<T>(left[2], left[3], &a.high[1]);
  a.low[2] = SplitPair<T>(right[0], right[1], &a.high[2]);
  a.low[3] = SplitPair<T>(right[2], right[3], &a.high[3]);
  return a;
}

// Tokens of one span.
struct TokenChunk {
  int begin = 0, count = 0;  // 0: there is none
  int write = -1;            // the slot of the state after it; -1: the span goes on
};

// The chunks of a row, in order.
class ChunkWalk {
 public:
  MINISGL_DEVICE ChunkWalk(const StateSpan* spans, int first, int last)
      : spans_(spans),
        span_(first),
        last_(last),
        next_(spans[first].begin),
        end_(spans[first + 1].begin) {}

  MINISGL_DEVICE TokenChunk Next() {
    TokenChunk chunk;
    if (span_ == last_) return chunk;
    chunk.begin = next_;
    chunk.count = min(kChunkTokens, end_ - next_);
    next_ += chunk.count;
    if (next_ == end_) {
      chunk.write = spans_[span_].write;
      ++span_;
      if (span_ < last_) end_ = spans_[span_ + 1].begin;
    }
    return chunk;
  }

 private:
  const StateSpan* const spans_;
  int span_;
  const int last_;
  int next_, end_;
};

template <typename T, int KEYS>
struct ChunkMemory {
  using Shape = ChunkShape<KEYS>;

  MINISGL_DEVICE ChunkMemory() {
    device::SharedArena arena;
    stages = arena.Take<T>(kChunkStages * Shape::kStage);
    matrices = arena.Take<T>(2 * kMatrices * kTokenMatrixSize);
    factors = arena.Take<float>(2 * kFactors * kChunkTokens);
    inverses = arena.Take<float>(kTokenBlocks * kTokenBlock * kInverseRow);
  }
  MINISGL_DEVICE device::Shared<T> Queries(int stage) const {
    return stages + stage * Shape::kStage;
  }
  MINISGL_DEVICE device::Shared<T> Keys(int stage) const {
    return Queries(stage) + kChunkTokens * Shape::kKeyRow;
  }
  MINISGL_DEVICE device::Shared<T> Values(int stage) const {
    return Keys(stage) + kChunkTokens * Shape::kKeyRow;
  }
  // Block (row, column) of a matrix of 16 x 16 tokens.
  MINISGL_DEVICE device::Shared<T> MatrixBlock(int parity, TokenMatrix matrix, int row,
                                               int column) const {
    return matrices + ((parity * kMatrices + matrix) * kTokenMatrixSize +
                       row * kTokenBlock * kTokenMatrixRow + column * kTokenBlock);
  }
  MINISGL_DEVICE device::Shared<float> Factors(int parity, TokenFactor factor) const {
    return factors + (parity * kFactors + factor) * kChunkTokens;
  }

  device::Shared<T>
      stages;  // [kChunkStages] of queries and keys [kChunkTokens, kKeyRow], and of values
  device::Shared<T> matrices;     // [2, kMatrices, kChunkTokens, kTokenMatrixRow]
  device::Shared<float> factors;  // [2, kFactors, kChunkTokens]: exp(g), exp(g_end - g), gains
  device::Shared<float>
      inverses;  // [kTokenBlocks, kTokenBlock, kInverseRow]: A's blocks on the diagonal
};

// Addresses for matrix loads of 16 rows and 16 columns from `corner` on, rows `row` elements apart.
// As a first operand, and as a second whose columns are stored as rows: see product_tile.cuh.
template <typename T>
MINISGL_DEVICE device::Shared<T> FirstOperand(device::Shared<T> corner, int row, int lane) {
  return corner + (lane % 16 * row + lane / 16 * 8);
}
template <typename T>
MINISGL_DEVICE device::Shared<T> SecondOperand(device::Shared<T> corner, int row, int lane) {
  return corner + ((lane % 8 + lane / 16 * 8) * row + lane / 8 % 2 * 8);
}

}  // namespace minisgl::cuda
