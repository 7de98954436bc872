// The kernels of pictures on rows: placing and mixing of rows, bounds, and rotary tables of
// positions of three parts, against the oracle.
#include "kernel_check.h"

namespace minisgl::cuda {
namespace {

const int64_t kPictureWidths[] = {1, 7, 8, 96, 250, 1024, 1032};

TEST(PlaceRowsKernelTest, PlacesAndAdds) {
  KernelDevice device;
  const auto oracle = MakeNaiveOps();
  for (const int64_t width : kPictureWidths) {
    for (const int64_t gap : {0, 8, 3}) {
      for (const bool adds : {false, true}) {
        const int64_t stride = width + gap;
        const DeviceInput x(DType::kF32, RandomFloats(4 * stride + width, 1));
        DeviceOutput out(DType::kF32, RandomFloats(5 * width, 2));
        std::vector<float> expected = out.values();
        PlaceRowsParams params = {.x = x.values().data(),
                                  .x_stride = stride,
                                  .out = expected.data(),
                                  .out_stride = width,
                                  .num_rows = 5,
                                  .width = width,
                                  .adds = adds};
        oracle->PlaceRows(params);
        params.x = x.f32();
        params.out = out.f32();
        ASSERT_EQ(LaunchPlaceRows(device.context, params), kCudaSuccess);
        EXPECT_EQ(out.values(), expected) << width << " " << gap << " " << adds;
        EXPECT_TRUE(out.GuardsIntact());
      }
    }
  }
}

// One row for all, as zeros are placed.
TEST(PlaceRowsKernelTest, AStrideOfNothing) {
  KernelDevice device;
  const DeviceInput x(DType::kF32, std::vector<float>(40, 0.0f));
  DeviceOutput out(DType::kF32, int64_t{120});
  ASSERT_EQ(LaunchPlaceRows(device.context, {.x = x.f32(),
                                             .x_stride = 0,
                                             .out = out.f32(),
                                             .out_stride = 40,
                                             .num_rows = 3,
                                             .width = 40}),
            kCudaSuccess);
  EXPECT_EQ(out.values(), std::vector<float>(120, 0.0f));
}

TEST(MixRowsKernelTest, MatchesOracle) {
  KernelDevice device;
  const auto oracle = MakeNaiveOps();
  const std::vector<int32_t> rows = {0, 2, 1, 1, 2, 0};
  const std::vector<float> shares = {1, 0.5f, 0.25f, 0.75f, -1, 2};
  const DeviceArray<int32_t> device_rows(rows);
  const DeviceArray<float> device_shares(shares);
  for (const DType dtype : kAllTypes) {
    for (const int64_t width : kPictureWidths) {
      for (const int32_t num_per_row : {1, 2, 3}) {
        const int64_t num_rows = 6 / num_per_row;
        const DeviceInput x(dtype, RandomFloats(3 * width, 7));
        DeviceOutput out(dtype, num_rows * width);
        std::vector<float> expected(static_cast<size_t>(num_rows * width));
        MixRowsParams params = {.x = x.values().data(),
                                .rows = rows.data(),
                                .shares = shares.data(),
                                .out = expected.data(),
                                .num_rows = num_rows,
                                .width = width,
                                .num_per_row = num_per_row};
        oracle->MixRows(params);
        params.x = x.ptr();
        params.rows = device_rows.data();
        params.shares = device_shares.data();
        params.out = out.ptr();
        ASSERT_EQ(LaunchMixRows(device.context, params), kCudaSuccess);
        ExpectWithin(
            out.values(), expected,
            [&](size_t i) { return RoundingError(dtype, expected[i]) + 40 * 0x1.0p-24; },
            std::string(DTypeName(dtype)) + " " + std::to_string(width));
        EXPECT_TRUE(out.GuardsIntact());
      }
    }
  }
}

TEST(ClampKernelTest, BoundsAndNan) {
  KernelDevice device;
  for (const DType dtype : kAllTypes) {
    for (const int64_t count : {1, 8, 41, 2050}) {
      std::vector<float> values = RandomFloats(count, 3, 4.0);
      values[0] = kNan;
      DeviceOutput out(dtype, values);
      std::vector<float> expected = out.values();
      MakeNaiveOps()->Clamp({expected.data(), count, -1.5f, 2});
      ASSERT_EQ(LaunchClamp(device.context, {out.ptr(), count, -1.5f, 2}), kCudaSuccess);
      ExpectWithin(
          out.values(), expected, [](size_t) { return 0.0; }, DTypeName(dtype));
      EXPECT_TRUE(out.GuardsIntact());
    }
  }
}

TEST(MixRotaryKernelTest, MatchesOracle) {
  KernelDevice device;
  const auto oracle = MakeNaiveOps();
  for (const int32_t half : {3, 16, 64, 150}) {
    const int32_t third = half / 3;
    const std::array<int32_t, 3> sections = {half - 2 * third, third, third};
    const DeviceInput cos(DType::kF32, RandomFloats(int64_t{20} * half, 1));
    const DeviceInput sin(DType::kF32, RandomFloats(int64_t{20} * half, 2));
    const std::vector<RopePosition> positions = {{0, 0, 0}, {3, 19, 7}, {19, 1, 2}, {5, 5, 6}};
    const DeviceArray<RopePosition> device_positions(positions);
    for (const bool mixed : {false, true}) {
      DeviceOutput out_cos(DType::kF32, int64_t{4} * half), out_sin(DType::kF32, int64_t{4} * half);
      std::vector<float> expected_cos(static_cast<size_t>(4 * half)), expected_sin = expected_cos;
      MixRotaryParams params = {.cos = cos.values().data(),
                                .sin = sin.values().data(),
                                .out_cos = expected_cos.data(),
                                .out_sin = expected_sin.data(),
                                .positions = positions.data(),
                                .num_tokens = 4,
                                .half = half,
                                .sections = sections,
                                .mixed = mixed};
      oracle->MixRotary(params);
      params.cos = cos.f32();
      params.sin = sin.f32();
      params.out_cos = out_cos.f32();
      params.out_sin = out_sin.f32();
      params.positions = device_positions.data();
      ASSERT_EQ(LaunchMixRotary(device.context, params), kCudaSuccess);
      EXPECT_EQ(out_cos.values(), expected_cos) << half << " " << mixed;
      EXPECT_EQ(out_sin.values(), expected_sin) << half << " " << mixed;
      EXPECT_TRUE(out_cos.GuardsIntact() && out_sin.GuardsIntact());
    }
  }
}

}  // namespace
}  // namespace minisgl::cuda
