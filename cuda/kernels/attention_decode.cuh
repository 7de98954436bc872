// Decode attention: rows of one token against their keys. Bound by reading the KV cache.
//
// A row's states are merged in a fixed order: the keys of a warp in order, then the warps of a
// block, then the splits of the row. The block that writes a row's last split merges its splits. So
// a result depends on the length of splits, which the plan chooses for the step, and on nothing
// else of the step.
//
// Works. A work is an item of the plan, a KV head and an M tile of at most 16 query heads. An item
//   is a split of a row, or of a group of rows that share its keys (cascade attention, in the same
//   kernel and with the same bits). A group's keys are read once for the rows of an item, whose
//   query heads fill up to two tiles (one if E is 80 or 256); the items of a split are neighbours,
//   so that it comes from memory once and then from the second-level cache. B rows with P shared
//   and S own keys read (P + B S) 2 E bytes of each head from memory, and (B P / rows + B S) 2 E
//   from the cache, instead of B (P + S) 2 E, with no additional launch.
// Grid. 2 blocks for each multiprocessor, 3 if E <= 80, fewer if there is less work; the same for
//   every step of a graph. Block b begins with work b. Then a block takes the first work that no
//   block has, from a counter, while the ring is in the last tiles of the work before: a work may
//   be 4,096 keys, 2 MB at E = 128, so blocks that were given works in turn would end far apart.
//   KV heads are neighbours in the order of works: blocks that run together read the heads of the
//   same pages.
// Block. 4 warps (2 if E is 256). Warp w takes 16 keys of every tile of 64 (32), and copies them
//   through a ring of stages of its own; only the end of an item has barriers, and the ring's step
//   to the next. The ring runs ahead of the products across the ends of items. Works are taken two
//   tiles before their use, and page numbers are fetched a tile before.
// End of an item. It costs the block's instructions, as the ring keeps loading: so all
//   warps add a few rows' sums together (EndWork), the next query is loaded meanwhile, and a
//   single warp counts the item and merges the row if it was the last, while the others go on.
// Before GridWait. If the kernel before writes neither the plan nor older keys (`early`), a block
//   finds its first work and copies the first tiles. It waits before it copies the newest key.
// Shared memory. stages * warps * 2 * 16 rows of E + 8 elements, and a tile of f32 for merging:
//   111 KB for E = 128 and 3 stages, so that two blocks fit into 227 KB.
// Loads in flight. 2 blocks * 4 warps * 2 stages * 8 KB = 128 KB; 4.3 TB/s * 0.8 us / 132 = 26 KB
//   are needed.
// Traffic. 2 * E * sizeof(T) bytes for each key of each KV head, once; for a row with several
//   splits also 2 * (E + 2) * 4 bytes for each split and query head: 1.6 % at 256 keys, E = 128,
//   G = 2.
// Operations. 4 * E for each key and query head, of 16 rows of the tensor cores' tile whatever G
//   is: at most 15 % of their time at 4.3 TB/s (16 * 4 * E per 4 * E bytes = 16 a byte = 69 T/s of
//   about 500).
#pragma once

#include <algorithm>

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_decode_shape.cuh"
#include "kernels/attention_merge.cuh"
#include "kernels/attention_state.h"
#include "kernels/attention_tile.cuh"
#include "kernels/attention_works.cuh"
#include "kernels/launch.h"

namespace minisgl::cuda {

template <typename T, int D>
class DecodeBlock {
 public:
  using Shape = DecodeShape<D>;

  // REQUIRES that the caller has waited for earlier kernels, unless args.early.
  MINISGL_DEVICE DecodeBlock(const AttentionArguments<T>& args, int stages,
                             const DecodeMemory<T, D>& memory)
      : args_(args),
        stages_(stages),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        works_(args, memory.works),
        ring_(memory.ring + warp_ * stages * 2 * Shape::kPart),
        query_(memory.query),
        sums_(memory.sums),
        states_(memory.states),
        last_(memory.last),
        has_waited_(!args.early) {}

