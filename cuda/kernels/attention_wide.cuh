// Attention of wide heads: latent attention, whose one key of up to 576 elements serves all query
// heads and has its value in its last 512 or fewer (KvLayer::values_in_keys), and any other heads
// that the kernels of fixed sizes do not serve, of up to 512 elements. Rows of one token and rows
// that extend alike.
//
// A token's result depends on its position and keys only: splits of kExtendSplitKeys keys, each
// computed in tiles of 32 keys in order, and folded in a fixed tree (attention_fold.cuh). Within a
// tile a score is the sum of two chains of products, over the two halves of the key's elements.
//
// Work. The M rows of a row and KV head (M row m is query head m % G of token m / G) in tiles of
//   16 F, F 1, 2 or 4: a key is copied once for all M rows of a tile. The plan cuts a tile's keys
//   as it does for the extend kernel. No bit depends on F or on the cut.
// Grid. items * HKV, as the extend kernel of small tiles has it: a block takes items in turn.
// Block. 4 warps for F = 1, otherwise 8. In the product with keys, a warp has half of the key's
//   elements, 16 of a tile's 32 keys, and all M rows (8 warps: half of them); the halves meet in
//   shared memory as f32. Softmax then has 8 lanes for each M row. In the product with values, a
//   warp has all M rows and 64 or 128 of the columns, so that the sums of 64 M rows of 512 are 128
//   registers of each thread, and a value is read from shared memory by one warp only.
// Shared memory. The queries, and a ring of 2 stages (1 if they do not fit) of 32 keys, and values
//   that are not part of them: for latent heads 98, 122 and 172 KB for F = 1, 2 and 4, of which two
//   blocks, one and one fit into a multiprocessor's 227 KB.
// Traffic. 2 * 576 bytes of each key for every tile of M rows, from memory for the first tile of a
//   step that reads them. 37 KB (F = 1: 74 KB) are in flight on a multiprocessor; 26 KB are needed
//   at 4.3 TB/s.
// Operations. 2 * (576 + 512) of each M row and key. At 4.3 TB/s tiles of F = 1 need 130 T/s, a
//   quarter of what mma.sync delivers, and those of F = 4 all of it. For the scores of a tile of
//   F = 1 the block reads 4 * 18 KB from shared memory, half of which are queries.
#pragma once

#include <algorithm>
#include <type_traits>

#include "device/device.h"
#include "kernels/attention_arguments.h"
#include "kernels/attention_codes.cuh"
#include "kernels/attention_extend_tile.cuh"
#include "kernels/attention_state.h"
#include "kernels/attention_tile.cuh"
#include "kernels/launch.h"

namespace minisgl::cuda {

inline constexpr int kWideKeys = 32;  // keys of a tile

// CODES: 0, or the largest width of heads that are kept as codes of 8 bits (attention_codes.cuh).
template <int F, bool IN_KEYS, int CODES = 0>
struct WideShape {
  static constexpr int kWarps = F == 1 ? 4 : 8;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = F * kTileRows;
  static constexpr int kBlocks = CODES == 128 && F == 1 ? 2 : WideBlocks(F, IN_KEYS);
  // In the product with keys: warps that share a half of the keys' elements and 16 keys, and the
  // fragments of 16 M rows of each.
  static constexpr int kRowWarps = kWarps / 4;
  static constexpr int kRowFragments = F / kRowWarps;
  static constexpr int kValueDim = CODES > 0 ? CODES : kWideDimMax;
  static constexpr int kKeyDim = IN_KEYS ? kLatentKeyDimMax : kValueDim;
  static constexpr int kColumns = kValueDim / kWarps;  // of values, of a warp
  static constexpr int kKeyRow = kPaddedRow<kKeyDim>, kValueRow = kPaddedRow<kValueDim>;
  static constexpr int kStage = kWideKeys * (kKeyRow + (IN_KEYS ? 0 : kValueRow));  // elements
  static constexpr int kScoreRow = kWideKeys + 8;          // floats; rows 8 banks apart
  static constexpr int kWeightRow = kWideKeys + 8;         // elements; rows 20 banks apart
  static constexpr int kSoftmaxRows = kRows / kWarps / 4;  // M rows of a lane
  static constexpr int kImage = F * kWideImageFloats;      // floats of a tile's image
  static_assert(kExtendSplitKeys % kWideKeys == 0);
  static_assert(kRowFragments * kRowWarps == F && kSoftmaxRows * kWarps * 4 == kRows);

