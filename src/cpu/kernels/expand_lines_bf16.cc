// Expands lines of codes (coded_matrix.h) to tiles of bf16. Runs on CpuTarget::kAmx only.
//
// An output has few different weights: of codes of 4 bits there are 16 for each scale, and of e4m3
// 32 times a power of two, as long as none is subnormal. They are computed and rounded once, and
// found by a permutation of words of 16 bits.
#include "cpu/kernels/kernels.h"

#include <cmath>
#include <cstring>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/e4m3_bf16.h"
#include "cpu/kernels/load_factors.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu {
namespace {

constexpr int kTileInputs = 32;
constexpr int kLineTiles = static_cast<int>(kLineInputs) / kTileInputs;
constexpr int64_t kRowBytes = 64;  // of a tile
constexpr int64_t kTileSize = kPanelWidth * kRowBytes;
// Prefetch distance. The lines of a group of outputs follow each other.
constexpr int64_t kBytesAhead = 8192;

inline void Prefetch(const std::byte* from) {
  __builtin_prefetch(from + kBytesAhead, /*rw=*/0, /*locality=*/2);
}

inline void StoreRow(__m512i weights, int tile, int64_t lane, std::byte* tiles) {
  _mm512_store_si512(tiles + tile * kTileSize + lane * kRowBytes, weights);
}

using bf16_dot::E4M3Table;
using bf16_dot::Shift;

// The scales and shifts of the groups of a line, [kCount] of the same number of inputs each, of a
// panel's outputs.
template <int kCount>
struct LineFactors {
  LineFactors(const CodeLines& lines, int64_t panel, int64_t line) {
    const FactorLayout& of = lines.factors();
    panel += lines.first_panel();
    MINISGL_UNROLL for (int i = 0; i < kCount; ++i) {
      const int64_t group = lines.GroupOf(line * kLineInputs + i * (kLineInputs / kCount));
      _mm512_store_ps(scale[i], Load(of, of.scales_of(panel), group));
      if (of.offsets != nullptr) {
        _mm512_store_ps(shift[i], Load(of, of.offsets_of(panel), group));
      } else if (of.zeros != nullptr) {
        __builtin_prefetch(of.zeros_of(panel + kLinePanels) + group * kPanelWidth, 0, 2);
        _mm512_store_ps(shift[i], bf16_dot::LoadZeros(of.zeros_of(panel), group));
      }
    }
  }
  // Makes weights of the numbers of an output's codes in a group of the line.
  template <Shift kShift>
  __m512 Weights(__m512 numbers, int group, int64_t lane) const {
    const float its = kShift == Shift::kNone ? 0 : shift[group][lane];
    return bf16_dot::WeightsOf<kShift>(numbers, _mm512_set1_ps(scale[group][lane]),
                                       _mm512_set1_ps(its));
  }
  alignas(64) float scale[kCount][kPanelWidth];
  alignas(64) float shift[kCount][kPanelWidth];  // unset if there are none