  MINISGL_DEVICE void Run() {
    EnterNextWork();
    for (int stage = 0; stage < stages_; ++stage) CopyAhead(stage);
    Wait();
    int stage = 0;
    DecodeWalk walk;
    works_.Read(0, &walk);
    Query<1> query = {};
    bool has_query = false;  // of `walk`, in `query`
    for (int32_t index = 1; walk.work < works_.num_works(); ++index) {
      if (Shape::kFragments > 1 && NumQueries(walk) > kTileRows) {
        RunLargeWork<Shape::kFragments>(&walk, index - 1, &stage);
        works_.Read(index, &walk);
        has_query = false;
        query = {};  // so that no register holds it in large works
      } else {
        if (!has_query) LoadQuery<1>(walk, &query);
        RowStates<D> rows[1];
        AttendToKeys<1>(walk, &stage, query, rows);
        DecodeWalk next;
        works_.Read(index, &next);
        has_query = EndWork(walk, rows[0], next, &query);
        walk = next;
      }
    }
    device::CopyAsyncWait<0>();
  }

 private:
  // The query heads of F fragments: in registers if there are enough, otherwise in shared memory.
  template <int F>
  static constexpr bool kQueryInShared = F > 1 || D > 128;

  // M rows whose sums of all warps take as many bytes as 16 rows' sums of one.
  static constexpr int kFewRows = kTileRows / Shape::kWarps;

  // The next work's query is loaded while a work ends, if there are registers: three blocks of a
  // multiprocessor have 168 for a thread.
  static constexpr bool kLoadsAhead = !kQueryInShared<1> && Shape::kBlocks == 2;

  // Fragments of keys in flight.
  template <int F>
  static constexpr int kAtOnce = !kQueryInShared<F> ? D / 16
                                 : D > 80           ? 4
                                                    : 1;

  // Registers of A fragments; unused if the query is in shared memory.
  template <int F>
  struct Query {
    uint32_t a[kQueryInShared<F> ? 1 : D / 16][4];
  };

  // A work of more than 16 query heads.
  template <int F>
  MINISGL_DEVICE void RunLargeWork(DecodeWalk* walk, int32_t index, int* stage) {
    Query<F> query;
    LoadQuery<F>(*walk, &query);
    RowStates<D> rows[F];
    AttendToKeys<F>(*walk, stage, query, rows);
    EndLargeWork<F>(walk, index, rows);
  }

  // Attends to all keys of a work of at most F * 16 query heads.
  template <int F>
  MINISGL_DEVICE void AttendToKeys(DecodeWalk& walk, int* stage, const Query<F>& query,
                                   RowStates<D> (&rows)[F]) {
#pragma unroll
    for (int f = 0; f < F; ++f) rows[f].Clear();
    for (; walk.tile < walk.high; walk.tile += Shape::kTileKeys) {
      if (stages_ == 3) {
        device::CopyAsyncWait<2>();
      } else {
        device::CopyAsyncWait<1>();
      }
      __syncwarp();  // every lane's copies are there
      if (HasKeys(walk)) Attend<F>(walk, *stage, query, rows);
      __syncwarp();  // no lane reads the stage any more
      // Filled at once, so that all stages are under way while an item ends and the next begins.
      CopyAhead(*stage);
      *stage = *stage + 1 == stages_ ? 0 : *stage + 1;
    }
  }

  // Waits for the kernels before this one, once.
  MINISGL_DEVICE void Wait() {
    if (!has_waited_) device::GridWait();
    has_waited_ = true;
  }

  // Moves the ring to the block's next work. All warps get there after the same tile of the same
  // work.
  MINISGL_DEVICE void EnterNextWork() {
    if (!works_.Enter(&ahead_)) return;
    table_row_ = args_.table_row[ahead_.item.row];
    PrepareAhead();
  }

  // The same for all lanes of this warp.
  MINISGL_DEVICE bool HasKeys(const DecodeWalk& walk) const {
    const int32_t first = walk.tile + warp_ * 16;
    return first < walk.high && first + 16 > walk.low;
  }

