// Linear attention with decay: the gated delta rule, and selective state spaces (RecurrenceParams).
// Rows go through it token by token; rows of prompts, unless deterministic, by chunks of tokens
// (recurrence_chunk.cu).
//
// Grid (P / 32, H, rows), block 128: a block has 32 columns of one head's matrix, for some of the
// rows, and a warp 8 of the columns. A lane holds 4 columns of every 16th group of 4 keys in
// registers, so that a row's tokens pass without a barrier between them, and sums over keys are
// taken within a warp: in the first exchanges a lane gives half of its columns away, so that it
// ends with the sum of one. Queries, keys and values of 16 tokens at a time are in shared memory
// as floats: 18 KB for up to 128 keys, 34 KB for up to 256.
//
// Every token is computed in the same way and in the order of its row. Results do not depend on how
// a sequence is cut, on the other rows or on the grid. Traffic: the state of a row once in each
// direction (8 N P bytes for a head), and out again for each further span; of each token and head
// (2 N + 64) * sizeof(T) bytes for each 32 columns. 7 N P operations for each token and head.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/recurrence_params.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::LoadShared;
using device::Shared;
using device::SharedArena;

constexpr int kRecurrenceThreads = 128;
constexpr int kRecurrenceWarps = kRecurrenceThreads / device::kWarpSize;
constexpr int kLaneColumns = 4;
constexpr int kKeyLanes = 16;                           // lanes that share columns
constexpr int kColumnLanes = kKeyLanes / kLaneColumns;  // lanes that end with one column's sum
constexpr int kWarpColumns = device::kWarpSize / kKeyLanes * kLaneColumns;
constexpr int kBlockColumns = kRecurrenceWarps * kWarpColumns;
constexpr int kTileTokens = 16;  // tokens
// Keys are in groups of 4, one access of shared memory; group i * 16 + lane is in the i-th place.
constexpr int kKeyGroup = 4;
constexpr int kKeysOfPlace = kKeyLanes * kKeyGroup;
// Blocks for each multiprocessor. If there would be more, a block has several rows: graphs are
// launched with more rows than most steps have.
constexpr int kBlocksWanted = 16;

// A tile in shared memory. PLACES: places of keys in a lane; keys past N are zeros.
template <int PLACES>
struct Tile {
  static constexpr int kKeys = PLACES * kKeysOfPlace;
  Shared<float> keys, queries;  // [kTileTokens, kKeys]
  Shared<float> values;         // [kTileTokens, kBlockColumns]
  Shared<float> decays, gains;  // [kTileTokens]

  MINISGL_DEVICE Tile() {
    SharedArena arena;
    keys = arena.Take<float>(kTileTokens * kKeys);
    queries = arena.Take<float>(kTileTokens * kKeys);
    values = arena.Take<float>(kTileTokens * kBlockColumns);
    decays = arena.Take<float>(kTileTokens);
    gains = arena.Take<float>(kTileTokens);
  }
  static constexpr size_t Bytes() {
    return sizeof(float) * kTileTokens * (2 * kKeys + kBlockColumns + 2);
  }
};