  static constexpr size_t SharedBytes(int stages) {
    return (static_cast<size_t>(kRows) * (kKeyRow + kWeightRow) +
            static_cast<size_t>(stages) * kStage) *
               2 +
           (2 * kRows * kScoreRow + 2 * kRows) * sizeof(float) +
           ExtendTile<device::bf16>::kWords * sizeof(uint32_t);
  }
};

// See the head of this file. `stages` is 1 or 2. KEYS: see attention_pictures.cuh and
// attention_distances.cuh.
template <typename T, int F, bool IN_KEYS, TileKeys KEYS = TileKeys::kCausal, int CODES = 0>
class WideBlock : public ExtendTile<T, KEYS> {
 public:
  using Shape = WideShape<F, IN_KEYS, CODES>;
  using Tile = ExtendTile<T, KEYS>;
  using Arguments = std::conditional_t<(CODES > 0), CodedArguments<T>, WideArguments<T>>;

  MINISGL_DEVICE WideBlock(const Arguments& args, int stages, TileKeyEnds<KEYS> ends = {})
      : Tile(args.rows, Shape::kRows, ends),
        wide_(args),
        stages_(stages),
        lane_(static_cast<int>(threadIdx.x) % 32),
        warp_(static_cast<int>(threadIdx.x) / 32) {
    device::SharedArena arena;
    words_ = arena.Take<uint32_t>(Tile::kWords);
    factors_ = arena.Take<float>(2 * Shape::kRows);
    scores_ = arena.Take<float>(2 * Shape::kRows * Shape::kScoreRow);
    weights_ = arena.Take<T>(Shape::kRows * Shape::kWeightRow);
    query_ = arena.Take<T>(Shape::kRows * Shape::kKeyRow);
    ring_ = arena.Take<T>(stages * Shape::kStage);
  }

  // True if a token of work `work` sees a key of it.
  MINISGL_DEVICE bool FindWork(int32_t work) { return this->FindItem(work); }

  MINISGL_DEVICE void Run() {
    CopyQuery();
    Sums sums;
    Clear(&sums);
    int32_t tile = low_ / kWideKeys * kWideKeys;
    FindKeys(tile);
    if constexpr (kLoadsAhead) LoadCodedTile();
    if (stages_ == 2) CopyTile(tile, 0);
    int stage = 0;
    while (tile < high_) {
      do {
        if (stages_ == 1) {
          __syncthreads();  // no warp reads the last tile any more
          CopyTile(tile, 0);
        }
        device::CopyAsyncWait<0>();
        __syncthreads();  // the tile's copies are there; no warp reads the other stage any more
        if constexpr (kLoadsAhead) {
          if (tile + kWideKeys < high_) LoadCodedTile();
        } else if (stages_ == 2 && tile + kWideKeys < high_) {
          CopyTile(tile + kWideKeys, stage ^ 1);
        }
        MultiplyWithKeys(stage);
        __syncthreads();  // both halves of every score are there
        WeighKeys(tile);
        __syncthreads();  // the weights are there, and the factors
        AddValues(stage, &sums);
        if constexpr (kLoadsAhead) {
          if (stages_ == 2 && tile + kWideKeys < high_) CopyTile(tile + kWideKeys, stage ^ 1);
        }
        if (stages_ == 2) stage ^= 1;
        tile += kWideKeys;
      } while (tile < high_ && tile % kExtendSplitKeys != 0);
      if (EndSplit((tile - kWideKeys) / kExtendSplitKeys, &sums)) StoreRows(sums);
    }
    this->EndFolds(Places());
  }

 private:
  using Tile::args_;
  using Tile::HeadOf;
  using Tile::High;
  using Tile::high_;
  using Tile::kv_head_;
  using Tile::Low;
  using Tile::low_;
  using Tile::num_rows_;
  using Tile::pages_;
  using Tile::Position;
  using Tile::TokenOf;
  using Tile::words_;

