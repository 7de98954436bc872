// Matrix times few vectors with weights that are codes (gemv_codes.cu): the kernel for codes in
// whole lines and for a kind of scales that is known when it is compiled.
//
// A warp walks its lines by a sum and a count, finds a group of scales by a shift, and loads its
// scale where it stands: once for a line if the line has one group (ONE), otherwise for each lane's
// eight codes.
#pragma once

#include <limits>
#include <optional>

#include "kernels/code_numbers.cuh"
#include "kernels/dispatch.h"
#include "kernels/gemv_codes.h"
#include "kernels/gemv_parts.h"

namespace minisgl::cuda {
namespace gemv_codes {

// A kind of matrix that an instance of the kernel is made for.
struct LinesKind {
  RowCodes codes;
  NumberMath math;
  ScaleForm scales;
  GroupOther other;
  bool one;
};

// A warp's place in a row of the weights: its lines are neighbours in runs.
class LineCursor {
 public:
  MINISGL_DEVICE explicit LineCursor(const CodeLinesParams& p)
      : line_(static_cast<int>(threadIdx.x) / device::kWarpSize * p.run_lines),
        left_(p.run_lines) {}

  MINISGL_DEVICE int line() const { return line_; }
  MINISGL_DEVICE void Next(const CodeLinesParams& p) {
    ++line_;
    if (--left_ > 0) return;
    left_ = p.run_lines;
    line_ += p.skipped_lines;
  }

 private:
  int line_ = 0, left_ = 0;
};

template <RowCodes KIND, int ROWS8>
struct LineCodes {
  LaneLine part[ROWS8];
  int line;  // past the last: none

  MINISGL_DEVICE void Load(const CodeLinesParams& p, const TileRows<ROWS8>& rows, int at) {
    line = rows.valid ? at : p.rows.num_lines;
    const int lane = static_cast<int>(threadIdx.x) % kLineLanes;
#pragma unroll
    for (int n = 0; n < ROWS8; ++n) {
      part[n] = LaneLine{};
      if (line < p.rows.num_lines) {
        part[n] = LoadLaneLine<KIND>(p.rows, rows.row[n], line, lane);
      }
    }
  }
};

// The lane's first input of a group at place `j` of a line.
template <RowCodes KIND>
MINISGL_DEVICE int LineInput(const CodeLinesParams& p, int line, int j) {
  return line * (kLineGroups<KIND> * kCodeGroup) + p.warp_inputs * WarpOfThread() +
         p.place_inputs[j] + static_cast<int>(threadIdx.x) % kLineLanes * kLaneCodes;
}

template <RowCodes KIND, ScaleForm SCALES, GroupOther OTHER, bool ONE, int ROWS8>
struct LineFactors {
  static constexpr int kCount = ONE ? 1 : kLineGroups<KIND>;
  GroupFactors factors[ROWS8][kCount];

