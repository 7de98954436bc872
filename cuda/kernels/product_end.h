// The steps after a product's sums: a bias, then an activation or an addition to the residual
// stream, and the rounding. A sum is rounded to the activations' type before it is activated or
// added, so that the bits are those of separate kernels.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/activation.h"
#include "kernels/kernels.h"
#include "minisgl/base/check.h"

namespace minisgl::cuda {

struct ProductEnd {
  const float* bias = nullptr;  // [N] or null
  void* out = nullptr;          // [T, N]; [T, num_pairs] if the activation is gated
  bool out_is_f32 = false;
  int num_out = 0;
  int64_t stride = 0;  // elements from token to token of `out`, or of `residual`
  bool activates = false;
  Activation activation = Activation::kSilu;
  float limit = 0;
  // If not 0, the activation is gated: rows [0, n) of the weights are gates, and rows [n, 2 n) the
  // values that they multiply.
  int num_pairs = 0;
  // [T, N]: sums, times residual_scale, are added to it; null: they go to `out`.
  float* residual = nullptr;
  float residual_scale = 1;

  // Elements of a token in `out`.
  MINISGL_HOST_DEVICE int width() const { return num_pairs > 0 ? num_pairs : num_out; }
};

// An end that a kernel is made for, so that it reads no choice from ProductEnd; kAny: any. All
// others have no bias.
enum class EndKind : uint8_t { kAny, kStore, kAdd, kGatedSilu };

// The kind that a product of x, and of outputs that have x's type unless out_is_f32, ends with.
inline EndKind KindOfEnd(const ProductEnd& end) {
  if (end.bias != nullptr) return EndKind::kAny;
  if (end.residual != nullptr) return end.activates ? EndKind::kAny : EndKind::kAdd;
  if (!end.activates) return end.out_is_f32 ? EndKind::kAny : EndKind::kStore;
  const bool silu = end.num_pairs > 0 && end.activation == Activation::kSilu;
  return silu ? EndKind::kGatedSilu : EndKind::kAny;
}

template <EndKind END = EndKind::kAny>
MINISGL_DEVICE bool IsGated(const ProductEnd& p) {
  return END == EndKind::kAny ? p.num_pairs > 0 : END == EndKind::kGatedSilu;
}

inline ProductEnd MakeProductEnd(const ProductParams& params) {
  const LinearParams& linear = params.linear;
  ProductEnd end = {.bias = linear.bias,
                    .out = linear.out.data,
                    .out_is_f32 = linear.out.dtype == DType::kF32,
                    .num_out = static_cast<int>(linear.weight->num_out),
                    .stride = linear.out_stride == 0 || params.residual != nullptr
                                  ? linear.weight->num_out
                                  : linear.out_stride,
                    .residual = params.residual,
                    .residual_scale = params.residual_scale};
  if (params.activation == nullptr) return end;
  MINISGL_CHECK(ProductTakesActivation(*params.activation), "an activation that ends no product");
  end.out = params.activation->out.data;
  end.out_is_f32 = false;
  end.activates = true;
  end.activation = params.activation->activation;
  end.limit = params.activation->limit;
  end.num_pairs = params.activation->gated ? static_cast<int>(params.activation->width) : 0;
  end.stride = end.width();
  return end;
}

// The row of the weights that is row `r` of a tile of ROWS. Rows past the last alias it; their
// results are not stored. If the activation is gated, the first half of a tile is gates, and the
// second half the values that they multiply.
template <int ROWS, EndKind END = EndKind::kAny>
MINISGL_DEVICE int RowOfTile(const ProductEnd& p, int tile, int r) {
  constexpr int kHalf = ROWS / 2;
  const bool plain = END == EndKind::kAny ? p.num_pairs == 0 : !IsGated<END>(p);
  if (plain) return min(tile * ROWS + r, p.num_out - 1);
  const bool is_gate = r < kHalf;
  return (is_gate ? 0 : p.num_pairs) +
         min(tile * kHalf + (is_gate ? r : r - kHalf), p.num_pairs - 1);
}

template <typename T>
MINISGL_DEVICE float Rounded(float x) {
  return device::ToFloat(device::FromFloat<T>(x));
}

// The sum of row `row` of the weights, as a separate kernel would store it.
MINISGL_DEVICE float AddBias(const ProductEnd& p, float sum, int row) {
  return p.bias != nullptr ? sum + p.bias[row] : sum;
}

// Stores element `at`. With gates, `sum` is the gate's sum and `up` the sum of the value that it
// multiplies; biases are added. `before`: the element of the residual stream, if the sum is added
// to it.
template <typename T, EndKind END = EndKind::kAny>
MINISGL_DEVICE void StoreProduct(const ProductEnd& p, int64_t at, float sum, float up,
                                 float before) {
  if constexpr (END == EndKind::kAdd) {
    p.residual[at] = fmaf(p.residual_scale, Rounded<T>(sum), before);
    return;
  } else if constexpr (END != EndKind::kAny) {
    if constexpr (END == EndKind::kGatedSilu) {
      float gate[1] = {Rounded<T>(sum)};
      Activate(Activation::kSilu, gate);
      sum = Rounded<T>(up) * gate[0];
    }
    static_cast<T*>(p.out)[at] = device::FromFloat<T>(sum);
    return;
  }
  if (p.residual != nullptr) {
    p.residual[at] = fmaf(p.residual_scale, Rounded<T>(sum), before);
    return;
  }
  if (p.activates) {
    float gate[1] = {Rounded<T>(sum)}, factor[1] = {1};
    const bool gated = p.num_pairs > 0;
    if (gated) factor[0] = Rounded<T>(up);
    if (p.activation == Activation::kClampedSwiglu) ClampGated(p.limit, gated, gate, factor);
    Activate(p.activation, gate);
    sum = factor[0] * gate[0];
  }
  if (p.out_is_f32) {
    static_cast<float*>(p.out)[at] = sum;
  } else {
    static_cast<T*>(p.out)[at] = device::FromFloat<T>(sum);
  }
}

}  // namespace minisgl::cuda
