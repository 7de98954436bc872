// Inputs that are rounded to e4m3, against the rule of kernels/scaled_input.h in plain loops:
// alone, and behind norms and activations, whose bits are those of their own kernels.
#include "kernels/scaled_input.h"

#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

constexpr InputRounding kRoundings[] = {InputRounding::kToken, InputRounding::kTensor,
                                        InputRounding::kGroups};
constexpr int64_t kScaledWidths[] = {1, 8, 63, 64, 72, 127, 128, 136, 384, 1001, 4096, 8200, 16384};
constexpr float kFixedScale = 0.37f;

// The code whose number is nearest to `x`; of two as near, the even one.
uint8_t NearestCode(float x) {
  if (std::isnan(x)) return 0x7F;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const double size = std::min<double>(std::abs(x), 448);
  int best = 0;
  for (int code = 1; code < 0x7F; ++code) {
    const double now = std::abs(E4M3ToFloat(static_cast<uint8_t>(code)) - size);
    const double before = std::abs(E4M3ToFloat(static_cast<uint8_t>(best)) - size);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return sign | static_cast<uint8_t>(best);
}

TEST(ScaledInputTest, CodesAreTheNearest) {
  for (int code = 0; code < 256; ++code) {
    const float number = E4M3ToFloat(static_cast<uint8_t>(code));
    if (std::isnan(number)) continue;
    EXPECT_EQ(NearestCode(number), code);
  }
}

struct RoundedInputs {
  std::vector<uint8_t> codes;  // [rows, lines * 64]
  std::vector<float> scales;
};

int64_t NumLines(int64_t width) { return (width + 63) / 64; }
int64_t NumGroups(int64_t width) { return (width + 127) / 128; }
int64_t NumScales(InputRounding rounding, int64_t rows, int64_t width) {
  return rounding == InputRounding::kGroups ? rows * NumGroups(width) : rows;
}

// The rule for x [T, K].
RoundedInputs ExpectedInputs(InputRounding rounding, const CodeOrder& order,
                             std::span<const float> x, int64_t num_tokens, int64_t width) {
  const int64_t rows = RowsOfScaled(rounding, num_tokens), line_bytes = NumLines(width) * 64;
  RoundedInputs result;
  result.codes.resize(static_cast<size_t>(rows * line_bytes));
  result.scales.resize(static_cast<size_t>(NumScales(rounding, rows, width)));
  const int64_t unit = rounding == InputRounding::kGroups ? 128 : width;
  const int64_t main = num_tokens / 4 * 4;
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t begin = 0; begin < width; begin += unit) {
      const int64_t end = std::min(begin + unit, width);
      const auto at = [&](int64_t i) { return t < num_tokens ? x[t * width + i] : 0.0f; };
      float most = 0x1p-100f;
      for (int64_t i = begin; i < end; ++i) {
        if (std::abs(at(i)) > most) most = std::abs(at(i));
      }
      const bool is_fixed = rounding == InputRounding::kTensor;
      const float scale = is_fixed ? kFixedScale : most / 448.0f;
      const float inverse = is_fixed ? 1.0f / kFixedScale : 448.0f / most;
      int64_t place = t;
      if (rounding == InputRounding::kGroups) {
        const int64_t group = begin / 128;
        place = t < main ? group * main + t : NumGroups(width) * main + group * 4 + (t - main);
      }
      result.scales[place] = scale;
      for (int64_t i = begin; i < end; ++i) {
        int j = 0;
        const int64_t line = order.Line(static_cast<int>(i / 32), 2, &j);
        const int64_t to = line * 64 + i % 32 / 8 * 16 + j * 8 + i % 8;
        const float value = at(i);
        result.codes[t * line_bytes + to] = NearestCode(value * inverse);
      }
    }
  }
  return result;
}

// The device's memory of rounded inputs, with guards behind it.
class RoundedMemory {
 public:
  RoundedMemory(InputRounding rounding, const CodeOrder& order, int64_t num_tokens, int64_t width)
      : codes_(std::vector<uint8_t>(
            static_cast<size_t>(RowsOfScaled(rounding, num_tokens) * NumLines(width) * 64 + 16),
            0xA5)),
        scales_(DType::kF32, NumScales(rounding, RowsOfScaled(rounding, num_tokens), width)),
        input_{.rounding = rounding,
               .fixed_scale = kFixedScale,
               .num_in = static_cast<int32_t>(width),
               .num_lines = static_cast<int32_t>(NumLines(width)),
               .order = order,
               .codes = codes_.data(),
               .scales = scales_.f32()} {}

  const ScaledInput& input() const { return input_; }
  void Expect(const RoundedInputs& expected) {
    const std::vector<float> scales = scales_.values();
    ASSERT_EQ(scales.size(), expected.scales.size());
    for (size_t i = 0; i < scales.size(); ++i) ASSERT_EQ(scales[i], expected.scales[i]) << i;
    for (size_t i = 0; i < expected.codes.size(); ++i) {
      ASSERT_EQ(codes_.data()[i], expected.codes[i]) << i;
    }
    for (size_t i = 0; i < 16; ++i) ASSERT_EQ(codes_.data()[expected.codes.size() + i], 0xA5);
    EXPECT_TRUE(scales_.GuardsIntact());
  }

 private:
  DeviceArray<uint8_t> codes_;
  DeviceOutput scales_;
  ScaledInput input_;
};

