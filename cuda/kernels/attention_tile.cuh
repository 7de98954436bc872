// The work of one warp on a tile of keys: 16 (or 2 x 16) query rows against KEYS keys in shared
// memory, on the tensor cores. Both attention kernels are built from these functions.
//
// Every query row goes through the same operations in the same order in both instances of the
// extend kernel, whatever other rows the warp holds.
//
// Shared memory: a row has D elements and 8 of padding. D / 2 + 4 words are 4 times an odd number
// for every D used, so the 8 rows of 16 bytes that ldmatrix reads at once are in different banks.
//
// Fragments (PTX manual, mma.m16n8k16): lane l holds rows l / 4 and l / 4 + 8, and columns
// 2 * (l % 4) and 2 * (l % 4) + 1 of each 8.
#pragma once

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_state.h"

namespace minisgl::cuda {

using device::kAllLanes;

template <int D>
inline constexpr int kPaddedRow = D + 8;

// Copies ROWS rows of D elements to `dst`, and if V the rows v_offset further to `dst_v`. Lane i
// passes the offset of row i relative to base; a negative one gives zeros. AT_ONCE: how far the
// loop over a lane's chunks is unrolled, which bounds its registers.
template <typename T, int D, int ROWS, bool V, int AT_ONCE>
MINISGL_DEVICE void CopyRows(device::Shared<T> dst, device::Shared<T> dst_v, const T* base,
                             int64_t v_offset, int64_t offset, int lane) {
  constexpr int kChunks = D / 8;  // of 16 bytes
  static_assert(ROWS <= 32 && ROWS * kChunks % 32 == 0);
#pragma unroll(AT_ONCE)
  for (int i = 0; i < ROWS * kChunks / 32; ++i) {
    const int chunk = i * 32 + lane, row = chunk / kChunks, column = chunk % kChunks * 8;
    const int64_t begin = __shfl_sync(kAllLanes, offset, row);
    const bool valid = begin >= 0;
    const T* const src = base + (valid ? begin + column : 0);
    device::CopyAsync16(dst + (row * kPaddedRow<D> + column), src, valid);
    if constexpr (V) {
      device::CopyAsync16(dst_v + (row * kPaddedRow<D> + column), src + (valid ? v_offset : 0),
                          valid);
    }
  }
}

// Copies ROWS rows of D elements that lie next to each other, as the keys of a page do, or their
// values.
template <typename T, int D, int ROWS>
MINISGL_DEVICE void CopyRun(device::Shared<T> dst, const T* src, int lane) {
  constexpr int kChunks = D / 8;  // of 16 bytes
  static_assert(ROWS * kChunks % 32 == 0);
#pragma unroll
  for (int i = 0; i < ROWS * kChunks / 32; ++i) {
    // Chunk c = 32 i + lane is behind c / kChunks rows' padding.
    const int row =
        32 % kChunks == 0 ? i * (32 / kChunks) + lane / kChunks : (i * 32 + lane) / kChunks;
    device::CopyAsync16(dst + ((i * 32 + lane) * 8 + row * (kPaddedRow<D> - D)),
                        src + lane * 8 + i * 256);
  }
}

// The location of a lane's key, found in two steps, so that the load of the page number overlaps
// with other work.
struct KeyPlace {
  int32_t key = 0;
  int32_t page = -1;  // none
};

template <typename T>
MINISGL_DEVICE KeyPlace FindKey(const AttentionArguments<T>& args, const int32_t* pages,
                                int32_t key, bool valid) {
  KeyPlace place;
  place.key = key;
  if (valid) place.page = pages[key >> args.page_shift];
  return place;
}

template <typename T>
MINISGL_DEVICE int64_t KeyOffset(const AttentionArguments<T>& args, KeyPlace place,
                                 int32_t kv_head) {
  if (place.page < 0) return -1;
  const int32_t slot = place.key & ((1 << args.page_shift) - 1);
  return place.page * args.page_stride + slot * args.slot_stride + kv_head * args.head_stride;
}

// True if 16 keys that begin at a multiple of 16 lie next to each other.
template <typename T, int D>
MINISGL_DEVICE bool KeysLieInRuns(const AttentionArguments<T>& args) {
  return args.slot_stride == D && args.page_shift >= 4;
}

// Copies K and V of keys [first, first + KEYS), of which a lane's is `place`. `whole`: all of them
// are valid. AT_ONCE: as for CopyRows.
template <typename T, int D, int KEYS, int AT_ONCE>
MINISGL_DEVICE void CopyKeys(const AttentionArguments<T>& args, device::Shared<T> keys,
                             device::Shared<T> values, KeyPlace place, int32_t first,
                             int32_t kv_head, bool whole, int lane) {
  static_assert(KEYS <= 16 || KEYS == 32);
  constexpr int kRun = KEYS < 16 ? KEYS : 16;
  if (!whole || !KeysLieInRuns<T, D>(args)) {
    CopyRows<T, D, KEYS, true, AT_ONCE>(keys, values, args.keys, args.v_offset,
                                        KeyOffset(args, place, kv_head), lane);
    return;
  }
#pragma unroll
  for (int run = 0; run < KEYS; run += kRun) {
    KeyPlace begin;
    begin.key = first + run;
    begin.page = KEYS <= 16 ? place.page : __shfl_sync(kAllLanes, place.page, run);
    const T* const from = args.keys + KeyOffset(args, begin, kv_head);
    CopyRun<T, D, kRun>(keys + run * kPaddedRow<D>, from, lane);
    CopyRun<T, D, kRun>(values + run * kPaddedRow<D>, from + args.v_offset, lane);
  }
}

// scores[m] = query rows m * KEYS^T. query(k, m, a) sets the fragment of columns [16k, 16k + 16).
// AT_ONCE: how many fragments are in flight, fewer if registers are scarce.
template <typename T, int D, int KEYS, int M, int AT_ONCE = (D > 128 ? 4 : D / 16), typename Query>
MINISGL_DEVICE void MultiplyKeys(float (&scores)[M][KEYS / 8][4], device::Shared<T> keys, int lane,
                                 const Query& query) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] = 0;
    }
  }
  // Lane l addresses row l % 8 of matrix l / 8. The matrices: keys 0-7 with columns 0-7 and 8-15,
  // then keys 8-15 with the same columns.
  const device::Shared<T> corner =
      keys + ((lane % 8 + lane / 16 * 8) * kPaddedRow<D> + lane / 8 % 2 * 8);
