// Operations that take time O(width) for each token: norms, activations, rotary embedding with the
// write to the KV storage, soft-capping, the weighted sum of experts. Compiled once for each
// instruction set (kernel_tables.cc).
#if defined(MINISGL_CPU_ELEMENTWISE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MINISGL_CPU_ELEMENTWISE_INL_H_
#undef MINISGL_CPU_ELEMENTWISE_INL_H_
#else
#define MINISGL_CPU_ELEMENTWISE_INL_H_
#endif

#include <cmath>

#include "cpu/kernels/kernels.h"
#include "cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace minisgl::cpu {
namespace HWY_NAMESPACE {
namespace elementwise {

// Squares are summed in f32 within blocks of this many elements, the blocks' sums in double.
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

// The mean of v as the sum of two numbers, `rough` and a small `rest`, and 1 / sqrt(variance +
// eps).
struct Centre {
  float rough = 0;
  float rest = 0;
  float scale = 1;
};

HWY_INLINE double Sum(const float* v, int64_t width) {
  const F32 d;
  double total = 0;
  for (int64_t begin = 0; begin < width; begin += kNormBlock) {
    const int64_t end = MinOf(begin + kNormBlock, width);
    Floats sum = hn::Zero(d);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) sum = hn::Add(sum, hn::LoadU(d, v + i));
    double block = hn::GetLane(hn::SumOfLanes(d, sum));
    for (; i < end; ++i) block += v[i];
    total += block;
  }
  return total;
}

// Two passes: the second sums distances from the first pass's rough mean, and their squares. This
// corrects the rounding of the first pass, and does not cancel if the mean is far larger than the
// deviation.
HWY_INLINE Centre FindCentre(const float* v, int64_t width, float eps) {
  const F32 d;
  const auto count = static_cast<double>(width);
  const auto rough = static_cast<float>(Sum(v, width) / count);
  double distances = 0, squares = 0;
  for (int64_t begin = 0; begin < width; begin += kNormBlock) {
    const int64_t end = MinOf(begin + kNormBlock, width);
    Floats sum = hn::Zero(d), sum_of_squares = hn::Zero(d);
    int64_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      const Floats x = hn::Sub(hn::LoadU(d, v + i), hn::Set(d, rough));
      sum = hn::Add(sum, x);
      sum_of_squares = hn::MulAdd(x, x, sum_of_squares);
    }
    double block = hn::GetLane(hn::SumOfLanes(d, sum));
    double block_squares = hn::GetLane(hn::SumOfLanes(d, sum_of_squares));
    for (; i < end; ++i) {
      const double x = v[i] - rough;
      block += x;
      block_squares += x * x;
    }
    distances += block;
    squares += block_squares;
  }
  const double rest = distances / count;
  const double variance = MaxOf(0.0, squares / count - rest * rest);
  return {rough, static_cast<float>(rest), static_cast<float>(1 / std::sqrt(variance + eps))};
}

// residual += scale * x
HWY_INLINE void AddTo(const float* x, float scale, float* residual, int64_t width) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Floats sum =
        hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, scale), hn::LoadU(d, residual + i));
    hn::StoreU(sum, d, residual + i);
  }
  for (; i < width; ++i) residual[i] += scale * x[i];
}

HWY_INLINE void Scale(float* x, float scale, int64_t width) {
  const F32 d;
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), d, x + i);
  }
  for (; i < width; ++i) x[i] *= scale;
}

HWY_INLINE double MeanSquare(const float* v, int64_t width) {
  return SumOfSquares(v, width) / static_cast<double>(width);
}

// out = weight * v / sqrt(mean + eps), with the mean of v^2; out may be v.
HWY_INLINE void NormalizeRms(const float* v, const float* weight, int64_t width, double mean,
                             float eps, float* out) {
  const F32 d;
  const float scale = static_cast<float>(1 / std::sqrt(mean + eps));
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Floats scaled = hn::Mul(hn::LoadU(d, v + i), hn::Set(d, scale));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < width; ++i) out[i] = v[i] * scale * weight[i];
}

// out = weight * (v - mean(v)) / deviation(v); out may be v.
HWY_INLINE void NormalizeLayer(const float* v, const float* weight, int64_t width, float eps,
                               float* out) {
  const F32 d;
  const Centre centre = FindCentre(v, width, eps);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    const Floats distance =
        hn::Sub(hn::Sub(hn::LoadU(d, v + i), hn::Set(d, centre.rough)), hn::Set(d, centre.rest));
    const Floats scaled = hn::Mul(distance, hn::Set(d, centre.scale));
    hn::StoreU(hn::Mul(scaled, hn::LoadU(d, weight + i)), d, out + i);
  }
  for (; i < width; ++i) {
    out[i] = (v[i] - centre.rough - centre.rest) * centre.scale * weight[i];
  }
}