  static constexpr int kWarpKeys = kWideKeys / Shape::kWarps;  // that a warp copies
  // Codes are in registers while the tile before them is computed, if there are enough.
  static constexpr bool kLoadsAhead = CODES > 0 && CODES <= 256;
  static constexpr int kGroups = Shape::kColumns / 8;  // of 8 columns, of a warp
  static constexpr int kCopiesAtOnce = IN_KEYS ? 3 : 4;

  // The warp's columns of the weighted sums of values, of all M rows.
  struct Sums {
    float out[F][kGroups][4];
  };

  MINISGL_DEVICE void Clear(Sums* sums) {
#pragma unroll
    for (int p = 0; p < Shape::kSoftmaxRows; ++p) states_[p] = SoftmaxState();
#pragma unroll
    for (int f = 0; f < F; ++f) {
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums->out[f][n][i] = 0;
      }
    }
  }

  // The lane's p-th M row in softmax.
  MINISGL_DEVICE int SoftmaxRow(int p) const { return (p * Shape::kWarps + warp_) * 4 + lane_ / 8; }

  // The first column of a key that is read as a value: a multiple of 8, so that rows of values are
  // aligned. Those before the value are computed and not stored.
  MINISGL_DEVICE int ValueColumn() const {
    return IN_KEYS ? static_cast<int>(args_.v_offset) / 8 * 8 : 0;
  }

  // Copies `width` elements of each of ROWS rows, and zeros up to WIDTH. Lane i passes the offset
  // of row i; a negative one gives zeros.
  template <int ROWS, int WIDTH>
  MINISGL_DEVICE void CopyWideRows(device::Shared<T> dst, const T* base, int64_t offset,
                                   int width) const {
    constexpr int kChunks = WIDTH / 8;  // of 16 bytes
    static_assert(ROWS <= 32 && ROWS * kChunks % 32 == 0);
#pragma unroll(kCopiesAtOnce)
    for (int i = 0; i < ROWS * kChunks / 32; ++i) {
      const int chunk = i * 32 + lane_, row = chunk / kChunks, column = chunk % kChunks * 8;
      const int64_t begin = __shfl_sync(kAllLanes, offset, row);
      const bool valid = begin >= 0 && column < width;
      device::CopyAsync16(dst + (row * kPaddedRow<WIDTH> + column),
                          base + (valid ? begin + column : 0), valid);
    }
  }

  // Each warp copies some of the M rows; rows past the tile's last become zeros.
  MINISGL_DEVICE void CopyQuery() const {
    constexpr int kWarpRows = Shape::kRows / Shape::kWarps;
    const int32_t first = warp_ * kWarpRows, tile_row = first + lane_ % kWarpRows;
    int64_t offset = -1;
    if (tile_row < num_rows_) {
      offset = TokenOf(tile_row) * wide_.token_width + int64_t{HeadOf(tile_row)} * wide_.key_dim;
    }
    CopyWideRows<kWarpRows, Shape::kKeyDim>(query_ + first * Shape::kKeyRow, args_.qkv, offset,
                                            wide_.key_dim);
    device::CopyAsyncCommit();
  }

  MINISGL_DEVICE void FindKeys(int32_t tile) {
    const int32_t key = tile + warp_ * kWarpKeys + lane_ % kWarpKeys;
    place_ = FindKey(args_, pages_, key, key >= low_ && key < high_);
  }

  // Copies this warp's keys of `tile`, whose pages FindKeys has fetched, then fetches the pages of
  // the next tile.
  MINISGL_DEVICE void CopyTile(int32_t tile, int stage) {
    const device::Shared<T> keys = ring_ + stage * Shape::kStage;
    const device::Shared<T> own = keys + warp_ * kWarpKeys * Shape::kKeyRow;
    if constexpr (CODES > 0) {
      const device::Shared<T> values = own + kWideKeys * Shape::kKeyRow;
      if constexpr (kLoadsAhead) return coded_.Store(own, values, lane_);
      ExpandCodes<kWarpKeys, CODES>(wide_, own, values, Coded(), lane_);
      return FindKeys(tile + kWideKeys);
    }
    CopyWideRows<kWarpKeys, Shape::kKeyDim>(own, args_.keys, KeyOffset(args_, place_, kv_head_),
                                            wide_.key_dim);
    if constexpr (!IN_KEYS) {
      const device::Shared<T> values = keys + kWideKeys * Shape::kKeyRow;
      CopyWideRows<kWarpKeys, kWideDimMax>(values + warp_ * kWarpKeys * Shape::kValueRow,
                                           args_.keys, ValueOffset(), wide_.value_dim);
    }
    device::CopyAsyncCommit();
    FindKeys(tile + kWideKeys);
  }