// Loads `count` tokens from `first` on: keys, queries, values and factors of the block's head.
template <typename T, bool DELTA, int PLACES>
MINISGL_DEVICE void LoadTile(const RecurrenceKernelParams& params, int64_t first, int count,
                             const Tile<PLACES>& tile) {
  constexpr int kKeyChunks = Tile<PLACES>::kKeys / kChunk, kValueChunks = kBlockColumns / kChunk;
  constexpr int kTokenChunks = 2 * kKeyChunks + kValueChunks;
  const RecurrenceParams& p = params.recurrence;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t group = head / (p.num_heads / p.num_groups);
  const int column = static_cast<int>(blockIdx.x) * kBlockColumns;
  for (int i = static_cast<int>(threadIdx.x); i < count * kTokenChunks; i += kRecurrenceThreads) {
    const int token = i / kTokenChunks, chunk = i % kTokenChunks;
    const int64_t row = (first + token) * p.stride;
    const bool is_value = chunk >= 2 * kKeyChunks, is_query = !is_value && chunk >= kKeyChunks;
    const int at = chunk % kKeyChunks * kChunk;  // of a key or query
    const int value = (chunk - 2 * kKeyChunks) * kChunk;
    const T* const from =
        is_value ? p.value.as<T>() + row + int64_t{head} * p.value_dim + column + value
                 : (is_query ? p.query : p.key).template as<T>() + row + group * p.key_dim + at;
    const int left = is_value ? p.value_dim - column - value : p.key_dim - at;
    float v[kChunk];
    LoadChunk(from, left, params.aligned && left >= kChunk, v);
    const Shared<float> to =
        is_value ? tile.values + (token * kBlockColumns + value)
                 : (is_query ? tile.queries : tile.keys) + (token * Tile<PLACES>::kKeys + at);
#pragma unroll
    for (int j = 0; j < kChunk; j += 4) {
      const device::Vec<float, 4> part = {{v[j], v[j + 1], v[j + 2], v[j + 3]}};
      device::StoreShared(to + j, part);
    }
  }
  // By the last threads, which have the fewest chunks.
  const int token = kRecurrenceThreads - 1 - static_cast<int>(threadIdx.x);
  if (token >= count) return;
  const auto factors = FactorsOf<DELTA>(p, LoadScalars<DELTA>(p, first + token, head), head);
  tile.decays[token] = device::Exp(factors.log_decay);
  tile.gains[token] = factors.gain;
}

// A lane's part of the matrix of the block's head.
template <typename T, bool DELTA, int PLACES>
class LaneState {
 public:
  MINISGL_DEVICE explicit LaneState(const RecurrenceKernelParams& params)
      : params_(params),
        p_(params.recurrence),
        head_(static_cast<int>(blockIdx.y)),
        key_lane_(static_cast<int>(threadIdx.x) % kKeyLanes),
        block_column_(static_cast<int>(threadIdx.x) / kKeyLanes * kLaneColumns),
        column_(static_cast<int>(blockIdx.x) * kBlockColumns + block_column_),
        skip_(DELTA ? 0 : p_.skip[head_]) {}

  // False past the last column that is stored; the same for the whole warp.
  MINISGL_DEVICE bool exists() const {
    return column_ / kStateColumns * kStateColumns < p_.value_dim;
  }

  // slot: -1 for zeros.
  MINISGL_DEVICE void Load(int slot) {
    const float* const from = HeadOf(slot);
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
#pragma unroll
      for (int j = 0; j < kKeyGroup; ++j) {
        device::Vec<float, kLaneColumns> row = {};
        const int key = KeyOf(i, j);
        if (slot >= 0 && key < p_.key_dim) {
          row = device::LoadVec<kLaneColumns>(from + RecurrenceStateAt(p_.key_dim, key, column_));
        }
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) state_[i][j][c] = row[c];
      }
    }
  }

  MINISGL_DEVICE void Store(int slot) const {
    float* const to = HeadOf(slot);
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
#pragma unroll
      for (int j = 0; j < kKeyGroup; ++j) {
        const int key = KeyOf(i, j);
        if (key >= p_.key_dim) continue;
        device::Vec<float, kLaneColumns> row;
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) row[c] = state_[i][j][c];
        device::StoreVec(to + RecurrenceStateAt(p_.key_dim, key, column_), row);
      }
    }
  }

  // Token `token` of the tile, which is token `t` of the step.
  MINISGL_DEVICE void Step(const Tile<PLACES>& tile, int token, int64_t t) {
    const float decay = tile.decays[token], gain = tile.gains[token];
    const Shared<float> values = tile.values + (token * kBlockColumns + block_column_);
    const Shared<float> keys = tile.keys + token * Tile<PLACES>::kKeys + key_lane_ * kKeyGroup;
    const Shared<float> queries =
        tile.queries + token * Tile<PLACES>::kKeys + key_lane_ * kKeyGroup;
    float added[kLaneColumns];
    if constexpr (DELTA) {
      const float own = gain * fmaf(-decay, Multiply(keys), values[own_column()]);
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) {
        added[c] = __shfl_sync(device::kAllLanes, own, LaneOfColumn(c));
      }
    } else {
      const device::Vec<float, kLaneColumns> value = LoadShared<kLaneColumns>(values);
#pragma unroll
      for (int c = 0; c < kLaneColumns; ++c) added[c] = gain * value[c];
    }
    float out = Update(keys, queries, decay, added);
    if constexpr (!DELTA) out = fmaf(skip_, values[own_column()], out);
    const int column = column_ + own_column();
    if (key_lane_ % kColumnLanes != 0 || column >= p_.value_dim) return;
    p_.out.template as<T>()[(t * p_.num_heads + head_) * p_.value_dim + column] =
        device::FromFloat<T>(out);
  }

 private:
  MINISGL_DEVICE float* HeadOf(int64_t slot) const {
    return p_.states + slot * params_.slot_floats + head_ * params_.head_floats;
  }
  MINISGL_DEVICE int KeyOf(int place, int j) const {
    return place * kKeysOfPlace + key_lane_ * kKeyGroup + j;
  }
  // The one of its columns whose sum the lane ends with.
  MINISGL_DEVICE int own_column() const { return key_lane_ / kColumnLanes; }
  MINISGL_DEVICE int LaneOfColumn(int column) const {
    const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
    return lane / kKeyLanes * kKeyLanes + column * kColumnLanes;
  }
  // Sums over the lanes that share columns; returns the sum of the lane's own column.
  MINISGL_DEVICE float SumKeys(const float (&sums)[kLaneColumns]) const {
    static_assert(kLaneColumns == 4 && kColumnLanes == 4);
    const bool upper = key_lane_ >= kKeyLanes / 2, odd = own_column() % 2 != 0;
    float pair[2];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float kept = upper ? sums[c + 2] : sums[c], given = upper ? sums[c] : sums[c + 2];
      pair[c] = kept + __shfl_xor_sync(device::kAllLanes, given, kKeyLanes / 2);
    }
    const float kept = odd ? pair[1] : pair[0], given = odd ? pair[0] : pair[1];
    float sum = kept + __shfl_xor_sync(device::kAllLanes, given, kColumnLanes);
