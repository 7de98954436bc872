// The kernels of the engine's tables on the device: the writes of a plan, the tokens of a step read
// from the tables, and the sampled tokens written back to the pool. Also a fill, and a pause.
//
// These kernels move a few KB; chains of dependent loads take their time.
#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace {

using device::GridRelease;
using device::GridWait;
using device::kWarpSize;
using device::Shared;
using device::SharedArena;

constexpr int kStepThreads = 256;
constexpr int kFrontPart = kStepThreads * 16;  // bytes of the front that a block copies

LaunchShape FlatShape(int64_t num_threads) {
  return {.grid = {static_cast<unsigned>(CeilDiv<int64_t>(num_threads, kStepThreads))},
          .block = {kStepThreads},
          .programmatic = true};
}

// PageTableWrite and TokenPoolWrite have the same fields, so a template applies both.
template <typename WRITE>
MINISGL_DEVICE bool Covers(const WRITE& write, int32_t table_row, int32_t index) {
  return write.table_row == table_row && index >= write.first && index - write.first < write.count;
}

// Applies writes[w] to the elements that no later write covers. Every thread of the block must call
// this. `any_later`: an int of shared memory.
template <typename WRITE>
MINISGL_DEVICE void ApplyWrite(const WRITE* writes, int w, int num_writes, const int32_t* values,
                               int32_t* table, int64_t stride, Shared<int> any_later) {
  const WRITE write = writes[w];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) any_later[0] = 0;
  __syncthreads();  // any_later is zero
  for (int later = w + 1 + thread; later < num_writes; later += kStepThreads) {
    const WRITE other = writes[later];
    const bool overlaps = other.table_row == write.table_row &&
                          other.first < write.first + write.count &&
                          write.first < other.first + other.count;
    if (overlaps) device::AtomicMaxShared(any_later, 1);
  }
  __syncthreads();  // any_later is final
  const bool check = any_later[0] != 0;
  int32_t* const row = table + write.table_row * stride;
  for (int i = thread; i < write.count; i += kStepThreads) {
    const int32_t index = write.first + i;
    bool covered = false;
    for (int later = w + 1; check && !covered && later < num_writes; ++later) {
      covered = Covers(writes[later], write.table_row, index);
    }
    if (!covered) row[index] = values[write.offset + i];
  }
}

// Grid (page table writes + token pool writes + front_bytes / 4096), block 256, 4 bytes of shared
// memory. A block has one write, or 4096 bytes of the front. It looks at all writes after its own
// (16 bytes each, from the caches; at 512 writes two loads for each thread), so that the order of
// blocks does not matter. Traffic: 8 bytes for each element, and twice the front.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kStepThreads, 1) PlanWritesKernel(PlanWritesParams p) {
  SharedArena arena;
  const Shared<int> any_later = arena.Take<int>(1);
  GridRelease();
  GridWait();
  const int w = static_cast<int>(blockIdx.x);
  const int part = w - p.num_page_table_writes - p.num_token_pool_writes;
  if (part >= 0) {
    const int64_t at = int64_t{part} * kFrontPart + static_cast<int>(threadIdx.x) * 16;
    if (at >= p.front_bytes) return;
    const auto* const from = static_cast<const unsigned char*>(p.front) + at;
    auto* const to = static_cast<unsigned char*>(p.front_copy) + at;
    device::StoreVec(reinterpret_cast<uint32_t*>(to),
                     device::LoadVec<4>(reinterpret_cast<const uint32_t*>(from)));
  } else if (w < p.num_page_table_writes) {
    ApplyWrite(p.page_table_writes, w, p.num_page_table_writes, p.pages, p.page_table,
               p.page_table_stride, any_later);
  } else {
    ApplyWrite(p.token_pool_writes, w - p.num_page_table_writes, p.num_token_pool_writes, p.tokens,
               p.token_pool, p.token_pool_stride, any_later);
  }
}

