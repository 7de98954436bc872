// Matrix times few vectors (gemv.cu) with weights that are codes: bound by reading the codes once.
//
// An element's sum has the order of the product that LaunchGemv computes with the expanded weights,
// and each weight is the expanded one, so the results have the same bits. The division of K among
// warps is that of gemv.cu or, for a matrix that takes the ring, of gemv_ring.cu: run by run of
// neighbouring groups of 32 inputs, run r to warp r % warps. A matrix that takes the ring is packed
// in lines of the groups that one warp takes (CodeOrder), so that a lane loads 16 bytes of codes at
// a time: the codes of four groups, or of two if they have 8 bits.
//
// There is a kernel for each kind of scales of the checkpoints there are, which reads whole lines
// (gemv_code_lines.cuh), and one here for everything: any scales, runs that are no whole lines,
// rows that are not aligned. It loads the codes of one group at a time.
//
// Loads in flight: four in each lane, of 16 bytes where lines are whole, 32 KB on a multiprocessor,
// reissued as soon as their registers have been used, as in gemv.cu. Scales are loaded one slot
// ahead: a sector holds the scales of several lines.
#include <algorithm>

#include "kernels/chunk.h"
#include "kernels/coded_weights.cuh"
#include "kernels/dispatch.h"
#include "kernels/gemv_codes.h"
#include "minisgl/base/checked_math.h"

namespace minisgl::cuda {
namespace gemv_codes {
namespace {

using device::kWarpSize;
using device::Shared;
using device::SharedArena;

// A lane's place in a row of the weights: a group of 32 inputs.
struct GroupPlace {
  int line = 0;
  int place = 0;  // in the line
  int input = 0;  // the first of the lane's eight
  bool valid = false;
};

template <RowCodes KIND>
MINISGL_DEVICE GroupPlace PlaceOfSlot(const CodeLinesParams& p, int slot) {
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int group = (slot / p.run * num_warps + WarpOfThread()) * p.run + slot % p.run;
  GroupPlace place;
  place.line = p.rows.order.Line(group, kLineGroups<KIND>, &place.place);
  place.input = group * kCodeGroup + static_cast<int>(threadIdx.x) % kLineLanes * kLaneCodes;
  place.valid = slot < p.num_slots && group * kCodeGroup < p.rows.num_in;
  return place;
}

// The codes of a slot.
template <RowCodes KIND>
struct SlotCodes {
  LaneLine part;

  MINISGL_DEVICE void Load(const CodeLinesParams& p, const TileRows<1>& rows,
                           const GroupPlace& place) {
    part = LaneLine{};
    if (!rows.valid || !place.valid) return;
    part = LoadLaneGroup<KIND>(p.rows, rows.row[0], place.line,
                               static_cast<int>(threadIdx.x) % kLineLanes, place.place);
  }
};

MINISGL_DEVICE GroupFactors LoadSlotFactors(const CodeLinesParams& p, const TileRows<1>& rows,
                                            const GroupPlace& place) {
  if (!rows.valid || !place.valid || place.input >= p.rows.num_in) return GroupFactors{};
  return LoadGroupFactors(p.rows, rows.row[0], place.input / p.rows.group_inputs);
}

// Elements [first, first + 8) of a token's x; zeros past the last.
MINISGL_DEVICE GemvWords LoadX(const CodeLinesParams& p, int token, int first) {
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
template <typename T, RowCodes KIND, int TOKENS8>
MINISGL_DEVICE void MultiplySlot(const CodeLinesParams& p, const GroupPlace& place,
                                 const SlotCodes<KIND>& codes, const GroupFactors& factors,
                                 Shared<float> table, GemvSums<1>& sums) {
  const int token = static_cast<int>(threadIdx.x) % kWarpSize / 4;
  GemvWords x[TOKENS8];
#pragma unroll
  for (int m = 0; m < TOKENS8; ++m) x[m] = LoadX(p, m * 8 + token, place.input);
  GemvWords words = {};
  if (place.input < p.rows.num_in) {
    words = WordsOf<T, KIND, CodeMath::kFloat>(p.rows, codes.part, 0, factors, table);
    if (!p.aligned) {  // codes past the last input stand for no weights
#pragma unroll
      for (int i = 0; i < kLaneCodes; ++i) {
        if (place.input + i >= p.rows.num_in) words[i / 2] &= i % 2 == 0 ? 0 : 0xFFFFu;
      }
    }
  }
  MultiplyGemvWords<T>(x, words, 0, sums);
}

// Grid (min(tiles, blocks that run at once)), block 32 * warps; a block takes tiles b, b + grid,
// ... Shared memory: the table of numbers, and the sums of two tiles in turn, as in gemv.cu.
// Traffic: the codes and scales once, and 2 * T * K of x for each tile, mostly from the first-level
// cache. The first codes and scales are loaded before GridWait.
template <typename T, RowCodes KIND, int TOKENS8>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreadsMax, 1)
    GemvCodesKernel(MINISGL_GRID_CONSTANT CodeLinesParams p) {
  constexpr int kTile = kGemvTileSums<TOKENS8, 1>, kAhead = kSlots<1>;
  const int num_warps = static_cast<int>(blockDim.x) / kWarpSize;
  const int blocks = static_cast<int>(gridDim.x);
  SharedArena arena;
  const Shared<float> table = TakeCodeTable(p.rows, arena);
  const Shared<float> partial = arena.Take<float>(2 * num_warps * kTile);

  SlotCodes<KIND> codes[kAhead];
  TileRows<1> rows = RowsOfLane<1>(p, static_cast<int>(blockIdx.x));
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) codes[slot].Load(p, rows, PlaceOfSlot<KIND>(p, slot));
  GroupFactors factors = LoadSlotFactors(p, rows, PlaceOfSlot<KIND>(p, 0));
  device::GridRelease();
  __syncthreads();  // the table is written
  device::GridWait();