  // Loads the codes of the tile whose pages FindKeys has fetched, which CopyTile stores.
  MINISGL_DEVICE void LoadCodedTile() {
    coded_.Load(wide_, Coded(), lane_);
    FindKeys(place_.key - lane_ % kWarpKeys - warp_ * kWarpKeys + kWideKeys);
  }
  MINISGL_DEVICE CodedPlace Coded() const {
    return {KeyOffset(args_, place_, kv_head_), ValueOffset(),
            ScaleOffset(wide_, place_, kv_head_)};
  }

  MINISGL_DEVICE int64_t ValueOffset() const {
    if (place_.page < 0) return -1;
    const int32_t slot = place_.key & ((1 << args_.page_shift) - 1);
    return place_.page * args_.page_stride + args_.v_offset + slot * wide_.v_slot_stride +
           kv_head_ * wide_.v_head_stride;
  }

  // The warp's part of the scores, to shared memory.
  MINISGL_DEVICE void MultiplyWithKeys(int stage) const {
    const int half = warp_ % 2, key = warp_ / 2 % 2 * 16;
    const int first_row = warp_ / 4 * Shape::kRowFragments * kTileRows;
    const int steps = (wide_.key_dim + 15) / 16, middle = (steps + 1) / 2;
    const int begin = half == 0 ? 0 : middle, end = half == 0 ? middle : steps;
    float scores[Shape::kRowFragments][2][4] = {};
    // As in MultiplyKeys (attention_tile.cuh).
    const device::Shared<T> keys =
        ring_ + (stage * Shape::kStage + (key + lane_ % 8 + lane_ / 16 * 8) * Shape::kKeyRow +
                 lane_ / 8 % 2 * 8);
    const device::Shared<T> queries =
        query_ + ((first_row + lane_ % 16) * Shape::kKeyRow + lane_ / 16 * 8);
#pragma unroll(3)
    for (int k = begin; k < end; ++k) {
      uint32_t regs[4];
      device::LoadMatrix4<T>(regs, keys + k * 16);
      const uint32_t low[2] = {regs[0], regs[1]}, high[2] = {regs[2], regs[3]};
#pragma unroll
      for (int m = 0; m < Shape::kRowFragments; ++m) {
        uint32_t a[4];
        device::LoadMatrix4<T>(a, queries + (m * kTileRows * Shape::kKeyRow + k * 16));
        device::Mma16816<T>(scores[m][0], a, low);
        device::Mma16816<T>(scores[m][1], a, high);
      }
    }
    const int row = half * Shape::kRows + first_row + lane_ / 4, column = key + lane_ % 4 * 2;
#pragma unroll
    for (int m = 0; m < Shape::kRowFragments; ++m) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          device::StoreShared(
              scores_ + ((row + m * kTileRows + h * 8) * Shape::kScoreRow + column + n * 8),
              device::Vec<float, 2>{scores[m][n][2 * h], scores[m][n][2 * h + 1]});
        }
      }
    }
  }

  // Adds the tile's scores to the states of the lane's M rows, and writes their weights and the
  // factors of their sums. 8 lanes have 4 keys each of a row.
  MINISGL_DEVICE void WeighKeys(int32_t tile) {
    // True if every M row sees the whole tile.
    const int32_t first_high = High(0), last_high = Position(num_rows_ - 1) + 1;
    const bool whole = tile >= Low(last_high) && tile + kWideKeys <= first_high;
#pragma unroll
    for (int p = 0; p < Shape::kSoftmaxRows; ++p) {
      const int row = SoftmaxRow(p), column = lane_ % 8 * 4;
      const auto one = device::LoadShared<4>(scores_ + (row * Shape::kScoreRow + column));
      const auto other =
          device::LoadShared<4>(scores_ + ((Shape::kRows + row) * Shape::kScoreRow + column));
      float scores[1][4];
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[0][i] = one[i] + other[i];
      CapScores(scores, args_.score);
      if constexpr (KEYS == TileKeys::kDistances) AddDistances(tile + column, row, scores[0]);
      if (!whole) MaskRow(tile + column, row, scores[0]);
      AddScores(row, column, scores[0], &states_[p]);
    }
  }

  MINISGL_DEVICE void AddDistances(int32_t first, int row, float (&scores)[4]) const {
    const float* const distances = this->Distances(row) + first;
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = fmaf(distances[i], this->PerScale(), scores[i]);
  }

  // M rows past the tile's last are masked by their index; they are not stored.
  MINISGL_DEVICE void MaskRow(int32_t first, int row, float (&scores)[4]) const {
    const int32_t high = High(row), low = Low(Position(row) + 1);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + i < low || first + i >= high) scores[i] = kMinusInfinity;
    }
  }

  // Until the split ends, the state's sum covers the lane's keys alone.
  MINISGL_DEVICE void AddScores(int row, int column, const float (&scores)[4],
                                SoftmaxState* state) const {
    const float weight = args_.score.weight;
    float largest = fmaxf(fmaxf(scores[0], scores[1]), fmaxf(scores[2], scores[3]));
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, lanes));
    }
    largest = fmaxf(state->largest, largest * weight);
    const float reference = Reference(largest);
    const float shrink = device::Exp2(state->largest - reference);
    float exps[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) exps[i] = device::Exp2(fmaf(scores[i], weight, -reference));
    state->largest = largest;
    state->sum = fmaf(state->sum, shrink, (exps[0] + exps[1]) + (exps[2] + exps[3]));
    device::StoreShared(weights_.template As<uint32_t>() + (row * Shape::kWeightRow + column) / 2,
                        device::Vec<uint32_t, 2>{device::Pack2<T>(exps[0], exps[1]),
                                                 device::Pack2<T>(exps[2], exps[3])});
    if (lane_ % 8 == 0) factors_[row] = shrink;
  }

  // Skips the scaling if no M row has a new maximum, as in most tiles of a long row: all factors
  // are 1.
  MINISGL_DEVICE void ScaleSums(Sums* sums) const {
    float factors[F][2];
    bool changes = false;
#pragma unroll
    for (int f = 0; f < F; ++f) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        factors[f][h] = factors_[f * kTileRows + h * 8 + lane_ / 4];
        changes = changes || factors[f][h] != 1.0f;
      }
    }
    if (!__any_sync(kAllLanes, changes)) return;