// `mean_square`: of the token over all ranks, or null.
HWY_INLINE void NormalizeToken(const NormParams& p, const float* mean_square, const float* v,
                               float* out) {
  const int64_t width = p.group_width == 0 ? p.width : p.group_width;
  for (int64_t begin = 0; begin < p.width; begin += width) {
    if (p.kind == NormKind::kRms) {
      const double mean =
          mean_square == nullptr ? MeanSquare(v + begin, width) : double{*mean_square};
      NormalizeRms(v + begin, p.weight + begin, width, mean, p.eps, out + begin);
    } else {
      NormalizeLayer(v + begin, p.weight + begin, width, p.eps, out + begin);
    }
  }
  if (p.bias != nullptr) AddTo(p.bias, 1, out, p.width);
}

void NormTokens(const NormParams& p, int64_t begin, int64_t end) {
  const int64_t stride = p.stride == 0 ? p.width : p.stride;
  for (int64_t t = begin; t < end; ++t) {
    const float* v = p.x == nullptr ? nullptr : p.x.f32() + t * stride;
    if (p.residual != nullptr) {
      float* residual = p.residual + t * p.width;
      if (v != nullptr) AddTo(v, p.x_scale, residual, p.width);
      if (p.residual_factor != 1) Scale(residual, p.residual_factor, p.width);
      v = residual;
    }
    if (p.out == nullptr) continue;
    float* out = p.out.f32() + t * stride;
    if (p.weight != nullptr) {
      NormalizeToken(p, p.mean_squares == nullptr ? nullptr : p.mean_squares + t, v, out);
    } else if (out != v) {
      for (int64_t i = 0; i < p.width; ++i) out[i] = v[i];
    }
  }
}

void MeanSquaresOfTokens(const MeanSquaresParams& p, int64_t begin, int64_t end) {
  const int64_t stride = p.stride == 0 ? p.width : p.stride;
  for (int64_t t = begin; t < end; ++t) {
    p.out[t] = static_cast<float>(p.share * MeanSquare(p.x.f32() + t * stride, p.width));
  }
}

// All of these propagate NaN: comparisons with it are false, and min and max, which drop it on some
// machines, are not used.
template <Activation kActivation>
HWY_INLINE Floats Act(Floats x, Floats limit) {
  const F32 d;
  if constexpr (kActivation == Activation::kSilu) return hn::Mul(x, Sigmoid(x));
  if constexpr (kActivation == Activation::kSigmoid) return Sigmoid(x);
  if constexpr (kActivation == Activation::kGelu) {
    // x Phi(x): the result has the relative error of the tail.
    const Floats tail = NormalTail(hn::Abs(x));
    const Floats below =
        hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
    return hn::Mul(x, below);
  }
  if constexpr (kActivation == Activation::kGeluTanh) {
    // GELU in its tanh form is x * sigmoid(2u), u = sqrt(2 / pi) (x + 0.044715 x^3): no
    // cancellation.
    const Floats cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(x, x)), x, x);
    return hn::Mul(x, Sigmoid(hn::Mul(hn::Set(d, 1.59576912f), cubic)));
  }
  if constexpr (kActivation == Activation::kRelu2) {
    const Floats positive = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Zero(d), x);
    return hn::Mul(positive, positive);
  }
  if constexpr (kActivation == Activation::kClampedSwiglu) {
    const Floats gate = hn::IfThenElse(hn::Gt(x, limit), limit, x);
    return hn::Mul(gate, Sigmoid(hn::Mul(hn::Set(d, 1.702f), gate)));
  }
}

// The factor that the activation of the gate is multiplied by.
template <Activation kActivation>
HWY_INLINE Floats Up(Floats x, Floats limit) {
  if constexpr (kActivation == Activation::kClampedSwiglu) {
    const F32 d;
    x = hn::IfThenElse(hn::Gt(x, limit), limit, x);
    x = hn::IfThenElse(hn::Lt(x, hn::Neg(limit)), hn::Neg(limit), x);
    return hn::Add(x, hn::Set(d, 1.0f));
  }
  return x;
}

template <Activation kActivation>
HWY_INLINE void ActivateRow(const float* gate, const float* up, float limit, float gate_scale,
                            int64_t width, float* out) {
  const F32 d;
  const Floats limits = hn::Set(d, limit), scale = hn::Set(d, gate_scale);
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    Floats value = Act<kActivation>(hn::Mul(scale, hn::LoadU(d, gate + i)), limits);
    if (up != nullptr) value = hn::Mul(value, Up<kActivation>(hn::LoadU(d, up + i), limits));
    hn::StoreU(value, d, out + i);
  }
  for (; i < width; ++i) {
    Floats value = Act<kActivation>(hn::Mul(scale, hn::Set(d, gate[i])), limits);
    if (up != nullptr) value = hn::Mul(value, Up<kActivation>(hn::Set(d, up[i]), limits));
    out[i] = hn::GetLane(value);
  }
}

