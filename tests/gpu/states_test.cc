// Convolutions and recurrences of layers with a state on the device, against the oracle; the same
// bits for every cut of a sequence, of recurrences on a deterministic device. Times of prompts.
#include <fmt/core.h>

#include "gpu/gpu_fixture.h"
#include "kernels/states_check.h"
#include "slow.h"

namespace minisgl::cuda {
namespace {

// The rows of a step on the device.
struct GpuRows {
  GpuRows(DeviceOps* ops, const StateRows& rows)
      : spans(ops, rows.spans()), of_row(ops, rows.of_row()), num_rows(rows.num_rows()) {}
  StateSegments view() const {
    return {.spans = spans.as<StateSpan>(), .of_row = of_row.i32(), .num_rows = num_rows};
  }
  const GpuArray spans, of_row;
  const int32_t num_rows;
};

class GpuStatesTest : public GpuTest {
 protected:
  // Runs `scene` over consecutive steps of `rows`, from `slots`, and the whole twice.
  template <typename Scene>
  static StateResults RunScene(DeviceOps* ops, const Scene& scene,
                               const std::vector<StateRows>& steps,
                               const std::vector<float>& slots) {
    int64_t num_tokens = 0;
    for (const StateRows& rows : steps) num_tokens += rows.num_tokens();
    const GpuArray inputs(ops, scene.dtype, scene.Inputs(num_tokens));
    GpuArray states(ops, slots), out(ops, num_tokens * scene.out_width() * 2);
    const auto bytes = RunTwice(&out, scene.name(), [&] {
      states.Set(slots);
      int64_t first = 0;
      for (const StateRows& rows : steps) {
        const GpuRows device_rows(ops, rows);
        RunStep(ops, scene, num_tokens, first, rows.num_tokens(), inputs.ptr(scene.dtype),
                device_rows.view(), states.f32(),
                out.ptr(scene.dtype).At(first * scene.out_width()));
        const Status status = ops->Synchronize();
        ASSERT_TRUE(status.ok()) << status.message();
        first += rows.num_tokens();
      }
    });
    return {FloatsOf(scene.dtype, bytes), states.Read<float>()};
  }

  // Returns the time of one layer's recurrence, the mean of several runs.
  static double Microseconds(DeviceOps* ops, const RecurrenceScene& scene, const StateRows& rows) {
    constexpr int kRuns = 10;
    const int64_t num_tokens = rows.num_tokens();
    const GpuArray inputs(ops, scene.dtype, scene.Inputs(num_tokens));
    const GpuArray scalars(ops, scene.Scalars(num_tokens)), vectors(ops, scene.Vectors());
    const GpuArray states(ops, static_cast<size_t>(scene.slot_floats()) * sizeof(float));
    const GpuArray out(ops, static_cast<size_t>(num_tokens * scene.out_width()) * 2);
    const GpuRows device_rows(ops, rows);
    RecurrenceParams params =
        scene.Params(inputs.ptr(scene.dtype), scalars.f32(), vectors.f32(), num_tokens);
    params.states = states.f32();
    params.out = out.ptr(scene.dtype);
    params.segments = device_rows.view();
    auto begin = ops->MakeEvent(), end = ops->MakeEvent();
    MINISGL_CHECK(begin.ok() && end.ok(), "no events");
    ops->Recurrence(params);
    ops->Record(begin->get());
    for (int i = 0; i < kRuns; ++i) ops->Recurrence(params);
    ops->Record(end->get());
    EXPECT_TRUE(ops->Synchronize().ok());
    const auto ms = ops->ElapsedMs(begin->get(), end->get());
    MINISGL_CHECK(ms.ok(), "{}", ms.status().message());
    return *ms * 1000 / kRuns;
  }