  int parity = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    const TileRows<1> next_rows = RowsOfLane<1>(p, tile + blocks);
    const GemvPlace place = PlaceOfGemv<1>(p.end, p.input.num_tokens, tile);
    GemvSums<1> sums = {};
#pragma unroll 1
    for (int first = 0; first < p.num_slots; first += kAhead) {
      const bool ends = first + kAhead >= p.num_slots;
      TileRows<1> ahead = rows;
      if (ends) ahead = next_rows;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const GroupPlace slot = PlaceOfSlot<KIND>(p, first + i);
        const GroupFactors its = factors;
        const bool is_last = i + 1 == kAhead;
        factors = LoadSlotFactors(p, is_last ? ahead : rows,
                                  PlaceOfSlot<KIND>(p, is_last && ends ? 0 : first + i + 1));
        if (slot.valid) MultiplySlot<T, KIND, TOKENS8>(p, slot, codes[i], its, table, sums);
        codes[i].Load(p, ahead, PlaceOfSlot<KIND>(p, ends ? i : first + kAhead + i));
      }
    }
    rows = next_rows;
    const Shared<float> tile_sums = partial + parity * num_warps * kTile;
    StoreGemvSums<TOKENS8, 1>(sums, tile_sums);
    __syncthreads();  // all warps' sums are written
    WriteGemvPlace<T, TOKENS8, 1>(p.end, place, tile_sums);
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

// Sets what a walk over whole lines needs.
void SetLines(const Division& division, bool is_packed_so, CodeLinesParams* p) {
  const int of_line = LineGroupsOf(p->rows.kind), warps = division.num_warps, run = division.run;
  p->skipped_lines = (warps - 1) * p->run_lines;
  p->warp_inputs = is_packed_so ? (run - of_line) * kCodeGroup : 0;
  for (int j = 0; j < of_line; ++j) {
    p->place_inputs[j] = (is_packed_so ? j % run + j / run * (warps * run) : j) * kCodeGroup;
  }
}

// The kernel for any scales. Bits do not depend on its tiles.
CudaError LaunchAny(const LaunchContext& context, const LaunchShape& shape, DType dtype,
                    int64_t tile_tokens, const CodeLinesParams& p) {
  return DispatchHalf(dtype, [&]<typename T>() {
    return DispatchCodes(p.rows, [&]<RowCodes KIND>() {
      return tile_tokens == 16 ? Launch(context, shape, GemvCodesKernel<T, KIND, 2>, p)
                               : Launch(context, shape, GemvCodesKernel<T, KIND, 1>, p);
    });
  });
}

// The shape of a launch with tiles of so many tokens and rows. Sets p->num_tiles.
LaunchShape ShapeOf(const LaunchContext& context, const Division& division, int64_t num_rows,
                    int64_t tile_tokens, int64_t tile_rows, CodeLinesParams* p) {
  p->num_tiles =
      static_cast<int>(p->end.num_pairs > 0 ? CeilDiv<int64_t>(p->end.num_pairs, tile_rows / 2)
                                            : CeilDiv(num_rows, tile_rows));
  const int blocks = context.num_multiprocessors * (kWarpsPerProcessor / division.num_warps);
  const size_t tile_bytes = static_cast<size_t>(tile_tokens * tile_rows) * sizeof(float);
  return {.grid = {static_cast<unsigned>(std::min(p->num_tiles, blocks))},
          .block = {static_cast<unsigned>(division.num_warps * kWarpSize)},
          .shared_bytes = kCodeNumbers * sizeof(float) +
                          2 * static_cast<size_t>(division.num_warps) * tile_bytes,
          .programmatic = true};
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
  CodeLinesParams p = {};
  p.rows = rows;
  p.input = MakeGemvInput(params);
  p.end = MakeProductEnd(params);
  p.aligned = weight.num_in % kChunk == 0 && IsAligned16(linear.x.data);
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
  const auto slots_of = [&](int64_t all, int64_t of_turn) {
    return static_cast<int>(CeilDiv(all, of_turn * division.num_warps) * of_turn);
  };
  const int64_t tile_tokens = linear.num_tokens <= 8 ? 8 : 16;
  if (p.run_lines > 0 && p.aligned) {
    SetLines(division, is_packed_so, &p);
    p.num_slots = slots_of(rows.num_lines, p.run_lines);
    // Two rows of a lane share a load of x; small matrices need all blocks, and codes of 6 bits
    // have no registers for them.
    const int64_t tile_rows =
        num_rows >= 4096 && tile_tokens == 8 && rows.kind != RowCodes::kInt6 ? 16 : 8;
    const LaunchShape shape = ShapeOf(context, division, num_rows, tile_tokens, tile_rows, &p);
    const auto launch = linear.x.dtype == DType::kBF16 ? LaunchCodeLines : LaunchCodeLinesF16;
    CudaError error = kCudaSuccess;
    if (launch(context, shape, p, tile_tokens, tile_rows, &error)) return error;
  }
  p.num_slots = slots_of(CeilDiv<int64_t>(rows.num_in, kCodeGroup), p.run);
  const LaunchShape shape = ShapeOf(context, division, num_rows, tile_tokens, 8, &p);
  return LaunchAny(context, shape, linear.x.dtype, tile_tokens, p);
}

}  // namespace minisgl::cuda