#pragma unroll
    for (int offset = kColumnLanes / 2; offset > 0; offset /= 2) {
      sum += __shfl_xor_sync(device::kAllLanes, sum, offset);
    }
    return sum;
  }

  // S^T key, of the lane's own column.
  MINISGL_DEVICE float Multiply(const Shared<float>& keys) const {
    float sums[kLaneColumns] = {};
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
      const device::Vec<float, kKeyGroup> key = LoadShared<kKeyGroup>(keys + i * kKeysOfPlace);
#pragma unroll
      for (int j = 0; j < kKeyGroup; ++j) {
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) sums[c] = fmaf(state_[i][j][c], key[j], sums[c]);
      }
    }
    return SumKeys(sums);
  }

  // S = decay S + key added^T;  returns S^T query, of the lane's own column.
  MINISGL_DEVICE float Update(const Shared<float>& keys, const Shared<float>& queries, float decay,
                              const float (&added)[kLaneColumns]) {
    float out[kLaneColumns] = {};
#pragma unroll
    for (int i = 0; i < PLACES; ++i) {
      const device::Vec<float, kKeyGroup> key = LoadShared<kKeyGroup>(keys + i * kKeysOfPlace);
      const device::Vec<float, kKeyGroup> query = LoadShared<kKeyGroup>(queries + i * kKeysOfPlace);
#pragma unroll
      for (int j = 0; j < kKeyGroup; ++j) {
#pragma unroll
        for (int c = 0; c < kLaneColumns; ++c) {
          state_[i][j][c] = fmaf(key[j], added[c], decay * state_[i][j][c]);
          out[c] = fmaf(query[j], state_[i][j][c], out[c]);
        }
      }
    }
    return SumKeys(out);
  }

  const RecurrenceKernelParams& params_;
  const RecurrenceParams& p_;
  const int head_, key_lane_;
  const int block_column_, column_;  // the first of the lane's, in the block and in the head
  const float skip_;
  float state_[PLACES][kKeyGroup][kLaneColumns];
};

