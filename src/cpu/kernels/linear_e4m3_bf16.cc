// out = x w^T + bias for few rows and codes of type e4m3 in CodeOrder::kWords, widened to bf16 in
// registers, with the dot-product instruction of AVX512-BF16. Every output has the bits of the
// product with the expanded weights (expand_codes_bf16.cc, linear_bf16.cc): the same weights, added
// in the same order. Runs on CpuTarget::kAvx512Bf16 only.
#include "cpu/kernels/kernels.h"

#include <cstring>

#include "cpu/kernels/bf16_dot.h"
#include "cpu/kernels/e4m3_bf16.h"
#include "cpu/kernels/load_factors.h"

MINISGL_BF16_DOT_BEGIN
namespace minisgl::cpu {
namespace {

constexpr int64_t kPairBytes = kPanelWidth * 2;  // of the codes of a pair of inputs of a panel
// Prefetch distance within a panel.
constexpr int64_t kBytesAhead = 2048;

// The weights of codes whose outputs have the scales given, each computed.
template <int kPanels>
struct ComputedWeights {
  const __m512 (&scales)[kPanels];
  __m512i order;
  MINISGL_INLINE __m512i Find(int v, __m256i codes) const {
    return bf16_dot::E4M3Pairs(codes, scales[v], order);
  }
};

template <int kRows, int kPanels>
class E4M3DotProduct {
 public:
  E4M3DotProduct(const LinearBlock& linear, int64_t column)
      : linear_(linear),
        m_(*linear.weight->coded),
        factors_(m_),
        column_(column),
        panel_((linear.group * kGroupWidth + column) / kPanelWidth) {}

  void Run() {
    for (int64_t begin = 0; begin < m_.num_in; begin += kDotBlockInputs) {
      const int64_t left = m_.num_in - begin;
      const int64_t end = begin + (left < kDotBlockInputs ? left : kDotBlockInputs);
      Sums sum;
      bf16_dot::SetZero(sum);
      for (int64_t input = begin; input < end;) {
        const int64_t group = input / m_.group_inputs;
        const int64_t of_group = (group + 1) * m_.group_inputs;
        const int64_t stop = of_group < end ? of_group : end;
        AddGroup(group, input, stop, sum);
        input = stop;
      }
      AddBlock(begin > 0, end == m_.num_in, sum);
    }
  }

 private:
  using Sums = __m512[kRows][kPanels];

  // The products of inputs [begin, end) of one group.
  MINISGL_INLINE void AddGroup(int64_t group, int64_t begin, int64_t end, Sums& sum) const {
    __m512 scales[kPanels], factors[kPanels];
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      scales[v] = bf16_dot::LoadFactors(factors_, factors_.scales_of(panel_ + v), group);
      factors[v] = _mm512_mul_ps(scales[v], _mm512_set1_ps(bf16_dot::kE4M3Factor));
    }
    const float first = _mm512_cvtss_f32(scales[0]);
    __mmask16 are_equal = 0xFFFF;
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      are_equal = _mm512_mask_cmp_ps_mask(are_equal, scales[v], _mm512_set1_ps(first), _CMP_EQ_OQ);
    }
    // As those of a block of weights are.
    if (are_equal == 0xFFFF) return AddQuads(_mm512_cvtss_f32(factors[0]), begin, end, sum);
    AddPairs(ComputedWeights<kPanels>{factors, order_}, begin, end, sum);
  }