#pragma unroll
    for (int f = 0; f < F; ++f) {
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums->out[f][n][i] *= factors[f][i / 2];
      }
    }
  }

  // sums += weights * values, of the warp's columns, 16 keys at a time, in order.
  MINISGL_DEVICE void AddValues(int stage, Sums* sums) const {
    ScaleSums(sums);
    constexpr int kRow = IN_KEYS ? Shape::kKeyRow : Shape::kValueRow;
    const int begin = stage * Shape::kStage + (IN_KEYS ? 0 : kWideKeys * Shape::kKeyRow);
    const int column = ValueColumn() + warp_ * Shape::kColumns;
    // As in MultiplyValues (attention_tile.cuh).
    const device::Shared<T> values = ring_ + (begin + lane_ % 16 * kRow + column + lane_ / 16 * 8);
    const device::Shared<T> weights = weights_ + (lane_ % 16 * Shape::kWeightRow + lane_ / 16 * 8);
#pragma unroll
    for (int k = 0; k < kWideKeys / 16; ++k) {
      uint32_t a[F][4];
#pragma unroll
      for (int f = 0; f < F; ++f) {
        device::LoadMatrix4<T>(a[f], weights + (f * kTileRows * Shape::kWeightRow + k * 16));
      }
#pragma unroll
      for (int pair = 0; pair < kGroups / 2; ++pair) {
        uint32_t regs[4];
        device::LoadMatrix4Trans<T>(regs, values + (k * 16 * kRow + pair * 16));
        const uint32_t low[2] = {regs[0], regs[1]}, high[2] = {regs[2], regs[3]};
#pragma unroll
        for (int f = 0; f < F; ++f) {
          device::Mma16816<T>(sums->out[f][2 * pair], a[f], low);
          device::Mma16816<T>(sums->out[f][2 * pair + 1], a[f], high);
        }
      }
    }
  }

  // Folds the block's part of the tile: see ExtendTile::FoldSplits.
  MINISGL_DEVICE bool EndSplit(int32_t split, Sums* sums) {
#pragma unroll
    for (int p = 0; p < Shape::kSoftmaxRows; ++p) {
#pragma unroll
      for (int lanes = 1; lanes < 8; lanes *= 2) {
        states_[p].sum += __shfl_xor_sync(kAllLanes, states_[p].sum, lanes);
      }
    }
    return this->FoldSplits(
        split, Places(), Shape::kImage, [&](float* image) { StoreWideImage(image, *sums); },
        [&] { Clear(sums); }, [&](const float* image) { FoldWideImage(image, sums); });
  }

  MINISGL_DEVICE const PlaceQueue& Places() const {
    return F == 1 ? args_.plan.small_places : args_.plan.large_places;
  }

  // Image. For each warp and 16 M rows, kGroups groups of a float4 for each lane; behind the groups
  // of all warps, {largest, sum} of each M row.
  MINISGL_DEVICE int32_t InImage(int f) const {
    return (warp_ * F + f) * kGroups * 128 + device::Opaque(lane_) * 4;
  }
  static constexpr int kStatesInImage = Shape::kRows * kWideDimMax;

  MINISGL_DEVICE void StoreWideImage(float* image, const Sums& sums) const {
#pragma unroll
    for (int f = 0; f < F; ++f) {
      float* const to = image + InImage(f);
#pragma unroll
      for (int n = 0; n < kGroups; ++n) {
        const float(&out)[4] = sums.out[f][n];
        device::StoreVec(to + n * 128, device::Vec<float, 4>{out[0], out[1], out[2], out[3]});
      }
    }
    if (lane_ % 8 != 0) return;
#pragma unroll
    for (int p = 0; p < Shape::kSoftmaxRows; ++p) {
      device::StoreVec(image + kStatesInImage + SoftmaxRow(p) * 2,
                       device::Vec<float, 2>{states_[p].largest, states_[p].sum});
    }
  }

  MINISGL_DEVICE void FoldWideImage(const float* image, Sums* sums) {
    __syncthreads();  // no warp reads factors any more
#pragma unroll
    for (int p = 0; p < Shape::kSoftmaxRows; ++p) {
      const int row = SoftmaxRow(p);
      const auto other = device::LoadVec<2>(image + kStatesInImage + row * 2);
      const FoldFactor factor = FoldState({other[0], other[1]}, &states_[p]);
      if (lane_ % 8 != 0) continue;
      factors_[row] = factor.smaller;
      factors_[Shape::kRows + row] = factor.keeps_scale ? 1.0f : 0.0f;
    }
    __syncthreads();  // every row's factors of the fold are there
#pragma unroll
    for (int f = 0; f < F; ++f) {
      FoldFactor factors[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = f * kTileRows + h * 8 + lane_ / 4;
        factors[h].smaller = factors_[row];
        const float keeps_scale = factors_[Shape::kRows + row];
        factors[h].keeps_scale = keeps_scale != 0;
      }
      const float* const from = image + InImage(f);
      constexpr int kAtOnce = kGroups < 4 ? kGroups : 4;
#pragma unroll
      for (int begin = 0; begin < kGroups; begin += kAtOnce) {
        // Always true: the compiler moves no load across a branch. More at once would cost spills.
        if (device::Opaque(num_rows_) == 0) continue;
#pragma unroll
        for (int n = begin; n < begin + kAtOnce; ++n) {
          const auto group = device::LoadVec<4>(from + n * 128);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sums->out[f][n][i] = FoldValue(sums->out[f][n][i], group[i], factors[i / 2]);
          }
        }
      }
    }
  }

  MINISGL_DEVICE void StoreRows(const Sums& sums) const {
    __syncthreads();  // no warp reads factors any more
#pragma unroll
    for (int p = 0; p < Shape::kSoftmaxRows; ++p) {
      const int row = SoftmaxRow(p);
      SoftmaxState all = states_[p];
      if (args_.sinks != nullptr && row < num_rows_) {
        all = Merge(all, SinkState(args_.sinks[HeadOf(row)]));
      }
      if (lane_ % 8 == 0) {
        factors_[row] = Rescale(states_[p].largest, all.largest) * Normaliser(all);
      }
    }
    __syncthreads();  // every row's factor is there
    const int column = ValueColumn() + warp_ * Shape::kColumns -
                       (IN_KEYS ? static_cast<int>(args_.v_offset) : 0) + lane_ % 4 * 2;
#pragma unroll(1)
    for (int h = 0; h < 2; ++h) {
#pragma unroll
      for (int f = 0; f < F; ++f) {
        const int row = f * kTileRows + h * 8 + lane_ / 4;
        if (row >= num_rows_) continue;
        const float factor = factors_[row];
        T* const out = args_.out + (TokenOf(row) * args_.num_heads + HeadOf(row)) * wide_.value_dim;
#pragma unroll
        for (int n = 0; n < kGroups; ++n) {
          const int at = column + n * 8;
          if (at < 0 || at >= wide_.value_dim) continue;
          const float(&pair)[4] = sums.out[f][n];
          StorePair(out + at, (h == 0 ? pair[0] : pair[2]) * factor,
                    (h == 0 ? pair[1] : pair[3]) * factor);
        }
      }
    }
  }

  const Arguments& wide_;
  const int stages_, lane_, warp_;
  device::Shared<float> factors_;  // [2][M rows] of the rows' sums
  device::Shared<float> scores_;   // [halves of the elements][M rows][kScoreRow]
  device::Shared<T> weights_;      // [M rows][kWeightRow]
  device::Shared<T> query_;        // [M rows][kKeyRow]
  device::Shared<T> ring_;         // [stages][keys, then values][32][kKeyRow or kValueRow]
  SoftmaxState states_[Shape::kSoftmaxRows];  // of the lane's M rows
  KeyPlace place_;                            // this lane's key of the tile that is copied next
  // The codes of that tile, if they are loaded ahead.
  [[no_unique_address]] std::conditional_t<kLoadsAhead, CodedTile<kWarpKeys, CODES>, NoCodes>
      coded_;
};

