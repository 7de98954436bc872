// Matrix times few vectors (gemv.cu) with weights that are codes: bound by reading the codes once.
//
// An element's sum has the order of the product that LaunchGemv computes with the expanded weights,
// and each weight is the expanded one, so the results have the same bits. The division of K among
// warps is that of gemv.cu or, for a matrix that takes the ring, of gemv_ring.cu: run by run of
// neighbouring groups of 32 inputs, run r to warp r % warps. A matrix that takes the ring is packed
// in lines of the groups that one warp takes (CodeOrder), so that a lane loads 16 bytes of codes at
// a time: the codes of four groups, or of two if they have 8 bits. Where runs are no whole lines a
// lane loads the codes of one group at a time.
//
// Loads in flight: four of 16 bytes in each lane, 32 KB on a multiprocessor, reissued as soon as
// their registers have been used, as in gemv.cu. Scales are loaded one slot ahead: those of several
// lines stand in one sector.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/coded_weights.cuh"
#include "kernels/dispatch.h"
#include "kernels/gemv_input.h"
#include "kernels/gemv_parts.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv_codes {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;

// Loads of a lane in flight, each of all its rows of a tile.
template <int ROWS8>
constexpr int kSlots = 4 / ROWS8;
template <typename T>
constexpr DType kDTypeOf = __is_same(T, device::bf16) ? DType::kBF16 : DType::kF16;

constexpr int kWarpsPerProcessor = 16;  // 128 registers for each thread
constexpr int kThreadsMax = kWarpsPerProcessor * kWarpSize;

struct GemvCodesKernelParams {
  CodedRows rows;
  GemvInput input;
  ProductEnd end;
  int num_tiles;
  int run;        // neighbouring groups that a warp takes
  int run_lines;  // whole lines of them; 0: they are none
  int num_slots;  // of a warp in a tile: lines, or groups
  bool aligned;   // rows of x are whole chunks of 16 bytes
};

// Groups of a slot: of a whole line, or one.
template <RowCodes KIND, bool LINES>
constexpr int kSlotGroups = LINES ? kLineGroups<KIND> : 1;

// Where a lane's slot is in a row of the weights.
struct SlotPlace {
  int line = 0;
  int first = 0;  // its first group's place in the line
  bool valid = false;
};

template <RowCodes KIND, bool LINES>
MINISGL_DEVICE SlotPlace PlaceOfSlot(const GemvCodesKernelParams& p, int slot) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  SlotPlace place;
  if constexpr (LINES) {
    place.line = (slot / p.run_lines * num_warps + warp) * p.run_lines + slot % p.run_lines;
  } else {
    const int group = (slot / p.run * num_warps + warp) * p.run + slot % p.run;
    place.line = group / kLineGroups<KIND>;
    place.first = group % kLineGroups<KIND>;
  }
  place.valid = slot < p.num_slots && place.line < p.rows.num_lines;
  return place;
}

// The first input of the lane's eight in a group of a slot.
template <RowCodes KIND>
MINISGL_DEVICE int InputOf(const GemvCodesKernelParams& p, const SlotPlace& place, int group) {
  return p.rows.order.Group(place.line, place.first + group, kLineGroups<KIND>) * kCodeGroup +
         static_cast<int>(threadIdx.x) % kLineLanes * kLaneCodes;
}

// A lane's rows of a tile.
template <int ROWS8>
struct TileRows {
  int row[ROWS8];
  bool valid;
};

template <int ROWS8>
MINISGL_DEVICE TileRows<ROWS8> RowsOfLane(const GemvCodesKernelParams& p, int tile) {
  TileRows<ROWS8> rows = {.row = {}, .valid = tile < p.num_tiles};
#pragma unroll
  for (int n = 0; n < ROWS8; ++n) {
    rows.row[n] =
        RowOfTile<8 * ROWS8>(p.end, tile, n * 8 + static_cast<int>(threadIdx.x) % kWarpSize / 4);
  }
  return rows;
}

// The codes of a slot.
template <RowCodes KIND, int ROWS8, bool LINES>
struct SlotCodes {
  LaneLine part[ROWS8];

  MINISGL_DEVICE void Load(const GemvCodesKernelParams& p, const TileRows<ROWS8>& rows,
                           const SlotPlace& place) {
    const int lane = static_cast<int>(threadIdx.x) % kLineLanes;
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      part[n] = LaneLine{};
      if (!rows.valid || !place.valid) continue;
      if constexpr (LINES) {
        part[n] = LoadLaneLine<KIND>(p.rows, rows.row[n], place.line, lane);
      } else {
        part[n] = LoadLaneGroup<KIND>(p.rows, rows.row[n], place.line, lane, place.first);
      }
    }
  }
};