 private:
  static void RunStep(DeviceOps* ops, const ConvScene& scene, int64_t, int64_t first, int64_t count,
                      ActivationPtr inputs, const StateSegments& segments, float* states,
                      ActivationPtr out) {
    const GpuArray weight(ops, scene.Weights()), bias(ops, scene.Bias());
    ShortConvParams params =
        scene.Params(inputs.At(first * scene.stride()), weight.f32(), bias.f32(), count);
    params.states = states;
    params.out = out;
    params.segments = segments;
    ops->ShortConv(params);
    EXPECT_TRUE(ops->Synchronize().ok());
  }
  static void RunStep(DeviceOps* ops, const RecurrenceScene& scene, int64_t num_tokens,
                      int64_t first, int64_t count, ActivationPtr inputs,
                      const StateSegments& segments, float* states, ActivationPtr out) {
    const GpuArray scalars(ops, scene.Scalars(num_tokens)), vectors(ops, scene.Vectors());
    RecurrenceParams params =
        scene.Params(inputs.At(first * scene.stride()),
                     scalars.f32() + first * scene.scalar_stride(), vectors.f32(), count);
    params.states = states;
    params.out = out;
    params.segments = segments;
    ops->Recurrence(params);
    EXPECT_TRUE(ops->Synchronize().ok());
  }
};

TEST_F(GpuStatesTest, ConvolutionsMatchTheOracle) {
  const auto ops = Make();
  for (const DType dtype : kHalfTypes) {
    std::vector<ConvScene> scenes = ConvScenes(dtype);
    if (!IsSlow()) scenes.push_back({dtype, 8192, 4, false, true, true, 64});
    for (const ConvScene& scene : scenes) {
      ExpectOracle(RunScene(ops.get(), scene, {MixedStateRows()}, scene.Slots()),
                   OracleOf(scene, MixedStateRows()), dtype, scene.name());
      if (HasFatalFailure()) return;
    }
  }
}

// At last with the sizes of Qwen3-Next, Nemotron-H and Falcon-H1.
TEST_F(GpuStatesTest, RecurrencesMatchTheOracle) {
  const auto ops = Make({.deterministic = true});
  for (const DType dtype : kHalfTypes) {
    std::vector<RecurrenceScene> scenes = RecurrenceScenes(dtype);
    if (!IsSlow()) {
      scenes.push_back({RecurrenceKind::kDelta, dtype, 32, 16, 128, 128, 0});
      scenes.push_back({RecurrenceKind::kMamba2, dtype, 128, 8, 128, 64, 0});
      scenes.push_back({RecurrenceKind::kMamba2, dtype, 24, 1, 256, 128, 0});
    }
    for (const RecurrenceScene& scene : scenes) {
      ExpectOracle(RunScene(ops.get(), scene, {MixedStateRows()}, scene.Slots()),
                   OracleOf(scene, MixedStateRows()), dtype, scene.name());
      if (HasFatalFailure()) return;
    }
  }
}

// The same by chunks, where rows are long.
TEST_F(GpuStatesTest, RecurrencesByChunksMatchTheOracle) {
  const auto ops = Make();
  for (const DType dtype : kHalfTypes) {
    std::vector<RecurrenceScene> scenes = ChunkScenes(dtype);
    if (!IsSlow()) {
      scenes.push_back({RecurrenceKind::kDelta, dtype, 32, 16, 128, 128, 0});
      scenes.push_back({RecurrenceKind::kMamba2, dtype, 128, 8, 128, 64, 0});
      scenes.push_back({RecurrenceKind::kMamba2, dtype, 24, 1, 256, 128, 0});
      scenes.push_back({RecurrenceKind::kDelta, dtype, 4, 1, 256, 192, 0});
    }
    for (const RecurrenceScene& scene : scenes) {
      ExpectOracle(RunScene(ops.get(), scene, {ChunkedStateRows()}, scene.Slots()),
                   OracleOf(scene, ChunkedStateRows()), dtype, scene.name(), ChunksError(dtype));
      if (HasFatalFailure()) return;
    }
  }
}

// A prompt by chunks and by steps: close results, and the time of each.
TEST_F(GpuStatesTest, PromptsByChunksAreThoseBySteps) {
  const auto chunks = Make(), steps = Make({.deterministic = true});
  const int32_t num_tokens = IsSlow() ? 70 : 4096;
  const int32_t heads = IsSlow() ? 2 : 32;
  StateRows rows;
  rows.Add(num_tokens, -1, 0);
  for (const auto& [kind, value_dim] :
       {std::pair(RecurrenceKind::kDelta, 128), std::pair(RecurrenceKind::kMamba2, 64)}) {
    const RecurrenceScene scene = {kind, DType::kBF16, heads, heads / 2, 128, value_dim, 0};
    const std::vector<float> zeros(static_cast<size_t>(scene.slot_floats()), 0.0f);
    const StateResults by_steps = RunScene(steps.get(), scene, {rows}, zeros);
    const StateResults by_chunks = RunScene(chunks.get(), scene, {rows}, zeros);
    // Outputs of both are rounded.
    ExpectWithin(
        by_chunks.out, by_steps.out,
        [&](size_t i) {
          return ChunksError(scene.dtype) * (1 + std::abs(by_steps.out[i])) +
                 RoundingError(scene.dtype, by_steps.out[i]) * 2.02;
        },
        scene.name());
    ExpectWithin(
        by_chunks.states, by_steps.states,
        [&](size_t i) { return ChunksError(scene.dtype) * (1 + std::abs(by_steps.states[i])); },
        scene.name() + ", states");
    if (IsSlow()) continue;
    fmt::print("{}: {} tokens by chunks in {:.0f} us, by steps in {:.0f} us\n", scene.name(),
               num_tokens, Microseconds(chunks.get(), scene, rows),
               Microseconds(steps.get(), scene, rows));
  }
}

// Steps of `cut` tokens. Slots alternate between 0 and 1.
std::vector<StateRows> StepsOf(const std::vector<int32_t>& cut) {
  std::vector<StateRows> steps;
  int32_t read = -1;
  for (const int32_t count : cut) {
    const int32_t write = read == 0 ? 1 : 0;
    steps.emplace_back();
    steps.back().Add(count, read, write);
    read = write;
  }
  return steps;
}

template <typename Test, typename Scene>
void ExpectSameBitsForEveryCut(const Test& run, const Scene& scene, int32_t num_tokens) {
  const int64_t slot = scene.slot_floats();
  const std::vector<float> zeros(static_cast<size_t>(2 * slot), 0.0f);
  const StateResults whole = run(scene, StepsOf({num_tokens}), zeros);
  for (const auto& cut : {std::vector<int32_t>{1, num_tokens - 1},
                          {num_tokens - 17, 16, 1},
                          {7, 5, num_tokens - 12}}) {
    const StateResults results = run(scene, StepsOf(cut), zeros);
    const int64_t last = cut.size() % 2 == 1 ? 0 : 1;
    ExpectSameBytes(results.out.data(), whole.out.data(), whole.out.size() * sizeof(float),
                    scene.name());
    ExpectSameBytes(results.states.data() + last * slot, whole.states.data(), slot * sizeof(float),
                    scene.name() + " state");
  }
}

TEST_F(GpuStatesTest, EveryCutOfASequenceGivesTheSameBits) {
  const auto ops = Make({.deterministic = true});
  const int32_t num_tokens = IsSlow() ? 40 : 1000;
  const auto run = [&](const auto& scene, const std::vector<StateRows>& steps,
                       const std::vector<float>& slots) {
    return RunScene(ops.get(), scene, steps, slots);
  };
  ExpectSameBitsForEveryCut(
      run, ConvScene{DType::kBF16, IsSlow() ? 64 : 4096, 4, false, true, true, 0}, num_tokens);
  ExpectSameBitsForEveryCut(
      run, ConvScene{DType::kF16, IsSlow() ? 64 : 2048, 3, true, false, false, 0}, num_tokens);
  for (const RecurrenceKind kind : {RecurrenceKind::kDelta, RecurrenceKind::kMamba2}) {
    const int32_t heads = IsSlow() ? 2 : 16;
    ExpectSameBitsForEveryCut(run, RecurrenceScene{kind, DType::kBF16, heads, 2, 128, 64, 0},
                              num_tokens);
  }
}

}  // namespace
}  // namespace minisgl::cuda
