// Small matrices of codes of 4 bits, and kernels that read them.
#pragma once

#include <vector>

#include "kernel_check.h"
#include "kernels/coded_rows.h"
#include "kernels/scaled_input.h"

namespace minisgl::cuda {

// A matrix whose codes and scales are all the same; its numbers are looked up.
class CodesScene {
 public:
  CodesScene(int64_t num_out, int64_t num_in, DType scale_type)
      : codes_(std::vector<uint8_t>(static_cast<size_t>(num_out * num_in / 2), 0x21)),
        scales_(std::vector<uint8_t>(
            static_cast<size_t>(num_out * num_in / kCodeGroup) * DTypeBytes(scale_type), 0x3C)),
        matrix_{.num_out = num_out,
                .num_in = num_in,
                .dtype = DType::kBF16,
                .storage = nullptr,
                .quantization = Quantization::kStored} {
    constexpr int kLineInputs = 128;
    MINISGL_CHECK(num_in % kLineInputs == 0, "rows of {} inputs", num_in);
    rows_ = {.codes = codes_.data(),
             .scales = scales_.data(),
             .kind = RowCodes::kTable4,
             .scale_kind = GroupScales::kStored,
             .scale_type = scale_type,
             .num_in = static_cast<int32_t>(num_in),
             .num_lines = static_cast<int32_t>(num_in / kLineInputs),
             .num_groups = static_cast<int32_t>(num_in / kCodeGroup),
             .group_inputs = kCodeGroup,
             .group_shift = 5};
    for (int i = 0; i < kCodeNumbers; ++i) rows_.numbers[i] = static_cast<float>(i * i);
  }
  const CodedRows& rows() const { return rows_; }
  const Matrix& matrix() const { return matrix_; }

 private:
  DeviceArray<uint8_t> codes_, scales_;
  Matrix matrix_;
  CodedRows rows_;
};

// The norm of a stream, which the next kernel reads.
class NormScene {
 public:
  explicit NormScene(int64_t width)
      : stream_(DType::kF32, std::vector<float>(static_cast<size_t>(width), 1.0f)),
        out_(DType::kBF16, width) {}
  ActivationPtr Run(const LaunchContext& context) {
    EXPECT_EQ(LaunchNorm(context, {.x = nullptr,
                                   .residual = stream_.f32(),
                                   .weight = nullptr,
                                   .out = out_.ptr(),
                                   .num_tokens = 1,
                                   .width = out_.size(),
                                   .eps = 0}),
              kCudaSuccess);
    return out_.ptr();
  }

