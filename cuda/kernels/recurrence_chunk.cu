// Linear attention with decay by chunks of 32 tokens, on the tensor cores: prompts of layers that
// recurrence.cu takes token by token.
//
// With g_i the sum of the logarithms of decays in the chunk up to token i, S [N, P] the state
// before it, and k_i, q_i, v_i and b_i a token's key, query, value and gain:
//   A_ij = b_i (k_i . k_j) exp(g_i - g_j), j < i       R_ij = (q_i . k_j) exp(g_i - g_j), j <= i
//   U = (I + A)^-1 diag(b) (V - diag(exp g) K S)       state spaces: U = diag(b) V
//   O = diag(exp g) Q S + R U  (+ skip V)
//   S' = exp(g_end) S + K^T diag(exp(g_end - g)) U
// Decays are exponentials of differences of sums, which are never positive: nothing overflows, and
// a decay of 0 is no special case. Sums are kept in two floats: behind a token that clears the
// state, differences are as exact as before it.
//
// Grid (P / 64, H, rows), block 256: a block has 64 columns of one head's matrix. Its first 4 warps
// hold 16 columns each in registers (transposed: a row of a fragment is a column of S), so that U,
// O and S' of these columns pass from product to product within a warp and no barrier is needed.
// The other 4 meanwhile make A and R of the next chunk, and the inverses of the blocks of 16 tokens
// on the diagonal of I + A; the block below them is solved by the warps of columns. One barrier a
// chunk. Tokens of the chunk after the next are copied to the third of three stages. Each block of
// a head makes A and R for itself: it costs the other warps nothing, a kernel before this one would
// write and read 20 KB a chunk and head.
//
// Precision. S, U, A's inverses and R enter products as two parts of T, the second the rounding
// error of the first: relative errors of 2^-16 for bf16 and 2^-22 for f16, of which S and U are
// below 65504 for f16. S stays in f32, diagonal inverses are computed in f32 by substitution, whose
// intermediate results are the recurrence's (a product of powers of A has much larger ones that
// cancel). Results differ from results by steps in the last bits.
//
// A row's span is cut where its state is written; a chunk may be short. Shared memory: 90 KB for up
// to 128 keys, so that compute capability 8.6 has it, and 139 KB for up to 256.
//
// Limits, for each chunk and 64 columns with N = P = 128: 20 KB are read and 4 KB written, 0.6 TB/s
// at 128 blocks and 5 us a chunk. The warps of columns do 4 x 228 products of 2048 multiply-adds,
// the others 96: 2.1 M, of which a multiprocessor does 1024 in a cycle: 2,000 cycles, 1.1 us. The
// warps of columns read 104 KB of shared memory, 830 cycles. A block is bound by the chain of
// products of its chunks.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/recurrence_chunk.cuh"
#include "kernels/recurrence_columns.cuh"
#include "kernels/recurrence_params.h"
#include "kernels/recurrence_tokens.cuh"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

// Blocks for each multiprocessor; if there would be more, a block has several rows.
constexpr int kChunkBlocksWanted = 2;

// Copies the queries, keys and values of `chunk`; zeros for tokens past its last.
template <typename T, int KEYS>
MINISGL_DEVICE void CopyChunk(const RecurrenceKernelParams& params, const TokenChunk& chunk,
                              const ChunkMemory<T, KEYS>& memory, int stage) {
  constexpr int kKeyChunks = KEYS / kChunk, kValueChunks = kColumnsOfBlock / kChunk;
  constexpr int kTokenChunks = 2 * kKeyChunks + kValueChunks;
  static_assert(kChunkTokens * kTokenChunks % kChunkThreads == 0);
  constexpr int kKeyRow = ChunkShape<KEYS>::kKeyRow;
  const RecurrenceParams& p = params.recurrence;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t keys = int64_t{head / (p.num_heads / p.num_groups)} * p.key_dim;
  const int column = static_cast<int>(blockIdx.x) * kColumnsOfBlock;
#pragma unroll(kChunkCopiesAtOnce)
  for (int i = 0; i < kChunkTokens * kTokenChunks / kChunkThreads; ++i) {
    const int index = i * kChunkThreads + static_cast<int>(threadIdx.x);
    const int token = index / kTokenChunks, part = index % kTokenChunks;
    const bool is_value = part >= 2 * kKeyChunks, is_key = !is_value && part >= kKeyChunks;
    const int at = (is_value ? part - 2 * kKeyChunks : part % kKeyChunks) * kChunk;
    const int left = token < chunk.count ? (is_value ? p.value_dim - column : p.key_dim) - at : 0;
    const T* const base = (is_value ? p.value : is_key ? p.key : p.query).template as<T>();
    const T* const from = base + (chunk.begin + token) * p.stride + at +
                          (is_value ? int64_t{head} * p.value_dim + column : keys);
    const device::Shared<T> to = is_value ? memory.Values(stage) + (token * kChunkValueRow + at)
                                 : is_key ? memory.Keys(stage) + (token * kKeyRow + at)
                                          : memory.Queries(stage) + (token * kKeyRow + at);
    if (params.aligned) {
      device::CopyAsync16(to, left > 0 ? from : base, left > 0);
      continue;
    }
    device::Vec<T, kChunk> elements;
#pragma unroll
    for (int e = 0; e < kChunk; ++e) {
      elements[e] = e < left ? from[e] : device::FromFloat<T>(0);
    }
    device::StoreShared(to, elements);
  }
  device::CopyAsyncCommit();
}