template <RowCodes KIND, int ROWS8, bool LINES>
struct SlotFactors {
  GroupFactors factors[ROWS8][kSlotGroups<KIND, LINES>];

  MINISGL_DEVICE void Load(const GemvCodesKernelParams& p, const TileRows<ROWS8>& rows,
                           const SlotPlace& place) {
    if (!rows.valid || !place.valid) return;
#pragma unroll
    for (int group = 0; group < kSlotGroups<KIND, LINES>; ++group) {
      const int input = InputOf<KIND>(p, place, group);
      if (input >= p.rows.num_in) continue;
#pragma unroll
      for (int n = 0; n < ROWS8; ++n) {
        factors[n][group] = LoadGroupFactors(p.rows, rows.row[n], input / p.rows.group_inputs);
      }
    }
  }
};

// Elements [first, first + 8) of a token's x; zeros past the last.
MINISGL_DEVICE GemvWords LoadX(const GemvCodesKernelParams& p, int token, int first) {
  GemvWords words = {};
  if (token >= p.input.num_tokens || first >= p.input.num_in) return words;
  const uint16_t* const from = p.input.x + int64_t{token} * p.input.num_in + first;
  if (p.aligned) return device::LoadVec<4>(reinterpret_cast<const uint32_t*>(from));
#pragma unroll
  for (int i = 0; i < kLaneCodes; ++i) {
    const uint32_t element = first + i < p.input.num_in ? from[i] : 0;
    words[i / 2] |= element << (i % 2 * 16);
  }
  return words;
}

// Adds the products of a slot.
template <typename T, RowCodes KIND, CodeMath MATH, int TOKENS8, int ROWS8, bool LINES>
MINISGL_DEVICE void MultiplySlot(const GemvCodesKernelParams& p, const SlotPlace& place,
                                 const SlotCodes<KIND, ROWS8, LINES>& codes,
                                 const SlotFactors<KIND, ROWS8, LINES>& factors,
                                 Shared<float> table, GemvSums<ROWS8>& sums) {
  const int token = static_cast<int>(threadIdx.x) % kWarpSize / 4;
#pragma unroll
  for (int group = 0; group < kSlotGroups<KIND, LINES>; ++group) {
    const int input = InputOf<KIND>(p, place, group);
    GemvWords x[TOKENS8];
#pragma unroll
    for (int m = 0; m < TOKENS8; ++m) x[m] = LoadX(p, m * 8 + token, input);
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      GemvWords words = {};
      if (input < p.rows.num_in) {
        words =
            WordsOf<T, KIND, MATH>(p.rows, codes.part[n], group, factors.factors[n][group], table);
        if (!p.aligned) {  // codes past the last input are not those of weights
#pragma unroll
          for (int i = 0; i < kLaneCodes; ++i) {
            if (input + i >= p.rows.num_in) words[i / 2] &= i % 2 == 0 ? 0 : 0xFFFFu;
          }
        }
      }
      MultiplyGemvWords<T>(x, words, n, sums);
    }
  }
}

