// Layers with a state: short convolutions, and recurrences over the matrix of a head.
//
// The matrix is cut into blocks of kStateColumns columns, [key_dim][16]: 8 KiB with keys of 128,
// which stay in the first-level cache while the tokens of a row pass. Columns are independent, and
// each of their sums over keys has four chains, n mod 4, which are added at the end: the order does
// not depend on the number of tokens or on the vectors' width. Compiled once for each instruction
// set (kernel_tables.cc).
#if defined(MINISGL_CPU_STATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_STATES_INL_H_
#undef MINISGL_CPU_STATES_INL_H_
#else
#define MINISGL_CPU_STATES_INL_H_
#endif

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace states {

// --- convolutions --------------------------------------------------------------------------------

// The inputs of one token's convolution: for each weight a row of x, or of the state (without a
// factor), or null: zeros.
struct ConvInputs {
  const float* x[kConvLengthMax];
  const float* factor[kConvLengthMax];
};

HWY_INLINE ConvInputs FindInputs(const ShortConvParams& p, int32_t segment, int64_t t) {
  ConvInputs inputs;
  const int32_t first = p.segments.spans[segment].row_first;
  const int64_t begin = p.segments.spans[first].begin, past = p.length - 1;
  const int64_t slot = p.segments.spans[first].read;
  for (int64_t j = 0; j < p.length; ++j) {
    const int64_t from = t - past + j;
    inputs.factor[j] = nullptr;
    if (from >= begin) {
      inputs.x[j] = p.x.f32() + from * p.stride;
      if (p.x_factor.data != nullptr) inputs.factor[j] = p.x_factor.f32() + from * p.stride;
    } else {
      const int64_t column = past + from - begin;
      inputs.x[j] = slot < 0 ? nullptr : p.states + (slot * past + column) * p.width;
    }
  }
  return inputs;
}

HWY_INLINE Floats LoadOrZero(const float* x, int64_t i, bool is_whole) {
  const F32 d;
  if (x == nullptr) return hn::Zero(d);
  return is_whole ? hn::LoadU(d, x + i) : hn::Set(d, x[i]);
}

// Channel i, or a vector of channels from i on (`is_whole`).
HWY_INLINE Floats Convolve(const ShortConvParams& p, const ConvInputs& inputs,
                           const float* out_factor, int64_t i, bool is_whole) {
  Floats sum = LoadOrZero(p.bias, i, is_whole);
  for (int64_t j = 0; j < p.length; ++j) {
    Floats u = LoadOrZero(inputs.x[j], i, is_whole);
    if (inputs.factor[j] != nullptr) u = hn::Mul(u, LoadOrZero(inputs.factor[j], i, is_whole));
    sum = hn::MulAdd(LoadOrZero(p.weight + j * p.width, i, is_whole), u, sum);
  }
  if (p.silu) sum = hn::Mul(sum, Sigmoid(sum));
  if (out_factor != nullptr) sum = hn::Mul(sum, LoadOrZero(out_factor, i, is_whole));
  return sum;
}

void ShortConvTokens(const ShortConvParams& p, int32_t segment, int64_t begin, int64_t end) {
  const F32 d;
  for (int64_t t = begin; t < end; ++t) {
    const ConvInputs inputs = FindInputs(p, segment, t);
    const float* factor =
        p.out_factor.data == nullptr ? nullptr : p.out_factor.f32() + t * p.stride;
    float* out = p.out.f32() + t * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes) {
      hn::StoreU(Convolve(p, inputs, factor, i, true), d, out + i);
    }
    for (; i < p.width; ++i) out[i] = hn::GetLane(Convolve(p, inputs, factor, i, false));
  }
}

// --- recurrences ---------------------------------------------------------------------------------

constexpr int kVectors = static_cast<int>(kStateColumns) / kLanes;
constexpr int64_t kChains = 4;
static_assert(kVectors * kLanes == kStateColumns);

struct Columns {
  Floats v[kVectors];
};

HWY_INLINE Columns LoadColumns(const float* from) {
  Columns columns;
  MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
    columns.v[i] = hn::LoadU(F32(), from + i * kLanes);
  }
  return columns;
}

HWY_INLINE void StoreColumns(const Columns& columns, float* to) {
  MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
    hn::StoreU(columns.v[i], F32(), to + i * kLanes);
  }
}

// The block's values of a token; zeros past the head's last one.
HWY_INLINE Columns LoadValues(const float* value, int64_t count) {
  if (count >= kStateColumns) return LoadColumns(value);
  alignas(64) float padded[kStateColumns] = {};
  for (int64_t i = 0; i < count; ++i) padded[i] = value[i];
  return LoadColumns(padded);
}

HWY_INLINE void StoreValues(const Columns& columns, int64_t count, float* out) {
  if (count >= kStateColumns) return StoreColumns(columns, out);
  alignas(64) float padded[kStateColumns];
  StoreColumns(columns, padded);
  for (int64_t i = 0; i < count; ++i) out[i] = padded[i];
}