#pragma unroll(AT_ONCE)
  for (int k = 0; k < D / 16; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) query(k, m, a[m]);
#pragma unroll
    for (int pair = 0; pair < KEYS / 16; ++pair) {
      uint32_t regs[4];
      device::LoadMatrix4<T>(regs, corner + (pair * 16 * kPaddedRow<D> + k * 16));
      const uint32_t low[2] = {regs[0], regs[1]}, high[2] = {regs[2], regs[3]};
#pragma unroll
      for (int m = 0; m < M; ++m) {
        device::Mma16816<T>(scores[m][2 * pair], a[m], low);
        device::Mma16816<T>(scores[m][2 * pair + 1], a[m], high);
      }
    }
  }
}

// Applies the soft cap: turns products into the values that ScoreScale::weight multiplies.
template <int N>
MINISGL_DEVICE void CapScores(float (&scores)[N][4], const ScoreScale& scale) {
  if (scale.inner == 0) return;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] = device::Tanh(scores[n][i] * scale.inner);
  }
}

// Sets the scores of invisible keys to -infinity. The lane's row of half h sees keys [low[h],
// high[h]); the tile begins with key `first`.
template <int N>
MINISGL_DEVICE void MaskScores(float (&scores)[N][4], int32_t first, const int32_t (&low)[2],
                               const int32_t (&high)[2], int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t key = first + n * 8 + lane % 4 * 2 + i % 2;
      if (key < low[i / 2] || key >= high[i / 2]) scores[n][i] = kMinusInfinity;
    }
  }
}

// The states and outputs of 16 query rows. Each lane sums the weights of its own columns;
// StateOfRow adds the four lanes of a row.
template <int D>
struct RowStates {
  float out[D / 8][4];
  float largest[2];
  float sum[2];