// Returns the last of `num_rows` rows that begins at or before `token`. REQUIRES row_begin[0] <=
// token. Rows without tokens are skipped, as a later row begins at the same token.
MINISGL_DEVICE int RowOf(Shared<int32_t> row_begin, int num_rows, int token) {
  int low = 0, high = num_rows;  // row_begin[low] <= token; from `high` on rows begin later
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (row_begin[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

// Grid (T / 256), block 256: a thread for each token, which finds its row by bisection of row_begin
// in shared memory: 4 * (R + 1) bytes, 9 reads for 512 rows. Traffic: 24 bytes for each token, and
// 4 * R for each block.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kStepThreads, 1)
    PrepareTokensKernel(PrepareTokensParams p) {
  SharedArena arena;
  const Shared<int32_t> row_begin = arena.Take<int32_t>(p.num_rows + 1);
  GridRelease();
  GridWait();
  for (int i = static_cast<int>(threadIdx.x); i <= p.num_rows; i += kStepThreads) {
    row_begin[i] = p.row_begin[i];
  }
  __syncthreads();
  const int token = static_cast<int>(blockIdx.x) * kStepThreads + static_cast<int>(threadIdx.x);
  if (token >= p.num_tokens) return;
  const int row = RowOf(row_begin, p.num_rows, token);
  const int32_t end = row_begin[row + 1];
  const int32_t position = p.kv_len[row] - (end - token);
  const int64_t table_row = p.table_row[row];
  const int32_t page = p.page_table[table_row * p.page_table_stride + position / p.page_size];
  p.token_ids[token] = p.token_pool[table_row * p.token_pool_stride + position];
  p.positions[token] = position;
  p.slots[token] = int64_t{page} * p.page_size + position % p.page_size;
}

MINISGL_DEVICE bool IsToken(const DeviceToken& sampled) {
  return sampled.outcome == static_cast<int32_t>(RowResult::Outcome::kToken);
}

static_assert(sizeof(DeviceToken) == 16, "one access each");

// The warp of a row stores its results on the host.
MINISGL_DEVICE void StoreOnHost(const AcceptTokensParams& p, int row, int lane, int32_t accepted) {
  if (p.host == nullptr) return;
  const HostResults host = *p.host;
  for (int32_t place = p.place_begin[row] + lane; place < p.place_begin[row + 1];
       place += kWarpSize) {
    const auto* const from = reinterpret_cast<const int32_t*>(p.sampled + place);
    device::StoreVec(reinterpret_cast<int32_t*>(host.sampled + place), device::LoadVec<4>(from));
  }
  if (lane == 0) host.num_accepted[row] = accepted;
}

// Grid (R / 8), block 256: a warp for each row, a lane for each of its drafts. Traffic: 20 bytes
// for each place, and 16 bytes to the host.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kStepThreads, 1)
    AcceptTokensKernel(AcceptTokensParams p) {
  GridRelease();
  GridWait();
  const int thread = static_cast<int>(blockIdx.x) * kStepThreads + static_cast<int>(threadIdx.x);
  const int row = thread / kWarpSize, lane = thread % kWarpSize;
  if (row >= p.num_rows) return;  // the whole warp
  const int32_t begin = p.place_begin[row];
  const int32_t num_drafts = p.place_begin[row + 1] - begin - 1;
  if (num_drafts < 0) {
    if (lane == 0) p.num_accepted[row] = 0;
    return StoreOnHost(p, row, lane, 0);
  }
  const DeviceToken* const sampled = p.sampled + begin;
  const int32_t first = p.kv_len[row] - num_drafts;  // the position of sampled[0]
  int32_t* const tokens = p.token_pool + p.table_row[row] * p.token_pool_stride;
  // Accepted drafts are those before the first that differs; 32 are compared at a time.
  int32_t accepted = num_drafts;
  for (int32_t base = 0; base < num_drafts && accepted == num_drafts; base += kWarpSize) {
    const int32_t i = base + lane;
    const bool differs =
        i < num_drafts && !(IsToken(sampled[i]) && sampled[i].token == tokens[first + i]);
    const int32_t first_different = -device::WarpMax(differs ? -i : -num_drafts);
    accepted = first_different;
  }
  StoreOnHost(p, row, lane, accepted);
  __syncwarp();  // every lane has read the drafts
  if (lane != 0) return;
  // A place without a token leaves the pool unchanged: a step in flight may read the old id, which
  // is valid, and its result is dropped.
  if (IsToken(sampled[accepted]) && first + accepted < p.token_pool_stride) {
    tokens[first + accepted] = sampled[accepted].token;
  }
  p.num_accepted[row] = accepted;
}

// Grid (num_words / 256), block 256. Traffic: 4 bytes for each word.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kStepThreads, 1)
    FillKernel(uint32_t* words, uint32_t value, int64_t num_words) {
  GridRelease();
  GridWait();
  const int64_t i = int64_t{blockIdx.x} * kStepThreads + threadIdx.x;
  if (i < num_words) words[i] = value;
}

// Grid 1, block 1. No traffic.
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(1, 1) PauseKernel(uint32_t nanoseconds) {
  GridRelease();
  GridWait();
  device::Sleep(nanoseconds);
}

}  // namespace

CudaError LaunchApplyPlanWrites(const LaunchContext& context, const PlanWritesParams& params) {
  const int num_writes = params.num_page_table_writes + params.num_token_pool_writes;
  const auto num_parts = static_cast<unsigned>(CeilDiv<int64_t>(params.front_bytes, kFrontPart));
  const LaunchShape shape = {.grid = {static_cast<unsigned>(num_writes) + num_parts},
                             .block = {kStepThreads},
                             .shared_bytes = sizeof(int),
                             .programmatic = true};
  return Launch(context, shape, PlanWritesKernel, params);
}

CudaError LaunchPrepareTokens(const LaunchContext& context, const PrepareTokensParams& params) {
  LaunchShape shape = FlatShape(params.num_tokens);
  shape.shared_bytes = static_cast<size_t>(params.num_rows + 1) * sizeof(int32_t);
  return Launch(context, shape, PrepareTokensKernel, params);
}

CudaError LaunchAcceptTokens(const LaunchContext& context, const AcceptTokensParams& params) {
  return Launch(context, FlatShape(int64_t{params.num_rows} * kWarpSize), AcceptTokensKernel,
                params);
}

CudaError LaunchFill(const LaunchContext& context, uint32_t* words, uint32_t value,
                     int64_t num_words) {
  return Launch(context, FlatShape(num_words), FillKernel, words, value, num_words);
}

CudaError LaunchPause(const LaunchContext& context, uint32_t nanoseconds) {
  return Launch(context, {.grid = {1}, .block = {1}, .programmatic = true}, PauseKernel,
                nanoseconds);
}

}  // namespace minisgl::cuda