  // Fetches the page of this lane's key of the tile that is copied next.
  MINISGL_DEVICE void PrepareAhead() {
    works_.Prepare(ahead_.high - ahead_.tile);
    const int32_t key = ahead_.tile + warp_ * 16 + lane_ % 16;
    const int32_t* const pages = args_.page_table + table_row_ * args_.page_table_stride;
    place_ = FindKey(args_, pages, key, key >= ahead_.low && key < ahead_.high);
  }

  // Copies the warp's keys of the tile ahead to a stage.
  MINISGL_DEVICE void CopyTile(int stage) const {
    const device::Shared<T> keys = ring_ + stage * 2 * Shape::kPart;
    const int32_t first = ahead_.tile + warp_ * 16;
    const bool whole = first >= ahead_.low && first + 16 <= ahead_.high;
    CopyKeys<T, D, 16, kLoadsAhead ? 4 : 1>(args_, keys, keys + Shape::kPart, place_, first,
                                            ahead_.kv_head, whole, lane_);
  }

  // Copies the warp's keys of the tile ahead, and advances to the next tile. Always closes a group,
  // so that waiting can count groups.
  MINISGL_DEVICE void CopyAhead(int stage) {
    if (ahead_.work < works_.num_works()) {
      // The kernel before wrote the newest key of a row.
      if (ahead_.tile + Shape::kTileKeys >= ahead_.item.kv_len) Wait();
      if (HasKeys(ahead_)) CopyTile(stage);
      ahead_.tile += Shape::kTileKeys;
      if (ahead_.tile >= ahead_.high) {
        EnterNextWork();
      } else {
        PrepareAhead();
      }
    }
    device::CopyAsyncCommit();
  }

  // Query heads of one row in the M tile.
  MINISGL_DEVICE int32_t NumHeads(const DecodeWalk& walk) const {
    const int32_t rest = args_.group - walk.m_tile * kTileRows;
    return rest < kTileRows ? rest : kTileRows;
  }

  // Query heads of all rows of the item. Rows share an item only if one M tile holds a row's heads.
  MINISGL_DEVICE int32_t NumQueries(const DecodeWalk& walk) const {
    return NumHeads(walk) * walk.item.num_queries;
  }

  MINISGL_DEVICE int32_t FirstHead(const DecodeWalk& walk) const {
    return walk.kv_head * args_.group + walk.m_tile * kTileRows;
  }

  // The q-th row of the item.
  MINISGL_DEVICE int32_t RowOf(const DecodeWalk& walk, int32_t q) const {
    return walk.item.num_queries == 1 ? walk.item.row
                                      : args_.plan.queries[walk.item.first_query + q];
  }

  // Row and head of an M row.
  struct QueryHead {
    int32_t row, head;
  };
  MINISGL_DEVICE QueryHead HeadOf(const DecodeWalk& walk, int32_t m) const {
    if (walk.item.num_queries == 1) return {walk.item.row, FirstHead(walk) + m};
    return {RowOf(walk, m / args_.group), FirstHead(walk) + m % args_.group};
  }

  // Index of an M row's query among the heads of qkv.
  MINISGL_DEVICE int32_t QueryIndex(const DecodeWalk& walk, int32_t m) const {
    const QueryHead query = HeadOf(walk, m);
    return query.row * (args_.num_heads + args_.other_heads) + query.head;
  }

  MINISGL_DEVICE const T* QueryAt(const DecodeWalk& walk, int32_t m) const {
    return args_.qkv + int64_t{QueryIndex(walk, m)} * D;
  }