  // `factor`: the scale of all, times kE4M3Factor.
  MINISGL_INLINE void AddQuads(float factor, int64_t begin, int64_t end, Sums& sum) const {
    const bf16_dot::E4M3ByteTable table(factor);
    const std::byte* const codes = m_.codes(panel_) + begin * kPanelWidth;
    const std::byte* const x = linear_.x + begin * 2;
    const int64_t panel_bytes = m_.panel_bytes();
    const int64_t ahead = BytesAhead(end);
    const int64_t num_quads = (end - begin) / 4;
    for (int64_t quad = 0; quad < num_quads; ++quad) {
      __m512i w[2][kPanels];
      MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
        const std::byte* const from = codes + v * panel_bytes + quad * 2 * kPairBytes;
        __builtin_prefetch(from + ahead, /*rw=*/0, /*locality=*/2);
        FindQuad(table, _mm512_loadu_si512(from), v, w);
      }
      AddPair(x + quad * 8, w[0], sum);
      AddPair(x + quad * 8 + 4, w[1], sum);
    }
    // The last inputs of a matrix; those that a pair lacks are 0.
    const int64_t left = (end - begin) % 4;
    if (left == 0) return;
    const __mmask64 mask = (uint64_t{1} << (left * kPanelWidth)) - 1;
    __m512i w[2][kPanels];
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      const std::byte* const from = codes + v * panel_bytes + num_quads * 2 * kPairBytes;
      FindQuad(table, _mm512_maskz_loadu_epi8(mask, from), v, w);
    }
    AddPair(x + num_quads * 8, w[0], sum);
    if (left > 2) AddPair(x + num_quads * 8 + 4, w[1], sum);
  }
  MINISGL_INLINE void FindQuad(const bf16_dot::E4M3ByteTable& table, __m512i codes, int v,
                               __m512i (&w)[2][kPanels]) const {
    __m512i pairs[2];
    table.Find(codes, quad_order_, pairs);
    w[0][v] = pairs[0];
    w[1][v] = pairs[1];
  }

  // The distance of the fetch while inputs up to `end` are read: behind the last inputs the next
  // panels begin.
  int64_t BytesAhead(int64_t end) const {
    const bool ends = end * kPanelWidth + kBytesAhead > m_.panel_bytes();
    return kBytesAhead + (ends ? (kPanels - 1) * m_.panel_bytes() : 0);
  }

  // If the number of inputs is odd, they are the last.
  template <class Weights>
  MINISGL_INLINE void AddPairs(const Weights& weights, int64_t begin, int64_t end,
                               Sums& sum) const {
    const std::byte* const codes = m_.codes(panel_) + begin * kPanelWidth;
    const std::byte* const x = linear_.x + begin * 2;
    const int64_t panel_bytes = m_.panel_bytes();
    const int64_t ahead = BytesAhead(end);
    const int64_t num_pairs = (end - begin) / 2;
    for (int64_t pair = 0; pair < num_pairs; ++pair) {
      __m512i w[kPanels];
      MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
        const std::byte* const from = codes + v * panel_bytes + pair * kPairBytes;
        if (pair % 2 == 0) __builtin_prefetch(from + ahead, /*rw=*/0, /*locality=*/2);
        w[v] = weights.Find(v, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
      }
      AddPair(x + pair * 4, w, sum);
    }
    if ((end - begin) % 2 == 0) return;
    // The odd inputs of the last pair are 0.
    __m512i w[kPanels];
    MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
      const std::byte* const from = codes + v * panel_bytes + num_pairs * kPairBytes;
      const __m128i last = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      w[v] = weights.Find(v, _mm256_zextsi128_si256(last));
    }
    AddPair(x + num_pairs * 4, w, sum);
  }

  MINISGL_INLINE void AddPair(const std::byte* x, const __m512i (&w)[kPanels], Sums& sum) const {
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      int32_t both;
      std::memcpy(&both, x + r * linear_.x_stride, sizeof(both));
      const auto factor = (__m512bh)_mm512_set1_epi32(both);
      MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
        sum[r][v] = _mm512_dpbf16_ps(sum[r][v], factor, (__m512bh)w[v]);
      }
    }
  }

  MINISGL_INLINE void AddBlock(bool adds, bool is_last, const Sums& sum) const {
    const int64_t first = linear_.group * kGroupWidth + column_;
    const float* const bias = is_last && linear_.bias != nullptr ? linear_.bias + first : nullptr;
    MINISGL_UNROLL for (int r = 0; r < kRows; ++r) {
      MINISGL_UNROLL for (int v = 0; v < kPanels; ++v) {
        const int64_t lane = v * kPanelWidth;
        float* const out = linear_.out + r * linear_.out_stride + column_ + lane;
        bf16_dot::StoreSums(sum[r][v], linear_.weight->num_out - first - lane, adds,
                            bias == nullptr ? nullptr : bias + lane, out);
      }
    }
  }

  const LinearBlock& linear_;
  const CodedMatrix& m_;
  FactorLayout factors_;
  int64_t column_, panel_;
  const __m512i order_ = bf16_dot::InterleavedHalves();
  const __m512i quad_order_ = bf16_dot::E4M3ByteTable::PairsInLanes();
};

template <int kRows>
void MultiplyRows(const LinearBlock& linear) {
  constexpr int kPanels = static_cast<int>(kGroupWidth / kPanelWidth);
  const int64_t left = linear.weight->num_out - linear.group * kGroupWidth;
  if (left > kGroupWidth - kPanelWidth) return E4M3DotProduct<kRows, kPanels>(linear, 0).Run();
  // The last group may have fewer panels.
  for (int64_t column = 0; column < left; column += kPanelWidth) {
    E4M3DotProduct<kRows, 1>(linear, column).Run();
  }
}

void MultiplyOnce(const LinearBlock& linear) {
  static_assert(kE4M3Rows == 4);
  if (linear.num_rows == 1) return MultiplyRows<1>(linear);
  if (linear.num_rows == 2) return MultiplyRows<2>(linear);
  if (linear.num_rows == 3) return MultiplyRows<3>(linear);
  MultiplyRows<4>(linear);
}

void Multiply(const LinearBlock& linear) { MultiplyE4M3Rows(linear, MultiplyOnce); }

}  // namespace

MultiplyCodes E4M3Bf16Multiply() { return Multiply; }

}  // namespace minisgl::cpu
MINISGL_BF16_DOT_END