// One row, whose spans are [first, last).
template <typename T, bool DELTA, int KEYS>
MINISGL_DEVICE void RunChunks(const RecurrenceKernelParams& params, int first, int last,
                              const ChunkMemory<T, KEYS>& memory) {
  const StateSpan* const spans = params.recurrence.segments.spans;
  ColumnWarp<T, DELTA, KEYS> columns(params, memory);
  TokenWarp<T, DELTA, KEYS> tokens(params, memory);
  const bool makes = static_cast<int>(threadIdx.x) >= kColumnWarps * device::kWarpSize;
  const bool exists = columns.exists();
  if (exists) columns.Load(spans[first].read);
  ChunkWalk walk(spans, first, last);
  TokenChunk now, next = walk.Next();
  int stage = 0, parity = 0;  // of `next`
  __syncthreads();            // no warp reads data of the previous row
  CopyChunk<T, KEYS>(params, next, memory, stage);
  if (makes) tokens.LoadAhead(next);
  while (now.count > 0 || next.count > 0) {
    const TokenChunk after = walk.Next();
    const int stage_after = stage == kChunkStages - 1 ? 0 : stage + 1;
    const int stage_now = stage == 0 ? kChunkStages - 1 : stage - 1;
    device::CopyAsyncWait<0>();
    // The tokens of `next` and the matrices of `now` are there; no warp reads the stage of the
    // chunk before.
    __syncthreads();
    if (after.count > 0) CopyChunk<T, KEYS>(params, after, memory, stage_after);
    if (makes) {
      tokens.LoadAhead(after);
      if (next.count > 0) tokens.Make(next, stage, parity);
    } else if (exists && now.count > 0) {
      columns.Run(now, stage_now, parity ^ 1);
      if (now.write >= 0) columns.Store(now.write);
    }
    now = next;
    next = after;
    stage = stage_after;
    parity ^= 1;
  }
}

template <typename T, bool DELTA, int KEYS>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kChunkThreads, 1)
    ChunkRecurrenceKernel(RecurrenceKernelParams params) {
  device::GridRelease();
  const ChunkMemory<T, KEYS> memory;
  device::GridWait();
  // The block takes every gridDim.z-th of the rows that go by chunks; a lane looks at a row.
  const StateSegments& segments = params.recurrence.segments;
  const int lane = static_cast<int>(threadIdx.x) % device::kWarpSize;
  int next = static_cast<int>(blockIdx.z);
  for (int begin = 0; begin < segments.num_rows; begin += device::kWarpSize) {
    int first = 0, last = 0;
    if (begin + lane < segments.num_rows) {
      first = segments.of_row[begin + lane];
      last = segments.of_row[begin + lane + 1];
    }
    unsigned rows =
        __ballot_sync(device::kAllLanes, first < last && GoesByChunks(params, first, last));
    for (; rows != 0; rows &= rows - 1, --next) {
      if (next != 0) continue;
      next += static_cast<int>(gridDim.z);
      const int from = __ffs(static_cast<int>(rows)) - 1;
      RunChunks<T, DELTA, KEYS>(params, __shfl_sync(device::kAllLanes, first, from),
                                __shfl_sync(device::kAllLanes, last, from), memory);
    }
  }
}

constexpr int kFewStateKeys = 128;

}  // namespace

size_t ChunkRecurrenceBytes(int32_t key_dim) {
  return key_dim <= kFewStateKeys ? ChunkShape<kFewStateKeys>::Bytes()
                                  : ChunkShape<kStateKeysMax>::Bytes();
}

CudaError LaunchChunkRecurrence(const LaunchContext& context,
                                const RecurrenceKernelParams& params) {
  const RecurrenceParams& p = params.recurrence;
  const int64_t tiles = CeilDiv(p.value_dim, kColumnsOfBlock);
  const int64_t blocks = tiles * p.num_heads;
  const int64_t wanted = CeilDiv(int64_t{kChunkBlocksWanted} * context.num_multiprocessors, blocks);
  const int64_t rows =
      std::min({int64_t{p.segments.num_rows}, p.num_tokens / kChunkedSpanMin, wanted});
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(tiles), static_cast<unsigned>(p.num_heads),
               static_cast<unsigned>(rows)},
      .block = {kChunkThreads},
      .shared_bytes = ChunkRecurrenceBytes(p.key_dim),
      .programmatic = true};
  return DispatchHalf(p.out.dtype, [&]<typename T>() {
    const bool is_delta = p.kind == RecurrenceKind::kDelta;
    if (p.key_dim <= kFewStateKeys) {
      return Launch(context, shape,
                    is_delta ? ChunkRecurrenceKernel<T, true, kFewStateKeys>
                             : ChunkRecurrenceKernel<T, false, kFewStateKeys>,
                    params);
    }
    return Launch(context, shape,
                  is_delta ? ChunkRecurrenceKernel<T, true, kStateKeysMax>
                           : ChunkRecurrenceKernel<T, false, kStateKeysMax>,
                  params);
  });
}

}  // namespace minisgl::cuda