template <typename T, int F, bool IN_KEYS>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS((WideShape<F, IN_KEYS>::kThreads),
                                          (WideShape<F, IN_KEYS>::kBlocks))
    WideKernel(WideArguments<T> args, int stages) {
  device::GridRelease();
  device::GridWait();
  WideBlock<T, F, IN_KEYS> block(args, stages);
  const int32_t num_works = block.NumWorks();
  for (int32_t work = static_cast<int32_t>(blockIdx.x); work < num_works;
       work += static_cast<int32_t>(gridDim.x)) {
    if (block.FindWork(work)) block.Run();
    __syncthreads();  // shared memory may be written again
  }
}

// Calls f.operator()<F, IN_KEYS>().
template <typename Function>
auto DispatchWide(int fragments, bool in_keys, const Function& f) {
  if (in_keys) {
    if (fragments == 1) return f.template operator()<1, true>();
    return fragments == 2 ? f.template operator()<2, true>() : f.template operator()<4, true>();
  }
  if (fragments == 1) return f.template operator()<1, false>();
  return fragments == 2 ? f.template operator()<2, false>() : f.template operator()<4, false>();
}

template <typename T>
CudaError LaunchWide(const LaunchContext& context, WideArguments<T> arguments, bool in_keys,
                     ExtendChoice choice, const ExtendWork& work) {
  const DeviceAttentionPlan& plan = arguments.rows.plan;
  arguments.rows.list = work.decode_rows ? plan.decode_list : plan.extend_list;
  return DispatchWide(choice.fragments, in_keys, [&]<int F, bool IN_KEYS>() {
    using Shape = WideShape<F, IN_KEYS>;
    const int64_t tiles = work.max_tiles * arguments.rows.num_kv_heads;
    const int64_t at_once = int64_t{context.num_multiprocessors} * Shape::kBlocks;
    const int64_t blocks = std::min(tiles + work.max_cut_items, std::max(tiles, at_once));
    return Launch(context,
                  {.grid = {static_cast<unsigned>(blocks)},
                   .block = {Shape::kThreads},
                   .shared_bytes = Shape::SharedBytes(choice.stages),
                   .programmatic = true},
                  WideKernel<T, F, IN_KEYS>, arguments, choice.stages);
  });
}

}  // namespace minisgl::cuda
