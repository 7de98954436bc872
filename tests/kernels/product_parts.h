// A product with what stands before and behind it: run as one kernel, and as kernels of their own,
// which are tested against the oracle. Both have the same bits.
#pragma once

#include "kernel_check.h"

namespace minisgl::cuda {

struct PartsCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 1;
  int64_t num_out = 8;
  int64_t num_in = 32;
  bool has_bias = false;
  bool has_norm = false;
  bool activates = false, is_gated = true;
  Activation activation = Activation::kSilu;
  bool adds = false;
};

inline std::string Name(const PartsCase& c) {
  return std::string(DTypeName(c.dtype)) + " T" + std::to_string(c.num_tokens) + " " +
         std::to_string(c.num_out) + "x" + std::to_string(c.num_in) + (c.has_norm ? " norm" : "") +
         (c.activates ? " activation " + std::to_string(static_cast<int>(c.activation)) : "") +
         (c.is_gated ? "" : " not gated") + (c.adds ? " add" : "") + (c.has_bias ? " bias" : "");
}

// True: weights go through the ring of large matrices.
class ProductPartsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) device_.context.ring_bytes_min = 0;
  }

  // The memory of one product and its parts.
  struct Scene {
    explicit Scene(const PartsCase& c)
        : x(c.dtype, RandomFloats(c.num_tokens * c.num_in, 1)),
          stream(DType::kF32, RandomFloats(c.num_tokens * c.num_in, 2, 3.0)),
          norm_weight(DType::kF32, RandomFloats(c.num_in, 3)),
          weight(c.dtype, RandomFloats(c.num_out * c.num_in, 4, 2.0 / std::sqrt(c.num_in))),
          bias(DType::kF32, RandomFloats(c.num_out, 5)),
          normalised(c.dtype, c.num_tokens * c.num_in),
          product(c.dtype, c.num_tokens * c.num_out),
          activated(c.dtype, c.num_tokens * Width(c)),
          residual(DType::kF32, RandomFloats(c.num_tokens * c.num_out, 6)),
          matrix{.num_out = c.num_out, .num_in = c.num_in, .dtype = c.dtype, .storage = nullptr} {
      norm = {.x = nullptr,
              .residual = stream.f32(),
              .weight = norm_weight.f32(),
              .out = normalised.ptr(),
              .num_tokens = c.num_tokens,
              .width = c.num_in,
              .eps = 1e-5f};
      linear = {.x = c.has_norm ? ConstActivationPtr(normalised.ptr()) : x.ptr(),
                .weight = &matrix,
                .bias = c.has_bias ? bias.f32() : nullptr,
                .out = product.ptr(),
                .num_tokens = c.num_tokens};
      activation = {.gate_up = product.ptr(),
                    .out = activated.ptr(),
                    .num_tokens = c.num_tokens,
                    .width = Width(c),
                    .activation = c.activation,
                    .gated = c.is_gated,
                    .limit = 1.5f};
    }
    static int64_t Width(const PartsCase& c) { return c.is_gated ? c.num_out / 2 : c.num_out; }
    const DeviceOutput& Result(const PartsCase& c) const {
      return c.adds ? residual : c.activates ? activated : product;
    }
    bool GuardsIntact() const {
      return normalised.GuardsIntact() && product.GuardsIntact() && activated.GuardsIntact() &&
             residual.GuardsIntact() && stream.GuardsIntact();
    }

    DeviceInput x;
    DeviceOutput stream;
    DeviceInput norm_weight, weight, bias;
    DeviceOutput normalised, product, activated, residual;
    Matrix matrix;
    NormParams norm;
    LinearParams linear;
    ActivateParams activation;
  };

  // The parts one after another.
  void RunParts(const PartsCase& c, Scene* scene) {
    if (c.has_norm) {
      EXPECT_EQ(LaunchNorm(device_.context, scene->norm), kCudaSuccess);
    }
    EXPECT_EQ(Launch({.linear = scene->linear}, scene), kCudaSuccess);
    if (c.activates) {
      EXPECT_EQ(LaunchActivate(device_.context, scene->activation), kCudaSuccess);
    }
    if (!c.adds) return;
    EXPECT_EQ(LaunchNorm(device_.context, {.x = scene->product.ptr(),
                                           .residual = scene->residual.f32(),
                                           .weight = nullptr,
                                           .out = nullptr,
                                           .num_tokens = c.num_tokens,
                                           .width = c.num_out,
                                           .eps = 0,
                                           .x_scale = 0.75f}),
              kCudaSuccess);
  }

  void RunAsOne(const PartsCase& c, Scene* scene) {
    EXPECT_EQ(Launch({.linear = scene->linear,
                      .norm = c.has_norm ? &scene->norm : nullptr,
                      .activation = c.activates ? &scene->activation : nullptr,
                      .residual = c.adds ? scene->residual.f32() : nullptr,
                      .residual_scale = 0.75f},
                     scene),
              kCudaSuccess);
    EXPECT_TRUE(scene->GuardsIntact()) << Name(c);
  }

  void Check(const PartsCase& c) {
    Scene parts(c), one(c);
    RunParts(c, &parts);
    RunAsOne(c, &one);
    const DeviceOutput& expected = parts.Result(c);
    for (const float value : expected.values()) ASSERT_FALSE(std::isnan(value)) << Name(c);
    ExpectSameBytes(one.Result(c).data(), expected.data(), expected.num_bytes(), Name(c));
    // What lies between the parts is not written, nor is the stream that is normalised.
    for (const float value : one.normalised.values()) ASSERT_TRUE(std::isnan(value)) << Name(c);
    if (c.activates || c.adds) {
      for (const float value : one.product.values()) ASSERT_TRUE(std::isnan(value)) << Name(c);
    }
    ExpectSameBytes(one.stream.data(), parts.stream.data(), parts.stream.num_bytes(), Name(c));
  }

  CudaError Launch(const ProductParams& params, Scene* scene) {
    return LaunchGemv(device_.context, params, scene->weight.data());
  }

  KernelDevice device_;
};

}  // namespace minisgl::cuda