std::string ScaledName(DType dtype, InputRounding rounding, int64_t tokens, int64_t width) {
  return std::string(DTypeName(dtype)) + " rounding " + std::to_string(static_cast<int>(rounding)) +
         " " + std::to_string(tokens) + "x" + std::to_string(width);
}

template <typename F>
void ForAllInputs(const F& f) {
  for (const DType dtype : kHalfTypes) {
    for (const InputRounding rounding : kRoundings) {
      for (const int64_t width : kScaledWidths) {
        for (const int64_t tokens : {1, 4, 7}) {
          if (width > 1001 && tokens == 7) continue;
          SCOPED_TRACE(ScaledName(dtype, rounding, tokens, width));
          f(dtype, rounding, tokens, width);
        }
      }
    }
  }
}

TEST(ScaledInputTest, FollowsTheRule) {
  KernelDevice device;
  ForAllInputs([&](DType dtype, InputRounding rounding, int64_t tokens, int64_t width) {
    std::vector<float> values = RandomFloats(tokens * width, 1);
    // Large and small ones, and a group of zeros.
    for (size_t i = 0; i < values.size(); i += 5) values[i] *= 1000;
    for (size_t i = 0; i < std::min<size_t>(values.size(), 128); ++i) values[i] = 0;
    if (tokens > 1) values[static_cast<size_t>(width)] = kNan;
    const DeviceInput x(dtype, values);
    for (const CodeOrder& order : {CodeOrder{}, CodeOrder{.warps = 8, .run = 1}}) {
      if (order.warps > 1 && (width % 512 != 0 || rounding == InputRounding::kGroups)) continue;
      RoundedMemory memory(rounding, order, tokens, width);
      ASSERT_EQ(LaunchScaleInput(device.context, memory.input(), x.ptr(), tokens), kCudaSuccess);
      memory.Expect(ExpectedInputs(rounding, order, x.values(), tokens, width));
    }
  });
}

TEST(ScaledInputTest, ANormHasItsBitsAndIsRounded) {
  KernelDevice device;
  ForAllInputs([&](DType dtype, InputRounding rounding, int64_t tokens, int64_t width) {
    const DeviceInput weight(DType::kF32, RandomFloats(width, 2));
    const DeviceInput bias(DType::kF32, RandomFloats(width, 5));
    const DeviceInput x(dtype, RandomFloats(tokens * width, 3));
    for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
      DeviceOutput out(dtype, tokens * width);
      DeviceOutput alone(DType::kF32, RandomFloats(tokens * width, 4));
      DeviceOutput fused(DType::kF32, RandomFloats(tokens * width, 4));
      NormParams norm = {.x = x.ptr(),
                         .residual = alone.f32(),
                         .weight = weight.f32(),
                         .out = out.ptr(),
                         .num_tokens = tokens,
                         .width = width,
                         .eps = 1e-5f,
                         .kind = kind,
                         .bias = kind == NormKind::kLayer ? bias.f32() : nullptr};
      ASSERT_TRUE(NormTakesScaling(norm));
      ASSERT_EQ(LaunchNorm(device.context, norm), kCudaSuccess);
      const std::vector<float> normed = out.values();
      norm.residual = fused.f32();
      RoundedMemory memory(rounding, {}, tokens, width);
      ASSERT_EQ(LaunchScaledNorm(device.context, memory.input(), norm), kCudaSuccess);
      memory.Expect(ExpectedInputs(rounding, {}, normed, tokens, width));
      EXPECT_EQ(fused.values(), alone.values());
    }
  });
}

TEST(ScaledInputTest, AnActivationHasItsBitsAndIsRounded) {
  KernelDevice device;
  ForAllInputs([&](DType dtype, InputRounding rounding, int64_t tokens, int64_t width) {
    const DeviceInput gate_up(dtype, RandomFloats(tokens * 2 * width, 3));
    for (const Activation activation : {Activation::kSilu, Activation::kGelu}) {
      DeviceOutput alone(dtype, tokens * width), fused(dtype, tokens * width);
      ActivateParams params = {.gate_up = gate_up.ptr(),
                               .out = alone.ptr(),
                               .num_tokens = tokens,
                               .width = width,
                               .activation = activation};
      ASSERT_EQ(LaunchActivate(device.context, params), kCudaSuccess);
      params.out = fused.ptr();
      RoundedMemory memory(rounding, {}, tokens, width);
      ASSERT_EQ(LaunchScaledActivate(device.context, memory.input(), params), kCudaSuccess);
      EXPECT_EQ(fused.values(), alone.values());
      memory.Expect(ExpectedInputs(rounding, {}, alone.values(), tokens, width));
      EXPECT_TRUE(fused.GuardsIntact());
    }
  });
}

TEST(ScaledInputTest, NormsOfPartsOfATokenAreNotRounded) {
  DeviceOutput out(DType::kBF16, 64), wide(DType::kF32, 64);
  NormParams norm = {.x = nullptr,
                     .residual = nullptr,
                     .weight = nullptr,
                     .out = out.ptr(),
                     .num_tokens = 1,
                     .width = 64,
                     .eps = 0};
  EXPECT_TRUE(NormTakesScaling(norm));
  NormParams groups = norm, apart = norm, nothing = norm, floats = norm;
  groups.group_width = 32;
  apart.stride = 80;
  nothing.out = nullptr;
  floats.out = wide.ptr();
  for (const NormParams& other : {groups, apart, nothing, floats}) {
    EXPECT_FALSE(NormTakesScaling(other));
  }
}

}  // namespace
}  // namespace minisgl::cuda