  // Loads the work's query heads; M rows after the last are zeros.
  template <int F>
  MINISGL_DEVICE void LoadQuery(const DecodeWalk& walk, Query<F>* query) const {
    const int32_t num_queries = NumQueries(walk);
    if constexpr (kQueryInShared<F>) {
      // No warp reads the last work's query any more: it has passed a barrier of its end.
      if (F > 1) __syncthreads();  // nor its sums, which are in the same place
      // Lane m's is M row m, so that row numbers are loaded once.
      const int32_t own = lane_ < num_queries ? QueryIndex(walk, lane_) : -1;
#pragma unroll(2)
      for (int i = 0; i < DivideUp(F * kTileRows * (D / 8), Shape::kThreads); ++i) {
        const int chunk = i * Shape::kThreads + static_cast<int>(threadIdx.x);
        if (chunk >= F * kTileRows * (D / 8)) break;  // the same for all lanes of a warp
        const int m = chunk / (D / 8), column = chunk % (D / 8) * 8;
        const int32_t head = __shfl_sync(kAllLanes, own, m);
        // A plain load: waiting for an asynchronous copy would also wait for the keys ahead.
        device::Vec<T, 8> part;
        for (int e = 0; e < 8; ++e) part[e] = device::FromFloat<T>(0.0f);
        if (head >= 0) part = device::LoadVec<8>(args_.qkv + int64_t{head} * D + column);
        device::StoreShared(query_ + (m * kPaddedRow<D> + column), part);
      }
      __syncthreads();  // the whole query is there
    } else {
      const int low = lane_ / 4, high = low + 8;
      const T* const rows[2] = {low < num_queries ? QueryAt(walk, low) + lane_ % 4 * 2 : nullptr,
                                high < num_queries ? QueryAt(walk, high) + lane_ % 4 * 2 : nullptr};
#pragma unroll
      for (int k = 0; k < D / 16; ++k) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          query->a[k][i] = 0;
          if (rows[i % 2] != nullptr) {
            query->a[k][i] = device::LoadVec<1>(
                reinterpret_cast<const uint32_t*>(rows[i % 2] + k * 16 + i / 2 * 8))[0];
          }
        }
      }
    }
  }

  template <int F>
  MINISGL_DEVICE void QueryFragment(const Query<F>& query, int k, int f, uint32_t (&a)[4]) const {
    if constexpr (kQueryInShared<F>) {
      const int corner = lane_ % 16 * kPaddedRow<D> + lane_ / 16 * 8;
      device::LoadMatrix4<T>(a, query_ + (corner + f * 16 * kPaddedRow<D> + k * 16));
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = query.a[k][i];
    }
  }

  template <int F>
  MINISGL_DEVICE void Attend(const DecodeWalk& walk, int stage, const Query<F>& query,
                             RowStates<D> (&rows)[F]) const {
    const device::Shared<T> keys = ring_ + stage * 2 * Shape::kPart;
    float scores[F][2][4];
    MultiplyKeys<T, D, 16, F, kAtOnce<F>>(scores, keys, lane_, [&](int k, int f, uint32_t(&a)[4]) {
      QueryFragment<F>(query, k, f, a);
    });
    const int32_t first = walk.tile + warp_ * 16;
    uint32_t weights[F][1][4];
#pragma unroll
    for (int f = 0; f < F; ++f) {
      CapScores(scores[f], args_.score);
      if (first < walk.low || first + 16 > walk.high) {
        const int32_t low[2] = {walk.low, walk.low}, high[2] = {walk.high, walk.high};
        MaskScores(scores[f], first, low, high, lane_);
      }
      UpdateStates<T, D, 2>(scores[f], args_.score.weight, weights[f], &rows[f]);
    }
    MultiplyValues<T, D, 16, F>(weights, keys + Shape::kPart, lane_, rows);
  }

  // Stores the states of this warp's rows of half h.
  MINISGL_DEVICE void StoreState(const RowStates<D>& rows, int h) const {
    const SoftmaxState own = rows.StateOfRow(h);
    if (lane_ % 4 != 0) return;
    const int place = (warp_ * kTileRows + lane_ / 4 + h * 8) * 2;
    states_[place] = own.largest;
    states_[place + 1] = own.sum;
  }

  MINISGL_DEVICE SoftmaxState LoadState(int warp, int row) const {
    SoftmaxState state;
    state.largest = states_[(warp * kTileRows + row) * 2];
    state.sum = states_[(warp * kTileRows + row) * 2 + 1];
    return state;
  }

  // Merges the warps' states in order of warps. The last warp ends with the sums and the merged
  // states of its rows.
  MINISGL_DEVICE void MergeWarps(RowStates<D>* rows, SoftmaxState (&merged)[2]) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) StoreState(*rows, h);
    __syncthreads();  // every warp's states are there
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      merged[h] = LoadState(0, lane_ / 4 + h * 8);
      for (int w = 1; w < Shape::kWarps; ++w) {
        merged[h] = Merge(merged[h], LoadState(w, lane_ / 4 + h * 8));
      }
    }
    for (int w = 0; w < Shape::kWarps; ++w) {
      if (w == warp_) AddSums(w, merged, rows);
      if (w + 1 < Shape::kWarps) __syncthreads();  // warp w's sums are written
    }
  }

  // Adds the sums of the previous warps to this warp's, and stores the result for the next warp.
  // Written as fmaf, so that items of any number of fragments do the same.
  MINISGL_DEVICE void AddSums(int warp, const SoftmaxState (&merged)[2], RowStates<D>* rows) const {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float factor = Rescale(rows->largest[h], merged[h].largest);
      const device::Shared<float> row =
          sums_ + ((lane_ / 4 + h * 8) * Shape::kSumRow + lane_ % 4 * 2);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        device::Vec<float, 2> pair = {0.0f, 0.0f};
        if (warp > 0) pair = device::LoadShared<2>(row + n * 8);
        rows->out[n][2 * h] = fmaf(rows->out[n][2 * h], factor, pair[0]);
        rows->out[n][2 * h + 1] = fmaf(rows->out[n][2 * h + 1], factor, pair[1]);
        pair[0] = rows->out[n][2 * h];
        pair[1] = rows->out[n][2 * h + 1];
        if (warp + 1 < Shape::kWarps) device::StoreShared(row + n * 8, pair);
      }
    }
  }

  MINISGL_DEVICE RowSplits SplitsOf(const DecodeWalk& walk, int32_t row) const {
    const int32_t kv_len = walk.item.num_queries == 1 ? walk.item.kv_len : args_.kv_len[row];
    return FindSplits(kv_len, args_.window, walk.item.split_keys);
  }

  // The barriers of MergeWarps also separate works: all warps have read what a work stored in
  // shared memory before any passes the first barrier of the next work.
  template <int F>
  MINISGL_DEVICE void EndLargeWork(DecodeWalk* at, int32_t index, RowStates<D> (&rows)[F]) const {
    const DecodeWalk& walk = *at;
#pragma unroll
    for (int f = 0; f < F; ++f) {
      SoftmaxState merged[2];
      MergeWarps(&rows[f], merged);
      if (F > 1 && f == 0) works_.Read(index, at);  // again, for registers
      if (warp_ < Shape::kWarps - 1) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int32_t m = f * kTileRows + lane_ / 4 + h * 8;
        if (m < NumQueries(walk)) StorePart(walk, rows[f], m, h, merged[h]);
      }
    }
    if (warp_ == Shape::kWarps - 1) {
      __syncwarp();  // every lane's parts are stored
      const uint32_t is_last = CountPart(walk);
      if (lane_ < walk.item.num_queries) last_[lane_] = is_last;
    }
    __syncthreads();  // last_ is there
    for (int32_t q = 0; q < walk.item.num_queries; ++q) {
      const uint32_t is_last = last_[q];
      if (is_last == 0) continue;
      const int32_t row = RowOf(walk, q);
      MergeSplits<T, D, Shape::kWarps, Shape::kSumRow>(args_, row, SplitsOf(walk, row),
                                                       FirstHead(walk), NumHeads(walk), sums_);
      __syncthreads();  // the factors may be written again
    }
  }

  // Counts this item's split for its q-th row, q the lane's number. Returns 1 if it was the row's
  // last. REQUIRES that this warp has met those that stored the parts.
  MINISGL_DEVICE uint32_t CountPart(const DecodeWalk& walk) const {
    if (lane_ >= walk.item.num_queries) return 0;
    device::ThreadFence();  // a thread that sees the count sees the parts
    const int32_t row = RowOf(walk, lane_);
    const int64_t counter =
        (int64_t{row} * args_.num_kv_heads + walk.kv_head) * works_.m_tiles() + walk.m_tile;
    const uint32_t before = device::AtomicAddGlobal(args_.plan.arrived + counter, 1u);
    const bool is_last = before + 1 == static_cast<uint32_t>(SplitsOf(walk, row).count);
    if (!is_last) return 0;
    device::ThreadFence();  // threads that meet this one at a barrier see the other blocks' parts
    args_.plan.arrived[counter] = 0;
    return 1;
  }

  // Ends a work of at most 16 query heads. Starts to load the query of `next`, and returns true, if
  // it is kept in registers. The last warp alone counts the work's parts, and merges the splits of
  // rows that it counts last: it does so without shared memory, and the other warps go on.
  MINISGL_DEVICE bool EndWork(const DecodeWalk& walk, const RowStates<D>& rows,
                              const DecodeWalk& next, Query<1>* query) const {
    const int32_t num_queries = NumQueries(walk);
    // Rows of a group also have splits of their own, so more than one.
    const bool whole = SplitsOf(walk, walk.item.row).count == 1;
    const bool loads_query =
        kLoadsAhead && next.work < works_.num_works() && NumQueries(next) <= kTileRows;
    StoreState(rows, 0);
    if (num_queries > kTileRows / 2) StoreState(rows, 1);
#pragma unroll(1)
    for (int32_t first = 0; first < num_queries; first += kFewRows) {
      if (first < kTileRows / 2) {
        StoreSums<0>(rows, first);
      } else {
        StoreSums<1>(rows, first);
      }
      // No register holds the sums any more.
      if (loads_query && first + kFewRows >= num_queries) LoadQuery<1>(next, query);
      __syncthreads();  // every warp's sums of these rows are there
      const int32_t rest = num_queries - first;
      StoreRows(walk, first, rest < kFewRows ? rest : kFewRows, whole);
      __syncthreads();  // they may be written again, and the parts are stored
    }
    if (whole || warp_ != Shape::kWarps - 1) return loads_query;
    const uint32_t is_last = CountPart(walk);
    __syncwarp();  // every lane sees the parts of rows that are complete
    for (int32_t q = 0; q < walk.item.num_queries; ++q) {
      if (__shfl_sync(kAllLanes, is_last, q) == 0) continue;
      const int32_t row = RowOf(walk, q);
      MergeSplitsByWarp<T, D>(args_, row, SplitsOf(walk, row), FirstHead(walk), NumHeads(walk));
    }
    return loads_query;
  }

  // Stores this warp's sums of M rows [first, first + kFewRows), which are of half H.
  template <int H>
  MINISGL_DEVICE void StoreSums(const RowStates<D>& rows, int32_t first) const {
    const int32_t row = lane_ / 4 + H * 8 - first;
    if (row < 0 || row >= kFewRows) return;
    const device::Shared<float> sums =
        sums_ + ((warp_ * kFewRows + row) * Shape::kSumRow + lane_ % 4 * 2);
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      device::StoreShared(sums + n * 8,
                          device::Vec<float, 2>{rows.out[n][2 * H], rows.out[n][2 * H + 1]});
    }
  }

  // Adds the warps' sums of M rows [first, first + num_rows), four neighbouring elements in each
  // thread, and stores the rows, or their parts.
  MINISGL_DEVICE void StoreRows(const DecodeWalk& walk, int32_t first, int32_t num_rows,
                                bool whole) const {
    constexpr int kChunks = D / 4;
    for (int32_t chunk = static_cast<int32_t>(threadIdx.x); chunk < num_rows * kChunks;
         chunk += Shape::kThreads) {
      const int32_t m = first + chunk / kChunks, column = chunk % kChunks * 4;
      float largest[Shape::kWarps];
      SoftmaxState merged;
#pragma unroll
      for (int w = 0; w < Shape::kWarps; ++w) {
        const SoftmaxState own = LoadState(w, m);
        largest[w] = own.largest;
        merged = w == 0 ? own : Merge(merged, own);
      }
      device::Vec<float, 4> sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
      for (int w = 0; w < Shape::kWarps; ++w) {
        const float factor = Rescale(largest[w], merged.largest);
        const auto part =
            device::LoadShared<4>(sums_ + ((w * kFewRows + m - first) * Shape::kSumRow + column));
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = fmaf(part[i], factor, sum[i]);
      }
      const QueryHead query = HeadOf(walk, m);
      if (whole) {
        const SoftmaxState all = AddSink(args_, merged, query.head);
        const float factor = Rescale(merged.largest, all.largest) * Normaliser(all);
        T* const out = OutputOf<T, D>(args_, query.row, query.head) + column;
        StorePair(out, sum[0] * factor, sum[1] * factor);
        StorePair(out + 2, sum[2] * factor, sum[3] * factor);
      } else {
        const int64_t part = PartOf(args_, query.row, walk.item.split, query.head);
        if (column == 0) {
          device::StoreVec(args_.plan.states + part * 2,
                           device::Vec<float, 2>{merged.largest, merged.sum});
        }
        device::StoreVec(args_.plan.sums + part * D + column, sum);
      }
    }
  }

  // M row m is row half h of `rows`.
  MINISGL_DEVICE void StorePart(const DecodeWalk& walk, const RowStates<D>& rows, int32_t m, int h,
                                SoftmaxState state) const {
    const QueryHead query = HeadOf(walk, m);
    const int64_t part = PartOf(args_, query.row, walk.item.split, query.head);
    device::Vec<float, 2> pair;
    if (lane_ % 4 == 0) {
      pair[0] = state.largest;
      pair[1] = state.sum;
      device::StoreVec(args_.plan.states + part * 2, pair);
    }
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      pair[0] = rows.out[n][2 * h];
      pair[1] = rows.out[n][2 * h + 1];
      device::StoreVec(args_.plan.sums + part * D + n * 8 + lane_ % 4 * 2, pair);
    }
  }

  const AttentionArguments<T>& args_;
  const int stages_, lane_, warp_;
  DecodeWorks<T, Shape::kTileKeys> works_;
  const device::Shared<T> ring_;  // this warp's
  const device::Shared<T> query_;
  const device::Shared<float> sums_, states_;
  const device::Shared<uint32_t> last_;
  bool has_waited_;    // for earlier kernels
  DecodeWalk ahead_;   // the tile that is copied next
  int32_t table_row_;  // its row of the page table
  KeyPlace place_;     // this lane's key of that tile
};