 private:
  DeviceOutput stream_, out_;
};

// A product behind the kernel that writes its x.
inline void RunCodesProduct(int64_t num_in, DType scale_type) {
  const CodesScene codes(8, num_in, scale_type);
  NormScene norm(num_in);
  DeviceOutput out(DType::kBF16, 8);
  KernelDevice device;
  const ActivationPtr x = norm.Run(device.context);
  EXPECT_EQ(LaunchGemvCodes(device.context,
                            {.linear = {.x = x,
                                        .weight = &codes.matrix(),
                                        .bias = nullptr,
                                        .out = out.ptr(),
                                        .num_tokens = 1}},
                            codes.rows(), 0, 8),
            kCudaSuccess);
}

// A product of a few tokens by tiles, behind the kernel that writes their x.
inline void RunCodeTiles() {
  constexpr int64_t kOut = 64, kIn = 128;
  const CodesScene codes(kOut, kIn, DType::kF32);
  NormScene norm(kIn);
  DeviceOutput out(DType::kBF16, kOut);
  KernelDevice device;
  const ActivationPtr x = norm.Run(device.context);
  EXPECT_EQ(
      LaunchCodeTiles(
          device.context,
          {.x = x, .weight = &codes.matrix(), .bias = nullptr, .out = out.ptr(), .num_tokens = 1},
          codes.rows(), 0, kOut),
      kCudaSuccess);
}

inline void RunExpertCodes() {
  constexpr int64_t kOut = 64, kIn = 128;
  const CodesScene codes(2 * kOut, kIn, DType::kF32);
  NormScene norm(kIn);
  const DeviceArray<int32_t> chosen(std::vector<int32_t>{1});
  DeviceOutput out(DType::kBF16, kOut);
  const DeviceLimits limits = {.max_tokens = 1, .num_experts = 2, .num_chosen = 1};
  DeviceArray<unsigned char> lists(std::vector<unsigned char>(ExpertWorkspaceBytes(limits)));
  const ExpertMatrices matrices = {
      .num_experts = 2, .num_out = kOut, .num_in = kIn, .dtype = DType::kBF16, .storage = nullptr};
  KernelDevice device;
  const ActivationPtr x = norm.Run(device.context);
  EXPECT_EQ(LaunchExpertCodes(device.context,
                              {.x = x,
                               .weights = &matrices,
                               .bias = nullptr,
                               .experts = chosen.data(),
                               .out = out.ptr(),
                               .num_tokens = 1,
                               .num_chosen = 1,
                               .x_per_choice = false},
                              codes.rows(), {.memory = lists.data(), .limits = limits}),
            kCudaSuccess);
}

// Rows that are expanded, read as the inputs of an activation, and expanded again to the same
// place.
inline void RunExpandedCodes() {
  constexpr int64_t kOut = 8, kIn = 128;
  const CodesScene codes(kOut, kIn, DType::kF32);
  DeviceOutput expanded(DType::kBF16, kOut * kIn), out(DType::kBF16, kOut * kIn / 2);
  KernelDevice device;
  const auto expand = [&] {
    EXPECT_EQ(
        LaunchExpandCodes(device.context, codes.rows(), 0, kOut, DType::kBF16, expanded.ptr().data),
        kCudaSuccess);
  };
  expand();
  EXPECT_EQ(LaunchActivate(device.context, {.gate_up = expanded.ptr(),
                                            .out = out.ptr(),
                                            .num_tokens = kOut,
                                            .width = kIn / 2,
                                            .activation = Activation::kSilu}),
            kCudaSuccess);
  expand();
}

// Rounded inputs of what a norm wrote, of an activation of that, and of a norm of the activation,
// and codes in order that are overwritten behind a kernel that reads them.
inline void RunScaledInputs() {
  constexpr int64_t kWidth = 128;
  NormScene norm(kWidth);
  DeviceArray<uint8_t> codes(static_cast<size_t>(kWidth)), lines(static_cast<size_t>(2 * kWidth));
  DeviceOutput scales(DType::kF32, 4), gated(DType::kBF16, kWidth / 2);
  KernelDevice device;
  const auto input = [&](int64_t width) {
    return ScaledInput{.num_in = static_cast<int32_t>(width),
                       .num_lines = static_cast<int32_t>(width / 64),
                       .codes = codes.data(),
                       .scales = scales.f32()};
  };
  const ActivationPtr x = norm.Run(device.context);
  EXPECT_EQ(LaunchScaleInput(device.context, input(kWidth), x, 1), kCudaSuccess);
  EXPECT_EQ(LaunchScaledActivate(device.context, input(kWidth / 2),
                                 {.gate_up = x,
                                  .out = gated.ptr(),
                                  .num_tokens = 1,
                                  .width = kWidth / 2,
                                  .activation = Activation::kSilu}),
            kCudaSuccess);
  const auto run_norm = [&](const void* from) {
    return LaunchScaledNorm(device.context, input(kWidth / 2),
                            {.x = {from, DType::kBF16},
                             .residual = nullptr,
                             .weight = nullptr,
                             .out = gated.ptr(),
                             .num_tokens = 1,
                             .width = kWidth / 2,
                             .eps = 0});
  };
  EXPECT_EQ(run_norm(gated.ptr().data), kCudaSuccess);
  const CodedRows rows = {.codes = codes.data(),
                          .kind = RowCodes::kE4M3,
                          .num_in = static_cast<int32_t>(kWidth),
                          .num_lines = static_cast<int32_t>(kWidth / 64)};
  const auto copy = [&] {
    EXPECT_EQ(LaunchPlainLines(device.context, rows, 0, 1, lines.data()), kCudaSuccess);
  };
  copy();
  EXPECT_EQ(run_norm(lines.data()), kCudaSuccess);
  copy();
}

// Embeddings in place of others that a norm reads.
inline void RunCodedEmbedding() {
  constexpr int64_t kWidth = 128;
  const CodesScene codes(8, kWidth, DType::kF32);
  const DeviceArray<int32_t> ids(std::vector<int32_t>{3});
  DeviceOutput stream(DType::kF32, std::vector<float>(kWidth, 1.0f));
  DeviceOutput out(DType::kBF16, kWidth);
  KernelDevice device;
  EXPECT_EQ(LaunchNorm(device.context, {.x = nullptr,
                                        .residual = stream.f32(),
                                        .weight = nullptr,
                                        .out = out.ptr(),
                                        .num_tokens = 1,
                                        .width = kWidth,
                                        .eps = 0}),
            kCudaSuccess);
  EXPECT_EQ(LaunchCodedEmbedding(device.context,
                                 {.ids = ids.data(),
                                  .table = &codes.matrix(),
                                  .scale = 1,
                                  .out = stream.f32(),
                                  .num_tokens = 1},
                                 codes.rows(), DType::kBF16),
            kCudaSuccess);
}

}  // namespace minisgl::cuda