// One row, whose spans are [first, last).
template <typename T, bool DELTA, int PLACES>
MINISGL_DEVICE void RunRow(const RecurrenceKernelParams& params, int first, int last,
                           const Tile<PLACES>& tile) {
  const StateSpan* const spans = params.recurrence.segments.spans;
  LaneState<T, DELTA, PLACES> state(params);
  const bool exists = state.exists();
  if (exists) state.Load(spans[first].read);
  const int end = spans[last].begin;
  int span = first, span_end = spans[first + 1].begin;
  for (int begin = spans[first].begin; begin < end; begin += kTileTokens) {
    const int count = min(kTileTokens, end - begin);
    __syncthreads();  // no warp reads the tile before
    LoadTile<T, DELTA, PLACES>(params, begin, count, tile);
    __syncthreads();  // the tile is there
    if (!exists) continue;
    for (int i = 0; i < count; ++i) {
      state.Step(tile, i, begin + i);
      if (begin + i + 1 != span_end) continue;
      state.Store(spans[span].write);
      ++span;
      if (span < last) span_end = spans[span + 1].begin;
    }
  }
}

template <typename T, bool DELTA, int PLACES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kRecurrenceThreads, 4)
    RecurrenceKernel(RecurrenceKernelParams params) {
  device::GridRelease();
  const Tile<PLACES> tile;
  device::GridWait();
  const StateSegments& segments = params.recurrence.segments;
  for (int row = static_cast<int>(blockIdx.z); row < segments.num_rows;
       row += static_cast<int>(gridDim.z)) {
    const int first = segments.of_row[row], last = segments.of_row[row + 1];
    if (first < last && !GoesByChunks(params, first, last)) {
      RunRow<T, DELTA, PLACES>(params, first, last, tile);
    }
  }
}

CudaError LaunchStepRecurrence(const LaunchContext& context, const RecurrenceKernelParams& p) {
  const RecurrenceParams& params = p.recurrence;
  const int blocks = CeilDiv(params.value_dim, kBlockColumns) * params.num_heads;
  const int rows = CeilDiv(kBlocksWanted * context.num_multiprocessors, blocks);
  const auto launch = [&]<typename T, bool DELTA, int PLACES>() {
    const LaunchShape shape = {
        .grid = {static_cast<unsigned>(CeilDiv(params.value_dim, kBlockColumns)),
                 static_cast<unsigned>(params.num_heads),
                 static_cast<unsigned>(std::min(rows, params.segments.num_rows))},
        .block = {kRecurrenceThreads},
        .shared_bytes = Tile<PLACES>::Bytes(),
        .programmatic = true};
    return Launch(context, shape, RecurrenceKernel<T, DELTA, PLACES>, p);
  };
  return DispatchHalf(params.out.dtype, [&]<typename T>() {
    const bool is_delta = params.kind == RecurrenceKind::kDelta;
    constexpr int kFew = 2, kMany = 4;  // places of up to 128 and 256 keys
    static_assert(kMany * kKeysOfPlace == kStateKeysMax);
    if (params.key_dim <= kFew * kKeysOfPlace) {
      return is_delta ? launch.template operator()<T, true, kFew>()
                      : launch.template operator()<T, false, kFew>();
    }
    return is_delta ? launch.template operator()<T, true, kMany>()
                    : launch.template operator()<T, false, kMany>();
  });
}

}  // namespace

CudaError LaunchRecurrence(const LaunchContext& context, const RecurrenceParams& params,
                           bool deterministic) {
  MINISGL_CHECK(params.key_dim <= kStateKeysMax, "a state of {} keys; {} at most", params.key_dim,
                kStateKeysMax);
  MINISGL_CHECK(params.decay.dtype == DType::kF32 && params.gain.dtype == DType::kF32,
                "a recurrence with scalars of {}", DTypeName(params.decay.dtype));
  const RecurrenceKernelParams p = {
      .recurrence = params,
      .head_floats = StateHeadFloats(params.key_dim, params.value_dim),
      .slot_floats = RecurrenceStateFloats(params.num_heads, params.key_dim, params.value_dim),
      .aligned = (params.stride | params.key_dim | params.value_dim) % kChunk == 0 &&
                 IsAligned16(params.query.data) && IsAligned16(params.key.data) &&
                 IsAligned16(params.value.data) && IsAligned16(params.out.data),
      // Not where every token is a span of its own.
      .chunks = !deterministic && params.num_tokens >= kChunkedSpanMin &&
                params.segments.count < params.num_tokens &&
                ChunkRecurrenceBytes(params.key_dim) <= context.shared_bytes_max};
  if (p.chunks) {
    if (const CudaError error = LaunchChunkRecurrence(context, p); error != kCudaSuccess) {
      return error;
    }
  }
  return LaunchStepRecurrence(context, p);
}

}  // namespace minisgl::cuda