// Grid (min(tiles, blocks that run at once)), block 32 * warps; a block takes tiles b, b + grid,
// ... Shared memory: the table of numbers, and the sums of two tiles in turn, as in gemv.cu.
// Traffic: the codes and scales once, and 2 * T * K of x for each tile, mostly from the first-level
// cache. The first codes and scales are loaded before GridWait.
template <typename T, RowCodes KIND, CodeMath MATH, int TOKENS8, int ROWS8, bool LINES>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreadsMax, 1)
    GemvCodesKernel(MINISGL_GRID_CONSTANT GemvCodesKernelParams p) {
  constexpr int kTile = kGemvTileSums<TOKENS8, ROWS8>;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int blocks = static_cast<int>(gridDim.x);
  SharedArena arena;
  const Shared<float> table = TakeCodeTable(p.rows, arena);
  const Shared<float> partial = arena.Take<float>(2 * num_warps * kTile);

  SlotCodes<KIND, ROWS8, LINES> codes[kSlots<ROWS8>];
  SlotFactors<KIND, ROWS8, LINES> factors;
  TileRows<ROWS8> rows = RowsOfLane<ROWS8>(p, static_cast<int>(blockIdx.x));
#pragma unroll
  for (int slot = 0; slot < kSlots<ROWS8>; ++slot) {
    codes[slot].Load(p, rows, PlaceOfSlot<KIND, LINES>(p, slot));
  }
  factors.Load(p, rows, PlaceOfSlot<KIND, LINES>(p, 0));
  device::GridRelease();
  __syncthreads();  // the table is written
  device::GridWait();

  int parity = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    const TileRows<ROWS8> next_rows = RowsOfLane<ROWS8>(p, tile + blocks);
    const GemvPlace place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    GemvSums<ROWS8> sums = {};
#pragma unroll 1
    for (int first = 0; first < p.num_slots; first += kSlots<ROWS8>) {
      const bool ends = first + kSlots<ROWS8> >= p.num_slots;
      TileRows<ROWS8> ahead = rows;
      if (ends) ahead = next_rows;
#pragma unroll
      for (int i = 0; i < kSlots<ROWS8>; ++i) {
        const SlotPlace slot = PlaceOfSlot<KIND, LINES>(p, first + i);
        const SlotFactors<KIND, ROWS8, LINES> its = factors;
        const bool is_last = i + 1 == kSlots<ROWS8>;
        factors.Load(p, is_last ? ahead : rows,
                     PlaceOfSlot<KIND, LINES>(p, is_last && ends ? 0 : first + i + 1));
        if (slot.valid) {
          MultiplySlot<T, KIND, MATH, TOKENS8, ROWS8, LINES>(p, slot, codes[i], its, table, sums);
        }
        codes[i].Load(p, ahead, PlaceOfSlot<KIND, LINES>(p, ends ? i : first + kSlots<ROWS8> + i));
      }
    }
    rows = next_rows;
    const Shared<float> tile_sums = partial + parity * num_warps * kTile;
    StoreGemvSums<TOKENS8, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteGemvPlace<T, TOKENS8, ROWS8>(p.end, place, tile_sums);
    parity ^= 1;
  }
}

// How K is divided among the warps of a block: as LaunchGemv divides it for a whole matrix.
struct Division {
  int num_warps;
  int run;  // groups
};

Division DivisionOf(const LaunchContext& context, const Matrix& weight) {
  const int64_t num_out = weight.num_out, num_in = weight.num_in;
  if (GemvTakesRing(context, weight)) return {.num_warps = 8, .run = num_out >= 4096 ? 1 : 2};
  const bool aligned = num_in % kChunk == 0;
  const int num_warps = num_out >= 2048 ? 8 : kWarpsPerProcessor;
  const int64_t groups_max = !aligned ? 2 : num_out >= 4096 ? 4 : 8;
  const int64_t groups = CeilDiv<int64_t>(num_in, kCodeGroup);
  return {.num_warps = num_warps,
          .run = static_cast<int>(
              std::clamp<int64_t>(CeilDiv<int64_t>(groups, num_warps), 1, groups_max))};
}

// Tiles of 16 rows for at most 8 tokens, whole lines and codes of 4 or 8 bits: others have no
// registers for them, or are of small matrices.
template <typename T, RowCodes KIND, int TOKENS8, int ROWS8>
CudaError LaunchLines(const LaunchContext& context, const LaunchShape& shape,
                      const GemvCodesKernelParams& p) {
  using enum CodeMath;
  const auto of_math = [&]<CodeMath MATH>() {
    return Launch(context, shape, GemvCodesKernel<T, KIND, MATH, TOKENS8, ROWS8, true>, p);
  };
  if constexpr (ROWS8 == 1) {
    if (p.run_lines == 0) {
      return Launch(context, shape, GemvCodesKernel<T, KIND, kFloat, TOKENS8, ROWS8, false>, p);
    }
  }
  if constexpr (KIND == RowCodes::kTable4) {
    const CodeMath math = MathOf(p.rows, kDTypeOf<T>);
    if (math == kCounting) return of_math.template operator()<kCounting>();
    if (math == kE2M1) return of_math.template operator()<kE2M1>();
  }
  return of_math.template operator()<kFloat>();
}

}  // namespace
}  // namespace gemv_codes

CodeOrder GemvCodeOrder(const LaunchContext& context, const Matrix& weight, RowCodes kind) {
  const gemv_codes::Division division = gemv_codes::DivisionOf(context, weight);
  const int of_line = LineGroupsOf(kind);
  const bool has_lines = division.run % of_line == 0;
  // Runs that would end within a line, or lines that rows do not fill, are not worth it.
  const int64_t unit = int64_t{of_line} * kCodeGroup * division.num_warps;
  if (has_lines || of_line % division.run != 0 || weight.num_in % unit != 0) return {};
  return {.warps = division.num_warps, .run = division.run};
}