template <Activation kActivation>
HWY_NOINLINE void ActivateRows(const ActivateParams& p, int64_t begin, int64_t end) {
  const int64_t stride = p.gated ? 2 * p.width : p.width;
  for (int64_t t = begin; t < end; ++t) {
    const float* gate = p.gate_up.f32() + t * stride;
    const float* up = p.gated           ? gate + p.width
                      : p.up == nullptr ? nullptr
                                        : p.up.f32() + t * p.up_stride;
    ActivateRow<kActivation>(gate, up, p.limit, p.gate_scale, p.width, p.out.f32() + t * p.width);
  }
}

// exp(x) - 1 - x for x <= 0. Near 0, where the difference cancels: its series, which is exact to
// the last bit of f32 above -0.5.
HWY_INLINE Floats ExpRest(Floats x) {
  const F32 d;
  Floats p = hn::Set(d, 1.0f / 362880);
  p = hn::MulAdd(p, x, hn::Set(d, 1.0f / 40320));
  p = hn::MulAdd(p, x, hn::Set(d, 1.0f / 5040));
  p = hn::MulAdd(p, x, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, x, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, x, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, x, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, x, hn::Set(d, 0.5f));
  const Floats near = hn::Mul(p, hn::Mul(x, x));
  const Floats far = hn::Sub(hn::Sub(Exp(x), hn::Set(d, 1.0f)), x);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, -0.5f)), near, far);
}

HWY_INLINE Floats Xielu(Floats x, const XieluParams& p) {
  const F32 d;
  const Floats linear = hn::Set(d, p.linear), min = hn::Set(d, p.min);
  const Floats above = hn::Mul(hn::MulAdd(hn::Set(d, p.positive), x, linear), x);
  const Floats least = hn::IfThenElse(hn::Lt(x, min), x, min);
  const Floats rest = hn::Add(ExpRest(least), hn::Sub(least, x));
  const Floats below = hn::MulAdd(hn::Set(d, p.negative), rest, hn::Mul(linear, x));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), above, below);
}

HWY_NOINLINE void ActivateXielu(const ActivateParams& p, int64_t begin, int64_t end) {
  const F32 d;
  const Floats scale = hn::Set(d, p.gate_scale);
  for (int64_t t = begin; t < end; ++t) {
    const float* const x = p.gate_up.f32() + t * p.width;
    float* const out = p.out.f32() + t * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes) {
      hn::StoreU(Xielu(hn::Mul(scale, hn::LoadU(d, x + i)), p.xielu), d, out + i);
    }
    for (; i < p.width; ++i) {
      out[i] = hn::GetLane(Xielu(hn::Mul(scale, hn::Set(d, x[i])), p.xielu));
    }
  }
}

void ActivateTokens(const ActivateParams& p, int64_t begin, int64_t end) {
  switch (p.activation) {
    case Activation::kSilu:
      return ActivateRows<Activation::kSilu>(p, begin, end);
    case Activation::kGelu:
      return ActivateRows<Activation::kGelu>(p, begin, end);
    case Activation::kGeluTanh:
      return ActivateRows<Activation::kGeluTanh>(p, begin, end);
    case Activation::kRelu2:
      return ActivateRows<Activation::kRelu2>(p, begin, end);
    case Activation::kClampedSwiglu:
      return ActivateRows<Activation::kClampedSwiglu>(p, begin, end);
    case Activation::kSigmoid:
      return ActivateRows<Activation::kSigmoid>(p, begin, end);
    case Activation::kXielu:
      return ActivateXielu(p, begin, end);
  }
}

HWY_INLINE Floats Softcap(Floats x, Floats cap) { return hn::Mul(cap, Tanh(hn::Div(x, cap))); }

// Ranges may begin anywhere, so the remainder goes through the same vector functions: a result does
// not depend on a value's index.
void SoftcapValues(const SoftcapParams& p, int64_t begin, int64_t end) {
  const F32 d;
  const Floats cap = hn::Set(d, p.cap);
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    hn::StoreU(Softcap(hn::LoadU(d, p.values + i), cap), d, p.values + i);
  }
  for (; i < end; ++i) {
    p.values[i] = hn::GetLane(Softcap(hn::Set(d, p.values[i]), cap));
  }
}

// Like Softcap's, the remainder goes through vector functions.
HWY_INLINE Floats Clamp(Floats x, Floats low, Floats high) {
  x = hn::IfThenElse(hn::Lt(x, low), low, x);
  return hn::IfThenElse(hn::Gt(x, high), high, x);
}

