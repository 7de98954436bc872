// The products of a decoder's layer behind attention, to be run as one chain or one by one.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernel_check.h"
#include "kernels/gemv_chain.h"

namespace minisgl::cuda {

struct ChainCase {
  DType dtype = DType::kBF16;
  int64_t num_tokens = 1;
  int64_t attention = 64, hidden = 64, intermediate = 72, qkv = 48;  // widths
  bool has_bias = false;
};

inline std::string Name(const ChainCase& c) {
  return std::string(DTypeName(c.dtype)) + " T" + std::to_string(c.num_tokens) + " " +
         std::to_string(c.attention) + " " + std::to_string(c.hidden) + " " +
         std::to_string(c.intermediate) + " " + std::to_string(c.qkv) + (c.has_bias ? " bias" : "");
}

// Adds x's product to the stream, activates that of its norm, adds the product of this to the
// stream, and multiplies its norm again.
class ChainScene {
 public:
  explicit ChainScene(const ChainCase& c)
      : case_(c),
        x_(c.dtype, RandomFloats(c.num_tokens * c.attention, 1)),
        norm_weight_(DType::kF32, RandomFloats(c.hidden, 2)),
        bias_(DType::kF32, RandomFloats(c.qkv, 3)),
        stream_(DType::kF32, RandomFloats(c.num_tokens * c.hidden, 4)),
        normalised_(c.dtype, c.num_tokens * c.hidden),
        gate_up_(c.dtype, c.num_tokens * 2 * c.intermediate),
        gated_(c.dtype, c.num_tokens * c.intermediate),
        qkv_(c.dtype, c.num_tokens * c.qkv) {
    const int64_t shapes[][2] = {{c.hidden, c.attention},
                                 {2 * c.intermediate, c.hidden},
                                 {c.hidden, c.intermediate},
                                 {c.qkv, c.hidden}};
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const auto [num_out, num_in] = shapes[i];
      weights_.emplace_back(c.dtype, RandomFloats(num_out * num_in, 5 + i, 2 / std::sqrt(num_in)));
      matrices_[i] = {.num_out = num_out,
                      .num_in = num_in,
                      .dtype = c.dtype,
                      .storage = std::shared_ptr<const void>(std::shared_ptr<const void>(),
                                                             weights_[i].data())};
    }
    norm_ = {.x = nullptr,
             .residual = stream_.f32(),
             .weight = norm_weight_.f32(),
             .out = normalised_.ptr(),
             .num_tokens = c.num_tokens,
             .width = c.hidden,
             .eps = 1e-5f};
    activation_ = {.gate_up = gate_up_.ptr(),
                   .out = gated_.ptr(),
                   .num_tokens = c.num_tokens,
                   .width = c.intermediate,
                   .activation = Activation::kSilu,
                   .gated = true};
  }
  ChainScene(const ChainScene&) = delete;

  // `has_norm`: the norms are of the products.
  std::vector<ProductParams> Products(bool has_norm) {
    const auto linear = [&](size_t i, ConstActivationPtr x, ActivationPtr out,
                            const float* bias = nullptr) {
      return LinearParams{.x = x,
                          .weight = &matrices_[i],
                          .bias = bias,
                          .out = out,
                          .num_tokens = case_.num_tokens};
    };
    const NormParams* const norm = has_norm ? &norm_ : nullptr;
    return {
        {.linear = linear(0, x_.ptr(), normalised_.ptr()), .residual = stream_.f32()},
        {.linear = linear(1, normalised_.ptr(), gate_up_.ptr()),
         .norm = norm,
         .activation = &activation_},
        {.linear = linear(2, gated_.ptr(), normalised_.ptr()),
         .residual = stream_.f32(),
         .residual_scale = 0.75f},
        {.linear = linear(3, normalised_.ptr(), qkv_.ptr(), case_.has_bias ? bias_.f32() : nullptr),
         .norm = norm}};
  }

  void RunAsChain(const LaunchContext& context, uint32_t* arrived) {
    const std::vector<ProductParams> products = Products(/*has_norm=*/true);
    EXPECT_EQ(LaunchGemvChain(context, products, arrived), kCudaSuccess);
  }
  void RunOneByOne(const LaunchContext& context) {
    const std::vector<ProductParams> products = Products(/*has_norm=*/false);
    for (size_t i = 0; i < products.size(); ++i) {
      if (i % 2 == 1) {
        EXPECT_EQ(LaunchNorm(context, norm_), kCudaSuccess);
      }
      EXPECT_EQ(LaunchGemv(context, products[i], weights_[i].data()), kCudaSuccess);
    }
  }

  bool GuardsIntact() const {
    return stream_.GuardsIntact() && gated_.GuardsIntact() && qkv_.GuardsIntact() &&
           normalised_.GuardsIntact() && gate_up_.GuardsIntact();
  }
  const DeviceOutput& stream() const { return stream_; }
  const DeviceOutput& gated() const { return gated_; }
  const DeviceOutput& qkv() const { return qkv_; }
  // What writes x, for a kernel that comes before the chain.
  ActivationPtr x() const { return {const_cast<void*>(x_.data()), case_.dtype}; }

 private:
  const ChainCase case_;
  DeviceInput x_, norm_weight_, bias_;
  DeviceOutput stream_, normalised_, gate_up_, gated_, qkv_;
  std::deque<DeviceInput> weights_;
  std::array<Matrix, 4> matrices_;
  NormParams norm_;
  ActivateParams activation_;
};

}  // namespace minisgl::cuda