template <typename T, int D>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(DecodeShape<D>::kThreads, DecodeShape<D>::kBlocks)
    DecodeKernel(AttentionArguments<T> args, int stages) {
  device::GridRelease();
  if (!args.early) device::GridWait();
  DecodeBlock<T, D> block(args, stages, DecodeMemory<T, D>(stages));
  block.Run();
}

// Three stages if all kBlocks blocks then fit into a multiprocessor (which has 1 KB more than one
// block may use, and reserves 1 KB for each block), otherwise two.
template <int D>
int DecodeStages(size_t shared_bytes_max) {
  const size_t needed = DecodeShape<D>::kBlocks * (DecodeShape<D>::SharedBytes(3) + 1024);
  return needed <= shared_bytes_max + 1024 ? 3 : 2;
}

template <typename T>
CudaError LaunchDecode(const LaunchContext& context, const AttentionArguments<T>& arguments,
                       int32_t head_dim, int32_t num_decode_rows, int32_t max_splits) {
  return DispatchHeadDim(head_dim, [&]<int D>() {
    const int64_t works_max = int64_t{num_decode_rows} * max_splits * arguments.num_kv_heads *
                              DivideUp(arguments.group, kTileRows);
    const int64_t blocks = int64_t{context.num_multiprocessors} * DecodeShape<D>::kBlocks;
    const int stages = DecodeStages<D>(context.shared_bytes_max);
    return Launch(context,
                  {.grid = {static_cast<unsigned>(std::min(works_max, blocks))},
                   .block = {DecodeShape<D>::kThreads},
                   .shared_bytes = DecodeShape<D>::SharedBytes(stages),
                   .programmatic = true},
                  DecodeKernel<T, D>, arguments, stages);
  });
}

}  // namespace minisgl::cuda