  MINISGL_DEVICE void Load(const CodeLinesParams& p, const TileRows<ROWS8>& rows, int line) {
    if (line >= p.rows.num_lines) return;
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int input = LineInput<KIND>(p, line, j);
#pragma unroll
      for (int n = 0; n < ROWS8; ++n) {
        factors[n][j] = GroupFactors{};  // of codes past the last input, which are 0
        if (ONE || input < p.rows.num_in) {
          factors[n][j] =
              LoadFormFactors<SCALES, OTHER>(p.rows, rows.row[n], input >> p.rows.group_shift);
        }
      }
    }
  }
};

// This lane's part of a group of x; zeros past the last input, and of tokens past the last.
template <int TOKENS8>
MINISGL_DEVICE void LoadLineX(const CodeLinesParams& p, int input, GemvWords (&x)[TOKENS8]) {
  const int token = static_cast<int>(threadIdx.x) % device::kWarpSize / 4;
#pragma unroll
  for (int m = 0; m < TOKENS8; ++m) {
    x[m] = GemvWords{};
    if (m * 8 + token < p.input.num_tokens && input < p.input.num_in) {
      x[m] = device::LoadVec<4>(reinterpret_cast<const uint32_t*>(
          p.input.x + int64_t{m * 8 + token} * p.input.num_in + input));
    }
  }
}

// Grid (min(tiles, blocks that run at once)), block 32 * warps; a block takes tiles b, b + grid,
// ... Shared memory: the table of numbers, and the sums of two tiles in turn, as in gemv.cu.
// Traffic: the codes and scales once, and 2 * T * K of x for each tile, mostly from the first-level
// cache. The first codes and scales are loaded before GridWait.
template <typename T, RowCodes KIND, NumberMath MATH, ScaleForm SCALES, GroupOther OTHER, bool ONE,
          int TOKENS8, int ROWS8>
MINISGL_KERNEL void MINISGL_LAUNCH_BOUNDS(kThreadsMax, 1)
    GemvCodeLinesKernel(MINISGL_GRID_CONSTANT CodeLinesParams p) {
  constexpr int kTile = kGemvTileSums<TOKENS8, ROWS8>;
  // Registers for 16 tokens of x leave fewer for codes.
  constexpr int kFewer = OTHER != GroupOther::kOffsets ? 3 : KIND == RowCodes::kInt6 ? 1 : 2;
  constexpr int kAhead = TOKENS8 == 2 ? kFewer : kSlots<ROWS8>;
  using Codes = LineCodes<KIND, ROWS8>;
  using Factors = LineFactors<KIND, SCALES, OTHER, ONE, ROWS8>;
  const int num_warps = static_cast<int>(blockDim.x) / device::kWarpSize;
  const int blocks = static_cast<int>(gridDim.x);
  device::SharedArena arena;
  const device::Shared<float> table = TakeCodeTable(p.rows, arena);
  const device::Shared<float> partial = arena.Take<float>(2 * num_warps * kTile);

  Codes codes[kAhead];
  Factors factors;
  TileRows<ROWS8> rows = RowsOfLane<ROWS8>(p, static_cast<int>(blockIdx.x));
  LineCursor ahead(p);
#pragma unroll
  for (int slot = 0; slot < kAhead; ++slot) {
    codes[slot].Load(p, rows, ahead.line());
    ahead.Next(p);
  }
  factors.Load(p, rows, codes[0].line);
  device::GridRelease();
  __syncthreads();  // the table of lines is written
  device::GridWait();

  int parity = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < p.num_tiles; tile += blocks) {
    const TileRows<ROWS8> next_rows = RowsOfLane<ROWS8>(p, tile + blocks);
    // If registers are left, an element of the residual stream is loaded before the products.
    constexpr bool kEarly = TOKENS8 == 1 && ROWS8 == 1;
    GemvPlace place;
    if constexpr (kEarly) place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    GemvSums<ROWS8> sums = {};
#pragma unroll 1
    for (int first = 0; first < p.num_slots; first += kAhead) {
      TileRows<ROWS8> ahead_rows = rows;
      if (first + kAhead >= p.num_slots) {
        ahead_rows = next_rows;
        ahead = LineCursor(p);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const Codes now = codes[i];
        const Factors its = factors;
        codes[i].Load(p, ahead_rows, ahead.line());
        ahead.Next(p);
        const bool is_last = i + 1 == kAhead;
        factors.Load(p, is_last ? ahead_rows : rows, codes[(i + 1) % kAhead].line);
        if (now.line >= p.rows.num_lines) continue;
#pragma unroll
        for (int j = 0; j < kLineGroups<KIND>; ++j) {
          // Keeps the compiler from loading more of x at once than there are registers for.
          if (TOKENS8 == 2 || j % 2 == 0) __syncwarp();
          GemvWords x[TOKENS8];
          LoadLineX(p, LineInput<KIND>(p, now.line, j), x);
#pragma unroll
          for (int n = 0; n < ROWS8; ++n) {
            const GemvWords words = FormWords<T, KIND, MATH, OTHER>(
                p.rows, now.part[n], j, its.factors[n][ONE ? 0 : j], table);
            MultiplyGemvWords<T>(x, words, n, sums);
          }
        }
      }
    }
    rows = next_rows;
    if constexpr (!kEarly) place = PlaceOfGemv<ROWS8>(p.end, p.input.num_tokens, tile);
    const device::Shared<float> tile_sums = partial + parity * num_warps * kTile;
    StoreGemvSums<TOKENS8, ROWS8>(sums, tile_sums);
    __syncthreads();  // all warps' sums of lines are written
    WriteGemvPlace<T, TOKENS8, ROWS8>(p.end, place, tile_sums);
    parity ^= 1;
  }
}