 private:
  static __m512 Load(const FactorLayout& of, const std::byte* of_panel, int64_t group) {
    // Each is read once, so that the processor does not foresee it.
    const int64_t bytes = of.HasSteps() ? 1 : static_cast<int64_t>(DTypeBytes(of.type));
    const std::byte* const ahead = of_panel + kLinePanels * of.panel_bytes;
    __builtin_prefetch(ahead + group * kPanelWidth * bytes, /*rw=*/0, /*locality=*/2);
    return bf16_dot::LoadFactors(of, of_panel, group);
  }
};

// --- 4 bits --------------------------------------------------------------------------------------

// Calls f<0>() to f<kCount - 1>(): shifts take constants.
template <int kCount, int kFirst = 0, typename F>
inline void ForEach(const F& f) {
  if constexpr (kFirst < kCount) {
    f.template operator()<kFirst>();
    ForEach<kCount, kFirst + 1>(f);
  }
}

// kCount: scales of a line, 1, 4 or 8.
template <int kCount, Shift kShift>
void Expand4Bits(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  const LineFactors<kCount> factors(lines, panel, line);
  const __m512 numbers = _mm512_loadu_ps(lines.matrix().numbers.data());
  const std::byte* from = lines.codes(panel, line);
  for (int64_t lane = 0; lane < kPanelWidth; ++lane, from += kRowBytes) {
    // The table twice, for the permutation reads five bits of a word.
    const auto table_of = [&](int i) {
      const __m512 weights = factors.template Weights<kShift>(numbers, i, lane);
      return bf16_dot::Rounded(weights, weights);
    };
    Prefetch(from);
    const __m512i codes = _mm512_loadu_si512(from);
    __m512i table = table_of(0);
    ForEach<kLineTiles>([&]<int kTile>() {
      const __m512i index = kTile == 0 ? codes : _mm512_srli_epi16(codes, 4 * kTile);
      if (kCount == kLineTiles && kTile > 0) table = table_of(kTile);
      if (kCount == 2 * kLineTiles) table = table_of(2 * kTile);
      __m512i weights = _mm512_permutexvar_epi16(index, table);
      if (kCount == 2 * kLineTiles) {
        weights =
            _mm512_mask_permutexvar_epi16(weights, 0xFFFF0000u, index, table_of(2 * kTile + 1));
      }
      StoreRow(weights, kTile, lane, tiles);
    });
  }
}

// --- 8 bits --------------------------------------------------------------------------------------

// The numbers of 16 codes.
template <CodeKind kKind>
inline __m512 NumbersOf(__m128i bytes) {
  if (kKind == CodeKind::kE4M3) return bf16_dot::WidenE4M3(bytes);
  return _mm512_maskz_cvtepi32_ps(0xFFFF, _mm512_maskz_cvtepi8_epi32(0xFFFF, bytes));
}

// Computes weights one by one. kCount: scales of a line, 1, 4 or 8.
template <CodeKind kKind, int kCount, Shift kShift>
void ExpandBytes(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  constexpr int kHalves = 2;  // of a tile
  const LineFactors<kCount> factors(lines, panel, line);
  const std::byte* from = lines.codes(panel, line);
  for (int64_t lane = 0; lane < kPanelWidth; ++lane, from += kLineInputs) {
    Prefetch(from);
    Prefetch(from + kRowBytes);
    // Inputs of a half of a tile are of one group.
    const auto half = [&](int index) {
      const int i = index * kCount / (kHalves * kLineTiles);
      const auto* const codes = reinterpret_cast<const __m128i*>(from) + index;
      return factors.template Weights<kShift>(NumbersOf<kKind>(_mm_loadu_si128(codes)), i, lane);
    };
    MINISGL_UNROLL for (int tile = 0; tile < kLineTiles; ++tile) {
      StoreRow(bf16_dot::Rounded(half(kHalves * tile), half(kHalves * tile + 1)), tile, lane,
               tiles);
    }
  }
}

// The same for e4m3 whose scales have tables; kCount is 1 or 4.
template <int kCount>
void ExpandByTable(const CodeLines& lines, const LineFactors<kCount>& factors, int64_t panel,
                   int64_t line, std::byte* tiles) {
  const std::byte* from = lines.codes(panel, line);
  E4M3Table table(factors.scale[0][0]);
  float table_scale = factors.scale[0][0];
  for (int64_t lane = 0; lane < kPanelWidth; ++lane, from += kLineInputs) {
    Prefetch(from);
    Prefetch(from + kRowBytes);
    MINISGL_UNROLL for (int tile = 0; tile < kLineTiles; ++tile) {
      // Neighbouring outputs often share a scale.
      const float scale = factors.scale[tile * kCount / kLineTiles][lane];
      if (tile * kCount % kLineTiles == 0 && scale != table_scale) {
        table = E4M3Table(scale);
        table_scale = scale;
      }
      const auto* const codes = reinterpret_cast<const __m256i*>(from + tile * kTileInputs);
      StoreRow(table.Find(_mm256_loadu_si256(codes)), tile, lane, tiles);
    }
  }
}

template <int kCount>
void ExpandE4M3(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  if constexpr (kCount <= kLineTiles) {
    const LineFactors<kCount> factors(lines, panel, line);
    bool have_tables = true;
    for (int i = 0; i < kCount; ++i)
      have_tables &= E4M3Table::AreFor(_mm512_load_ps(factors.scale[i]));
    if (have_tables) return ExpandByTable<kCount>(lines, factors, panel, line, tiles);
  }
  ExpandBytes<CodeKind::kE4M3, kCount, Shift::kNone>(lines, panel, line, tiles);
}

template <int kCount, Shift kShift>
void ExpandShifted(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  if (lines.matrix().has_4_bits()) return Expand4Bits<kCount, kShift>(lines, panel, line, tiles);
  ExpandBytes<CodeKind::kInt8, kCount, kShift>(lines, panel, line, tiles);
}

template <int kCount>
void ExpandScales(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  const CodedMatrix& m = lines.matrix();
  if (m.kind == CodeKind::kE4M3) return ExpandE4M3<kCount>(lines, panel, line, tiles);
  switch (bf16_dot::ShiftOf(m)) {
    case Shift::kNone:
      return ExpandShifted<kCount, Shift::kNone>(lines, panel, line, tiles);
    case Shift::kZero:
      return ExpandShifted<kCount, Shift::kZero>(lines, panel, line, tiles);
    case Shift::kOffset:
      return ExpandShifted<kCount, Shift::kOffset>(lines, panel, line, tiles);
  }
}

// Writes 0 for the inputs of a line from `count` on.
void ClearRest(int64_t count, std::byte* tiles) {
  for (int tile = 0; tile < kLineTiles; ++tile) {
    const int64_t left = count - tile * kTileInputs;
    if (left >= kTileInputs) continue;
    const int64_t first = (left < 0 ? 0 : left) * 2;
    for (int64_t lane = 0; lane < kPanelWidth; ++lane) {
      std::memset(tiles + tile * kTileSize + lane * kRowBytes + first, 0,
                  static_cast<size_t>(kRowBytes - first));
    }
  }
}

void ExpandLine(const CodeLines& lines, int64_t panel, int64_t line, std::byte* tiles) {
  const CodedMatrix& m = lines.matrix();
  const int64_t group = m.group_inputs, count = m.num_in - line * kLineInputs;
  if (group % kLineInputs == 0 || group >= m.num_in) {
    ExpandScales<1>(lines, panel, line, tiles);
  } else if (group % kTileInputs == 0) {
    ExpandScales<kLineTiles>(lines, panel, line, tiles);
  } else {
    ExpandScales<2 * kLineTiles>(lines, panel, line, tiles);  // PackCodes has seen to that
  }
  if (count < kLineInputs) ClearRest(count, tiles);
}

// --- transposed ----------------------------------------------------------------------------------

void Transpose(const std::byte* from, int64_t from_stride, std::byte* to) {
  __m512i row[16], pair[16];
  MINISGL_UNROLL for (int i = 0; i < 16; ++i) row[i] = _mm512_loadu_si512(from + i * from_stride);
  // Squares of 2 x 2 words, of 4 x 4 words, and of 4 x 4 of those. (Masks, because GCC 12 warns of
  // the forms without.)
  MINISGL_UNROLL for (int i = 0; i < 16; i += 2) {
    pair[i] = _mm512_maskz_unpacklo_epi32(0xFFFF, row[i], row[i + 1]);
    pair[i + 1] = _mm512_maskz_unpackhi_epi32(0xFFFF, row[i], row[i + 1]);
  }
  MINISGL_UNROLL for (int i = 0; i < 16; i += 4) {
    row[i] = _mm512_maskz_unpacklo_epi64(0xFF, pair[i], pair[i + 2]);
    row[i + 1] = _mm512_maskz_unpackhi_epi64(0xFF, pair[i], pair[i + 2]);
    row[i + 2] = _mm512_maskz_unpacklo_epi64(0xFF, pair[i + 1], pair[i + 3]);
    row[i + 3] = _mm512_maskz_unpackhi_epi64(0xFF, pair[i + 1], pair[i + 3]);
  }
  MINISGL_UNROLL for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_maskz_shuffle_i32x4(0xFFFF, row[i], row[i + 4], 0x88);
    const __m512i b = _mm512_maskz_shuffle_i32x4(0xFFFF, row[i + 8], row[i + 12], 0x88);
    const __m512i c = _mm512_maskz_shuffle_i32x4(0xFFFF, row[i], row[i + 4], 0xDD);
    const __m512i d = _mm512_maskz_shuffle_i32x4(0xFFFF, row[i + 8], row[i + 12], 0xDD);
    _mm512_storeu_si512(to + i * 64, _mm512_maskz_shuffle_i32x4(0xFFFF, a, b, 0x88));
    _mm512_storeu_si512(to + (i + 4) * 64, _mm512_maskz_shuffle_i32x4(0xFFFF, c, d, 0x88));
    _mm512_storeu_si512(to + (i + 8) * 64, _mm512_maskz_shuffle_i32x4(0xFFFF, a, b, 0xDD));
    _mm512_storeu_si512(to + (i + 12) * 64, _mm512_maskz_shuffle_i32x4(0xFFFF, c, d, 0xDD));
  }
}

}  // namespace

LineKernels Bf16LineKernels() { return {.expand = ExpandLine, .transpose = Transpose}; }

void ExpandLinedPanel(const CodedMatrix& m, int64_t panel, DType, std::byte* out) {
  const CodeLines lines(m, panel / kLinePanels);
  alignas(64) std::byte tiles[kLineTiles][kTileSize];
  alignas(64) std::byte pairs[kTileSize];
  for (int64_t first = 0; first < m.num_in; first += kLineInputs) {
    ExpandLine(lines, panel % kLinePanels, first / kLineInputs, tiles[0]);
    for (int64_t tile = 0; tile < kLineTiles; ++tile) {
      const int64_t left = m.num_in - first - tile * kTileInputs;
      if (left >= kTileInputs) {
        Transpose(tiles[tile], kRowBytes, out);
      } else if (left > 0) {
        Transpose(tiles[tile], kRowBytes, pairs);
        std::memcpy(out, pairs, static_cast<size_t>((left + 1) / 2 * kRowBytes));
      }
      out += kTileSize;
    }
  }
}

}  // namespace minisgl::cpu
MINISGL_BF16_DOT_END