  MINISGL_DEVICE void Clear() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      largest[h] = kMinusInfinity;
      sum[h] = 0;
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out[n][i] = 0;
    }
  }

  MINISGL_DEVICE SoftmaxState StateOfRow(int h) const {
    float total = sum[h];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    return {largest[h], total};
  }

  // Makes `sum` the sum of the whole row, in each of the row's lanes.
  MINISGL_DEVICE void SumLanes() {
#pragma unroll
    for (int h = 0; h < 2; ++h) sum[h] = StateOfRow(h).sum;
  }
};

// Adds the scores of row half h to its state. Sets the weights, as half of the A fragments of the
// product with V, and returns the factor for the row's output. A row that sees no key of the tile
// keeps its state bit for bit. Multiply-adds are written as fmaf, so that the compiler does not
// fuse them in one instance and not in another.
template <typename T, int D, int N>
MINISGL_DEVICE float UpdateHalf(const float (&scores)[N][4], float weight, int h,
                                uint32_t (&weights)[N / 2][4], RowStates<D>* states) {
  float largest = kMinusInfinity;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    largest = fmaxf(largest, fmaxf(scores[n][2 * h], scores[n][2 * h + 1]));
  }
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
  largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
  largest = fmaxf(states->largest[h], largest * weight);
  const float reference = Reference(largest);
  const float shrink = device::Exp2(states->largest[h] - reference);
  states->largest[h] = largest;
  float sum = 0;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float low = device::Exp2(fmaf(scores[n][2 * h], weight, -reference));
    const float high = device::Exp2(fmaf(scores[n][2 * h + 1], weight, -reference));
    weights[n / 2][n % 2 * 2 + h] = device::Pack2<T>(low, high);
    sum += low + high;
  }
  states->sum[h] = fmaf(states->sum[h], shrink, sum);
  return shrink;
}

// The same for both halves. Skips the scaling of the output if no row of the warp has a new
// maximum, as in most tiles of a long row: all factors are 1.
template <typename T, int D, int N>
MINISGL_DEVICE void UpdateStates(const float (&scores)[N][4], float weight,
                                 uint32_t (&weights)[N / 2][4], RowStates<D>* states) {
  float shrink[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    shrink[h] = UpdateHalf<T, D, N>(scores, weight, h, weights, states);
  }
  if (!__any_sync(kAllLanes, shrink[0] != 1.0f || shrink[1] != 1.0f)) return;
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) states->out[n][i] *= shrink[i / 2];
  }
}

// out += P * V, 16 keys at a time, in order.
template <typename T, int D, int KEYS, int M>
MINISGL_DEVICE void MultiplyValues(const uint32_t (&weights)[M][KEYS / 16][4],
                                   device::Shared<T> values, int lane, RowStates<D> (&states)[M]) {
  // Lane l addresses row l % 8 of matrix l / 8. The matrices: keys 0-7 and 8-15 with columns 0-7,
  // then the same keys with columns 8-15.
  const device::Shared<T> corner = values + (lane % 16 * kPaddedRow<D> + lane / 16 * 8);
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k) {
#pragma unroll
    for (int pair = 0; pair < D / 16; ++pair) {
      uint32_t regs[4];
      device::LoadMatrix4Trans<T>(regs, corner + (k * 16 * kPaddedRow<D> + pair * 16));
      const uint32_t low[2] = {regs[0], regs[1]}, high[2] = {regs[2], regs[3]};
#pragma unroll
      for (int m = 0; m < M; ++m) {
        device::Mma16816<T>(states[m].out[2 * pair], weights[m][k], low);
        device::Mma16816<T>(states[m].out[2 * pair + 1], weights[m][k], high);
      }
    }
  }
}

// Stores two neighbouring elements of an output row.
template <typename T>
MINISGL_DEVICE void StorePair(T* p, float low, float high) {
  device::Vec<uint32_t, 1> word;
  word[0] = device::Pack2<T>(low, high);
  device::StoreVec(reinterpret_cast<uint32_t*>(p), word);
}

}  // namespace minisgl::cuda