CudaError LaunchGemvCodes(const LaunchContext& context, const ProductParams& params,
                          const CodedRows& rows, int64_t first_row, int64_t num_rows) {
  using namespace gemv_codes;  // NOLINT: this file's own
  const LinearParams& linear = params.linear;
  const Matrix& weight = *linear.weight;
  MINISGL_CHECK(linear.num_tokens <= kGemvTokensMax && params.norm == nullptr,
                "a product of {} tokens that begins with {}", linear.num_tokens,
                params.norm == nullptr ? "none" : "a norm");
  MINISGL_CHECK(num_rows == weight.num_out || params.activation == nullptr,
                "an activation of {} of {} rows", num_rows, weight.num_out);
  if (linear.num_tokens == 0) return kCudaSuccess;
  GemvCodesKernelParams p = {.rows = rows,
                             .input = MakeGemvInput(params),
                             .end = MakeProductEnd(params),
                             .num_tiles = 0,
                             .run = 0,
                             .run_lines = 0,
                             .num_slots = 0,
                             .aligned = weight.num_in % kChunk == 0 && IsAligned16(linear.x.data)};
  if (num_rows != weight.num_out) {
    p.end.num_out = static_cast<int>(num_rows);
    if (p.end.bias != nullptr) p.end.bias += first_row;
    if (p.end.residual != nullptr) p.end.residual += first_row;
    const size_t width = p.end.out_is_f32 ? sizeof(float) : sizeof(uint16_t);
    if (p.end.out != nullptr) {
      p.end.out = static_cast<char*>(p.end.out) + static_cast<size_t>(first_row) * width;
    }
  }
  const Division division = DivisionOf(context, weight);
  const int of_line = LineGroupsOf(rows.kind);
  p.run = division.run;
  const bool is_packed_so =
      rows.order.warps == division.num_warps && rows.order.run == division.run;
  MINISGL_CHECK(rows.order.warps == 1 || is_packed_so, "lines of another product");
  if (is_packed_so) {
    p.run_lines = 1;
  } else if (division.run % of_line == 0) {
    p.run_lines = division.run / of_line;
  }
  const int64_t slots = p.run_lines > 0 ? p.run_lines : p.run;  // of a warp's turn
  const int64_t all = p.run_lines > 0 ? rows.num_lines : CeilDiv<int64_t>(rows.num_in, kCodeGroup);
  p.num_slots = static_cast<int>(CeilDiv(all, slots * division.num_warps) * slots);
  const int64_t tile_tokens = linear.num_tokens <= 8 ? 8 : 16;
  // Two rows of a lane share a load of x; small matrices need all blocks.
  const int64_t tile_rows =
      num_rows >= 4096 && tile_tokens == 8 && p.run_lines > 0 && rows.kind != RowCodes::kInt6 ? 16
                                                                                              : 8;
  p.num_tiles =
      static_cast<int>(p.end.num_pairs > 0 ? CeilDiv<int64_t>(p.end.num_pairs, tile_rows / 2)
                                           : CeilDiv(num_rows, tile_rows));
  const int blocks = context.num_multiprocessors * (kWarpsPerProcessor / division.num_warps);
  const size_t tile_bytes = static_cast<size_t>(tile_tokens * tile_rows) * sizeof(float);
  const LaunchShape shape = {
      .grid = {static_cast<unsigned>(std::min(p.num_tiles, blocks))},
      .block = {static_cast<unsigned>(division.num_warps * kWarpSize)},
      .shared_bytes =
          kCodeNumbers * sizeof(float) + 2 * static_cast<size_t>(division.num_warps) * tile_bytes,
      .programmatic = true};
  return DispatchHalf(linear.x.dtype, [&]<typename T>() {
    return DispatchCodes(rows, [&]<RowCodes KIND>() {
      if (tile_tokens == 16) return LaunchLines<T, KIND, 2, 1>(context, shape, p);
      if constexpr (KIND != RowCodes::kInt6) {
        if (tile_rows == 16) return LaunchLines<T, KIND, 1, 2>(context, shape, p);
      }
      return LaunchLines<T, KIND, 1, 1>(context, shape, p);
    });
  });
}

}  // namespace minisgl::cuda