void ClampValues(const ClampParams& p, int64_t begin, int64_t end) {
  const F32 d;
  const Floats low = hn::Set(d, p.low), high = hn::Set(d, p.high);
  float* const values = p.values.f32();
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    hn::StoreU(Clamp(hn::LoadU(d, values + i), low, high), d, values + i);
  }
  for (; i < end; ++i) values[i] = hn::GetLane(Clamp(hn::Set(d, values[i]), low, high));
}

void MixRowsOf(const MixRowsParams& p, int64_t begin, int64_t end) {
  const F32 d;
  const float* const x = p.x.f32();
  for (int64_t row = begin; row < end; ++row) {
    const int32_t* rows = p.rows + row * p.num_per_row;
    const float* shares = p.shares + row * p.num_per_row;
    float* out = p.out.f32() + row * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes) {
      Floats sum = hn::Zero(d);
      for (int32_t k = 0; k < p.num_per_row; ++k) {
        sum = hn::MulAdd(hn::Set(d, shares[k]), hn::LoadU(d, x + rows[k] * p.width + i), sum);
      }
      hn::StoreU(sum, d, out + i);
    }
    for (; i < p.width; ++i) {
      float sum = 0;
      for (int32_t k = 0; k < p.num_per_row; ++k) sum += shares[k] * x[rows[k] * p.width + i];
      out[i] = sum;
    }
  }
}

void CombineTokens(const CombineExpertsParams& p, int64_t begin, int64_t end) {
  const F32 d;
  for (int64_t t = begin; t < end; ++t) {
    const float* x = p.x.f32() + t * p.num_chosen * p.width;
    const float* shares = p.shares + t * p.num_chosen;
    const float* shared = p.shared == nullptr ? nullptr : p.shared.f32() + t * p.width;
    float gate = 1;
    if (p.shared_gate != nullptr) {
      gate = hn::GetLane(Sigmoid(hn::Set(d, p.shared_gate[t])));
    }
    float* out = p.out.f32() + t * p.width;
    int64_t i = 0;
    for (; i + kLanes <= p.width; i += kLanes) {
      Floats sum = hn::Zero(d);
      for (int32_t k = 0; k < p.num_chosen; ++k) {
        sum = hn::MulAdd(hn::Set(d, shares[k]), hn::LoadU(d, x + k * p.width + i), sum);
      }
      if (shared != nullptr) sum = hn::MulAdd(hn::Set(d, gate), hn::LoadU(d, shared + i), sum);
      hn::StoreU(sum, d, out + i);
    }
    for (; i < p.width; ++i) {
      float sum = 0;
      for (int32_t k = 0; k < p.num_chosen; ++k) sum += shares[k] * x[k * p.width + i];
      if (shared != nullptr) sum += gate * shared[i];
      out[i] = sum;
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

HWY_INLINE void NormalizeHead(float* head, const float* norm, int64_t width, float eps) {
  NormalizeRms(head, norm, width, MeanSquare(head, width), eps, head);
}

// Normalises and rotates a query or key head, in the order that `norm_last` gives.
HWY_INLINE void TurnHead(const RopeKvWriteParams& p, int64_t position, const float* norm,
                         float* head) {
  const int64_t half = p.cos == nullptr ? 0 : p.rotary_dim / 2;
  if (norm != nullptr && !p.norm_last) NormalizeHead(head, norm, p.head_dim, p.norm_eps);
  if (half > 0) Rotate(head, p.cos + position * half, p.sin + position * half, half);
  if (norm != nullptr && p.norm_last) NormalizeHead(head, norm, p.head_dim, p.norm_eps);
}

void RopeKvWriteTokens(const RopeKvWriteParams& p, WriteKv write, int64_t begin, int64_t end) {
  const int64_t token_width = p.token_width();
  for (int64_t t = begin; t < end; ++t) {
    float* token = p.qkv.f32() + t * token_width;
    const int64_t position = p.positions[t];
    for (int64_t h = 0; h < p.num_heads + p.num_kv_heads; ++h) {
      TurnHead(p, position, h < p.num_heads ? p.q_norm : p.k_norm, token + h * p.head_dim);
    }
    if (p.query_scale != nullptr) {
      Scale(token, p.query_scale[position], int64_t{p.num_heads} * p.head_dim);
    }
    if (p.num_kv_heads > 0) write(p, t);
  }
}

ElementwiseKernels GetElementwise() {
  return {NormTokens,    ActivateTokens,      RopeKvWriteTokens, SoftcapValues,
          CombineTokens, MeanSquaresOfTokens, MixRowsOf,         ClampValues};
}

}  // namespace elementwise
}  // namespace HWY_NAMESPACE
}  // namespace minisgl::cpu
HWY_AFTER_NAMESPACE();

#endif
