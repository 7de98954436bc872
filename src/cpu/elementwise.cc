// RMSNorm, gated activation, rotary embedding with the write to the KV storage: operations of
// O(width) a token.
#include "cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "cpu/kernels.h"
#include "cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl {
namespace HWY_NAMESPACE {

// Squares are summed in f32 within blocks of this many, the blocks in double.
constexpr int64_t kNormBlock = 256;

HWY_INLINE double SumOfSquares(const float* v, int64_t width) {
  const F32 d;
  double total = 0;
  for (int64_t begin = 0; begin < width; begin += kNormBlock) {
    const int64_t end = MinOf(begin + kNormBlock, width);
    Floats sum = hn::Zero(d);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Floats x = hn::LoadU(d, v + i);
      sum = hn::MulAdd(x, x, sum);
    }
    double block = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < end; ++i) block += static_cast<double>(v[i]) * v[i];
    total += block;
  }
  return total;
}

HWY_INLINE void AddTo(const float* x, float* residual, int64_t width) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, residual + i), hn::LoadU(d, x + i)), d, residual + i);
  }
  for (; i < width; ++i) residual[i] += x[i];
}

// out = weight * v / rms(v); out may be v.
HWY_INLINE void Normalize(const float* v, const float* weight, int64_t width, float eps,
                          float* out) {
  const F32 d;
  const double mean = SumOfSquares(v, width) / static_cast<double>(width);
  const float scale = static_cast<float>(1 / std::sqrt(mean + eps));
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Floats scaled = hn::Mul(hn::LoadU(d, v + i), hn::Set(d, scale));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < width; ++i) out[i] = v[i] * scale * weight[i];
}

void RmsNormTokens(const RmsNormParams& p, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    const float* v = p.x == nullptr ? nullptr : p.x.f32() + t * p.width;
    if (p.residual != nullptr) {
      float* residual = p.residual + t * p.width;
      if (v != nullptr) AddTo(v, residual, p.width);
      v = residual;
    }
    Normalize(v, p.weight, p.width, p.eps, p.out.f32() + t * p.width);
  }
}

// GELU in its tanh form is x * sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): no cancellation.
HWY_INLINE Floats Gate(Activation activation, Floats x) {
  const F32 d;
  if (activation == Activation::kSilu) return hn::Mul(x, Sigmoid(x));
  const Floats cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
  return hn::Mul(x, Sigmoid(hn::Mul(hn::Set(d, 1.59576912f), cubic)));
}

void GatedActivationTokens(const GatedActivationParams& p, int64_t begin, int64_t end) {
  const F32 d;
  for (int64_t t = begin; t < end; ++t) {
    const float* gate = p.gate_up.f32() + t * 2 * p.width;
    const float* up = gate + p.width;
    float* out = p.out.f32() + t * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes) {
      const Floats gated = Gate(p.activation, hn::LoadU(d, gate + i));
      hn::StoreU(hn::Mul(gated, hn::LoadU(d, up + i)), d, out + i);
    }
    for (; i < p.width; ++i) {
      out[i] = hn::GetLane(Gate(p.activation, hn::Set(d, gate[i]))) * up[i];
    }
  }
}

HWY_INLINE void Rotate(float* x, const float* cos, const float* sin, int64_t half) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const Floats a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const Floats c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + i);
  }
  for (; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * cos[i] - b * sin[i];
    x[half + i] = b * cos[i] + a * sin[i];
  }
}

void RopeKvWriteTokens(const RopeKvWriteParams& p, int64_t begin, int64_t end) {
  const int64_t token_width = (int64_t{p.num_heads} + 2 * int64_t{p.num_kv_heads}) * p.head_dim;
  const int64_t half = p.rotary_dim / 2;
  const KeyLayout keys(p.kv, p.head_dim);
  for (int64_t t = begin; t < end; ++t) {
    float* token = p.qkv.f32() + t * token_width;
    const float* cos = p.cos + p.positions[t] * half;
    const float* sin = p.sin + p.positions[t] * half;
    for (int64_t h = 0; h < p.num_heads + p.num_kv_heads; ++h) {
      float* head = token + h * p.head_dim;
      const float* norm = h < p.num_heads ? p.q_norm : p.k_norm;
      if (norm != nullptr) Normalize(head, norm, p.head_dim, p.norm_eps, head);
      Rotate(head, cos, sin, half);
    }
    float* page = p.kv.base.f32() + p.slots[t] / p.kv.page_size * p.kv.page_stride;
    const int64_t offset = p.slots[t] % p.kv.page_size;
    for (int64_t h = 0; h < p.num_kv_heads; ++h) {
      const float* k = token + (p.num_heads + h) * p.head_dim;
      const float* v = k + int64_t{p.num_kv_heads} * p.head_dim;
      float* to_k = page + h * p.kv.head_stride + offset * keys.slot_stride;
      float* to_v = page + h * p.kv.head_stride + offset * p.kv.slot_stride + p.kv.v_offset;
      for (int64_t e = 0; e < p.head_dim; ++e) to_k[e * keys.element_stride] = k[e];
      for (int64_t e = 0; e < p.head_dim; ++e) to_v[e] = v[e];
    }
  }
}

ElementwiseKernels GetElementwise() {
  return {RmsNormTokens, GatedActivationTokens, RopeKvWriteTokens};
}

}  // namespace HWY_NAMESPACE
}  // namespace minisgl
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace minisgl {

const PerTarget<GetElementwiseKernels>& ElementwiseKernelGetters() {
  static constexpr PerTarget<GetElementwiseKernels> kTable = MINISGL_PER_TARGET(GetElementwise);
  return kTable;
}

}  // namespace minisgl
#endif
