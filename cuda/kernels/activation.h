// Activations of N elements at a time, in the registers of a thread: of the elementwise kernel, and
// of products that end with one. The result of an element does not depend on N.
#pragma once

#include "device/device.h"
#include "minisgl/model_kinds.h"
#include "minisgl/ops_params.h"

namespace minisgl::cuda {

// sigmoid(x), or x * sigmoid(u), where u is x for SiLU, 1.702 x for the gate of GPT-OSS, and for
// GELU's tanh form twice the argument of tanh. No form cancels, and NaN stays NaN. The loops are
// separate so that the elements' chains of operations overlap. Neither GELU with the error function
// nor xIELU.
template <int N>
MINISGL_DEVICE void Activate(Activation activation, float (&x)[N]) {
  if (activation == Activation::kRelu2) {
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = x[i] < 0 ? 0 : x[i] * x[i];
    return;
  }
  float u[N];
  if (activation == Activation::kGeluTanh) {
    constexpr float kTwoSqrt2OverPi = 1.5957691216057308f;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      u[i] = kTwoSqrt2OverPi * (x[i] + 0.044715f * x[i] * x[i] * x[i]);
    }
  } else {
    const float factor = activation == Activation::kClampedSwiglu ? 1.702f : 1.0f;
#pragma unroll
    for (int i = 0; i < N; ++i) u[i] = factor * x[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    x[i] = (activation == Activation::kSigmoid ? 1.0f : x[i]) / (1.0f + device::Exp(-u[i]));
  }
}

// GELU with the error function.
template <int N>
MINISGL_DEVICE void ActivateExactGelu(float (&x)[N]) {
  constexpr float kSqrtHalf = 0.70710678118654752f;
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = 0.5f * x[i] * device::Erfc(-kSqrtHalf * x[i]);
}

// exp(x) - 1 - x for x <= 0. Near 0, where the difference cancels: its series, which is exact to
// the last bit of f32 above -0.5.
MINISGL_DEVICE float ExpRest(float x) {
  if (!(x > -0.5f)) return device::Exp(x) - 1 - x;
  float p = 1.0f / 362880;
  p = fmaf(p, x, 1.0f / 40320);
  p = fmaf(p, x, 1.0f / 5040);
  p = fmaf(p, x, 1.0f / 720);
  p = fmaf(p, x, 1.0f / 120);
  p = fmaf(p, x, 1.0f / 24);
  p = fmaf(p, x, 1.0f / 6);
  p = fmaf(p, x, 0.5f);
  return p * (x * x);
}

// kXielu. NaN stays NaN.
template <int N>
MINISGL_DEVICE void ActivateXielu(const XieluParams& p, float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float least = x[i] < p.min ? x[i] : p.min;
    const float rest = ExpRest(least) + (least - x[i]);
    x[i] = x[i] > 0 ? fmaf(p.positive, x[i], p.linear) * x[i]
                    : fmaf(p.negative, rest, p.linear * x[i]);
  }
}

// The first step of kClampedSwiglu.
template <int N>
MINISGL_DEVICE void ClampGated(float limit, bool gated, float (&gate)[N], float (&up)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    gate[i] = gate[i] > limit ? limit : gate[i];
    if (gated) up[i] = (up[i] > limit ? limit : up[i] < -limit ? -limit : up[i]) + 1;
  }
}

}  // namespace minisgl::cuda