struct Chains {
  Columns c[kChains];
};

HWY_INLINE Chains NoSums() {
  Chains chains;
  MINISGL_UNROLL for (int64_t c = 0; c < kChains; ++c) {
    MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) chains.c[c].v[i] = hn::Zero(F32());
  }
  return chains;
}

HWY_INLINE Columns SumOf(const Chains& chains) {
  Columns sum;
  MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
    sum.v[i] = hn::Add(hn::Add(chains.c[0].v[i], chains.c[1].v[i]),
                       hn::Add(chains.c[2].v[i], chains.c[3].v[i]));
  }
  return sum;
}

// sum += factor * row
HWY_INLINE void AddRow(const float* row, float factor, Columns* sum) {
  MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
    sum->v[i] = hn::MulAdd(hn::Set(F32(), factor), hn::LoadU(F32(), row + i * kLanes), sum->v[i]);
  }
}

// row = decay * row + key * added;  sum += query * row
HWY_INLINE void UpdateRow(float* row, float decay, float key, float query, const Columns& added,
                          Columns* sum) {
  const F32 d;
  MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
    const Floats old = hn::Mul(hn::Set(d, decay), hn::LoadU(d, row + i * kLanes));
    const Floats next = hn::MulAdd(hn::Set(d, key), added.v[i], old);
    hn::StoreU(next, d, row + i * kLanes);
    sum->v[i] = hn::MulAdd(hn::Set(d, query), next, sum->v[i]);
  }
}

// S^T x
HWY_INLINE Columns Multiply(const float* block, const float* x, int64_t key_dim) {
  Chains sums = NoSums();
  int64_t n = 0;
  for (; n + kChains <= key_dim; n += kChains) {
    MINISGL_UNROLL for (int64_t c = 0; c < kChains; ++c) {
      AddRow(block + (n + c) * kStateColumns, x[n + c], &sums.c[c]);
    }
  }
  for (; n < key_dim; ++n) AddRow(block + n * kStateColumns, x[n], &sums.c[n % kChains]);
  return SumOf(sums);
}

// S = decay * S + key added^T; returns S^T query.
HWY_INLINE Columns Update(float* block, float decay, const float* key, const float* query,
                          const Columns& added, int64_t key_dim) {
  Chains sums = NoSums();
  int64_t n = 0;
  for (; n + kChains <= key_dim; n += kChains) {
    MINISGL_UNROLL for (int64_t c = 0; c < kChains; ++c) {
      UpdateRow(block + (n + c) * kStateColumns, decay, key[n + c], query[n + c], added,
                &sums.c[c]);
    }
  }
  for (; n < key_dim; ++n) {
    UpdateRow(block + n * kStateColumns, decay, key[n], query[n], added, &sums.c[n % kChains]);
  }
  return SumOf(sums);
}

// The decay is applied to what the key finds instead of to the matrix, which is then written once.
void DeltaTokens(const HeadTokens& p) {
  const F32 d;
  for (int64_t first = 0; first < p.value_dim; first += kStateColumns) {
    float* block = p.state + first * p.key_dim;
    const int64_t width = p.value_dim - first;
    for (int64_t t = 0; t < p.count; ++t) {
      const float* key = p.key + t * p.stride;
      const Columns found = Multiply(block, key, p.key_dim);
      Columns added = LoadValues(p.value + t * p.stride + first, width);
      const Floats decay = hn::Set(d, p.decay[t]), gain = hn::Set(d, p.gain[t]);
      MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
        added.v[i] = hn::Mul(gain, hn::NegMulAdd(decay, found.v[i], added.v[i]));
      }
      const Columns out = Update(block, p.decay[t], key, p.query + t * p.stride, added, p.key_dim);
      StoreValues(out, width, p.out + t * p.out_stride + first);
    }
  }
}

void Mamba2Tokens(const HeadTokens& p) {
  const F32 d;
  for (int64_t first = 0; first < p.value_dim; first += kStateColumns) {
    float* block = p.state + first * p.key_dim;
    const int64_t width = p.value_dim - first;
    for (int64_t t = 0; t < p.count; ++t) {
      const Columns value = LoadValues(p.value + t * p.stride + first, width);
      Columns added;
      MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
        added.v[i] = hn::Mul(hn::Set(d, p.gain[t]), value.v[i]);
      }
      Columns out =
          Update(block, p.decay[t], p.key + t * p.stride, p.query + t * p.stride, added, p.key_dim);
      MINISGL_UNROLL for (int i = 0; i < kVectors; ++i) {
        out.v[i] = hn::MulAdd(hn::Set(d, p.skip), value.v[i], out.v[i]);
      }
      StoreValues(out, width, p.out + t * p.out_stride + first);
    }
  }
}

StateKernels GetStates() {
  StateKernels kernels;
  kernels.short_conv = ShortConvTokens;
  kernels.delta = DeltaTokens;
  kernels.mamba2 = Mamba2Tokens;
  return kernels;
}

}  // namespace states
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
