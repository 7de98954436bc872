// Layers with a state on the emulator: a sequence in memory of the device, run in steps.
#pragma once

#include <vector>

#include "states_check.h"

namespace minisgl::cuda {

// `rows` in memory of the device.
class DeviceRows {
 public:
  explicit DeviceRows(const StateRows& rows)
      : spans_(rows.spans()), of_row_(rows.of_row()), num_rows_(rows.num_rows()) {}
  StateSegments view() const {
    return {.spans = spans_.data(), .of_row = of_row_.data(), .num_rows = num_rows_};
  }

 private:
  const DeviceArray<StateSpan> spans_;
  const DeviceArray<int32_t> of_row_;
  const int32_t num_rows_;
};

// A sequence of `length` tokens in memory of the device, with its slots and outputs.
class Sequence {
 public:
  Sequence(const ConvScene& scene, int64_t length, std::vector<float> slots)
      : inputs_(scene.dtype, scene.Inputs(length)),
        scalars_(DType::kF32, {0}),
        states_(DType::kF32, slots),
        out_(scene.dtype, length * scene.width) {}
  Sequence(const RecurrenceScene& scene, int64_t length, std::vector<float> slots)
      : inputs_(scene.dtype, scene.Inputs(length)),
        scalars_(DType::kF32, scene.Scalars(length)),
        states_(DType::kF32, slots),
        out_(scene.dtype, length * scene.out_width()) {}

  // Tokens [first, first + num_tokens), of which `rows` have the first ones.
  void Run(const ConvScene& scene, const StateRows& rows, int64_t first, int64_t num_tokens,
           const LaunchContext& context) {
    const DeviceInput weight(DType::kF32, scene.Weights()), bias(DType::kF32, scene.Bias());
    const DeviceRows device_rows(rows);
    ShortConvParams params =
        scene.Params(InputsAt(first * scene.stride()), weight.f32(), bias.f32(), num_tokens);
    params.states = states_.f32();
    params.out = out_.ptr().At(first * scene.width);
    params.segments = device_rows.view();
    ASSERT_EQ(LaunchShortConv(context, params), kCudaSuccess);
  }
  void Run(const RecurrenceScene& scene, const StateRows& rows, int64_t first, int64_t num_tokens,
           const LaunchContext& context) {
    const DeviceInput vectors(DType::kF32, scene.Vectors());
    const DeviceRows device_rows(rows);
    RecurrenceParams params =
        scene.Params(InputsAt(first * scene.stride()),
                     scalars_.f32() + first * scene.scalar_stride(), vectors.f32(), num_tokens);
    params.states = states_.f32();
    params.out = out_.ptr().At(first * scene.out_width());
    params.segments = device_rows.view();
    ASSERT_EQ(LaunchRecurrence(context, params, !scene.by_chunks), kCudaSuccess);
  }
  StateResults Results() const {
    EXPECT_TRUE(out_.GuardsIntact());
    EXPECT_TRUE(states_.GuardsIntact());
    return {out_.values(), states_.values()};
  }

 private:
  ConstActivationPtr InputsAt(int64_t count) const {
    const ConstActivationPtr all = inputs_.ptr();
    return ActivationPtr(const_cast<void*>(all.data), all.dtype).At(count);
  }

  const DeviceInput inputs_, scalars_;
  DeviceOutput states_, out_;
};

}  // namespace minisgl::cuda