// Calls f with a kind that an instance is made for as template arguments, if `rows` is of one.
// Returns false otherwise.
template <typename T, typename F>
bool DispatchLines(const LinesKind& kind, const F& f) {
  using enum RowCodes;
  using enum NumberMath;
  using enum ScaleForm;
  using enum GroupOther;
  constexpr ScaleForm kOfT = __is_same(T, device::bf16) ? kBF16 : kF16;
  bool found = false;
  const auto try_one =
      [&]<RowCodes KIND, NumberMath MATH, ScaleForm SCALES, GroupOther OTHER, bool ONE>() {
        // Zero points may lack.
        const bool fits = kind.other == OTHER || (kind.other == kNone && OTHER == kZeros);
        if (found || kind.codes != KIND || kind.math != MATH || kind.scales != SCALES || !fits ||
            (ONE && !kind.one)) {
          return;
        }
        found = true;
        f.template operator()<KIND, MATH, SCALES, OTHER, ONE>();
      };
  constexpr ScaleForm kOther = kOfT == kBF16 ? kF16 : kBF16;
  // GPTQ, AWQ and others of 4 bits, --quantize int4, Q4_0; then with scales of other types
  try_one.template operator()<kTable4, kPairsCounting, kOfT, kZeros, true>();
  try_one.template operator()<kTable4, kPairsCounting, kOfT, kZeros, false>();
  try_one.template operator()<kTable4, kCounting, kOther, kZeros, false>();
  try_one.template operator()<kTable4, kCounting, kF32, kZeros, false>();
  if constexpr (kOfT == kBF16) {
    try_one.template operator()<kTable4, kPairsE2M1, kE8M0, kNone, false>();  // MXFP4
  } else {
    try_one.template operator()<kTable4, kE2M1, kE8M0, kNone, false>();
  }
  try_one.template operator()<kTable4, kE2M1, kE4M3Times, kNone, false>();     // NVFP4
  try_one.template operator()<kTable4, kCounting, kF16, kOffsets, false>();    // Q4_1
  try_one.template operator()<kTable4, kCounting, kSteps, kOffsets, false>();  // Q4_K
  try_one.template operator()<kTable4, kOthers, kSteps, kNone, false>();       // IQ4_XS, IQ3_S, ...
  try_one.template operator()<kTable4, kOthers, kSteps, kOffsets, false>();    // Q2_K
  try_one.template operator()<kTable4, kOthers, kF16, kNone, false>();         // IQ4_NL
  try_one.template operator()<kInt6, kOthers, kF16, kNone, false>();           // Q5_0
  try_one.template operator()<kInt6, kOthers, kF16, kOffsets, false>();        // Q5_1
  try_one.template operator()<kInt6, kOthers, kSteps, kOffsets, false>();      // Q5_K
  try_one.template operator()<kInt6, kOthers, kSteps, kNone, false>();         // Q6_K
  try_one.template operator()<kInt8, kOthers, kF16, kNone, false>();           // Q8_0
  try_one.template operator()<kInt8, kOthers, kF16, kZeros, false>();          // GPTQ of 8 bits
  try_one.template operator()<kInt8, kOthers, kBF16, kNone, false>();          // --quantize int8
  try_one.template operator()<kInt8, kOthers, kF32, kNone, true>();
  try_one.template operator()<kE4M3, kOthers, kF32, kNone, false>();
  try_one.template operator()<kE4M3, kOthers, kBF16, kNone, false>();
  return found;
}

// Nothing: of no kind that a kernel may be made for.
inline std::optional<LinesKind> KindOfLines(const CodeLinesParams& p, DType dtype) {
  const CodedRows& rows = p.rows;
  const int64_t num_rows = p.end.num_out;
  if (rows.group_shift < 0 || num_rows * rows.num_groups > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  LinesKind kind = {.codes = rows.kind,
                    .math = NumberMathOf(rows, dtype),
                    .scales = ScaleForm::kF32,
                    .other = GroupOther::kNone,
                    .one = false};
  const int line_inputs = LineGroupsOf(rows.kind) * kCodeGroup;
  kind.one = rows.num_groups == 1 ||
             (rows.group_inputs % line_inputs == 0 &&
              p.place_inputs[LineGroupsOf(rows.kind) - 1] == line_inputs - kCodeGroup);
  if (rows.zeros != nullptr) kind.other = GroupOther::kZeros;
  if (rows.offsets != nullptr) kind.other = GroupOther::kOffsets;
  switch (rows.scale_kind) {
    case GroupScales::kStored:
      kind.scales = rows.scale_type == DType::kBF16  ? ScaleForm::kBF16
                    : rows.scale_type == DType::kF16 ? ScaleForm::kF16
                    : rows.scale_type == DType::kF32 ? ScaleForm::kF32
                                                     : ScaleForm::kE8M0;
      return kind;
    case GroupScales::kSteps:
      if (rows.scale_type != DType::kF16 || rows.base_shift < 0) return std::nullopt;
      kind.scales = ScaleForm::kSteps;
      return kind;
    default:
      kind.scales = ScaleForm::kE4M3Times;
      return kind;
  }
}

// The same as LaunchCodeLines, for products of type T.
template <typename T>
bool LaunchCodeLinesOf(const LaunchContext& context, const LaunchShape& shape,
                       const CodeLinesParams& p, int64_t tile_tokens, int64_t tile_rows,
                       CudaError* error) {
  const auto kind = KindOfLines(p, __is_same(T, device::bf16) ? DType::kBF16 : DType::kF16);
  if (!kind) return false;
  return DispatchLines<T>(
      *kind, [&]<RowCodes KIND, NumberMath MATH, ScaleForm SCALES, GroupOther OTHER, bool ONE>() {
        if (tile_tokens == 16) {
          *error = Launch(context, shape,
                          GemvCodeLinesKernel<T, KIND, MATH, SCALES, OTHER, ONE, 2, 1>, p);
          return;
        }
        if constexpr (KIND != RowCodes::kInt6) {
          if (tile_rows == 16) {
            *error = Launch(context, shape,
                            GemvCodeLinesKernel<T, KIND, MATH, SCALES, OTHER, ONE, 1, 2>, p);
            return;
          }
        }
        *error =
            Launch(context, shape, GemvCodeLinesKernel<T, KIND, MATH, SCALES, OTHER, ONE, 1, 1>, p);
      });
}

}  // namespace gemv_codes
}  // namespace minisgl::cuda
