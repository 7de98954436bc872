// Convolutions and recurrences of layers with a state, on the emulator: against the oracle; the
// same bits for every cut of a sequence and every grid; slots that no row writes stay.
#include "states_scene.h"

namespace minisgl::cuda {
namespace {

// With rows and tokens of padding after the last row.
template <typename Scene>
void ExpectOracleOn(const Scene& scene) {
  constexpr int32_t kPadding = 5;
  StateRows rows = MixedStateRows();
  rows.Pad(3);
  const int64_t num_tokens = rows.num_tokens() + kPadding;
  const StateResults expected = OracleOf(scene, MixedStateRows());
  // One block for many rows, and a block for each.
  for (const int num_multiprocessors : {1, 132}) {
    KernelDevice device;
    device.context.num_multiprocessors = num_multiprocessors;
    // The oracle's inputs are the first ones of these.
    Sequence sequence(scene, num_tokens, scene.Slots());
    sequence.Run(scene, rows, 0, num_tokens, device.context);
    ExpectOracle(sequence.Results(), expected, scene.dtype, scene.name());
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(StateKernelsTest, ConvolutionsMatchOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const ConvScene& scene : ConvScenes(dtype)) {
      ExpectOracleOn(scene);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(StateKernelsTest, RecurrencesMatchOracle) {
  for (const DType dtype : kHalfTypes) {
    for (const RecurrenceScene& scene : RecurrenceScenes(dtype)) {
      ExpectOracleOn(scene);
      if (HasFatalFailure()) return;
    }
  }
}

constexpr int64_t kCutTokens = 50;

// Slots alternate between 0 and 1; the state after 27 tokens is marked in slot 2 of the whole run.
template <typename Scene>
void ExpectSameBitsForEveryCut(const Scene& scene) {
  const int64_t slot = scene.slot_floats();
  const std::vector<float> unset(static_cast<size_t>(3 * slot), kNan);
  KernelDevice device;
  StateRows one;
  one.Add(27, -1, 2);
  one.Continue(kCutTokens - 27, 0);
  Sequence whole(scene, kCutTokens, unset);
  whole.Run(scene, one, 0, kCutTokens, device.context);
  const StateResults wanted = whole.Results();
  const std::vector<std::vector<int32_t>> cuts = {
      {49, 1}, {1, 49}, {16, 16, 18}, {1, 1, 25, 23}, std::vector<int32_t>(50, 1)};
  for (const auto& cut : cuts) {
    device.context.num_multiprocessors = std::ssize(cut) == 2 ? 1 : 132;
    Sequence sequence(scene, kCutTokens, unset);
    int64_t done = 0;
    int32_t read = -1;
    for (const int32_t count : cut) {
      const int32_t write = read == 0 ? 1 : 0;
      StateRows rows;
      rows.Add(count, read, write);
      sequence.Run(scene, rows, done, count, device.context);
      done += count;
      read = write;
      if (done != 27) continue;
      ExpectSameBytes(sequence.Results().states.data() + read * slot,
                      wanted.states.data() + 2 * slot, slot * sizeof(float),
                      scene.name() + " mark");
    }
    const StateResults results = sequence.Results();
    ExpectSameBytes(results.out.data(), wanted.out.data(), wanted.out.size() * sizeof(float),
                    scene.name());
    ExpectSameBytes(results.states.data() + read * slot, wanted.states.data(), slot * sizeof(float),
                    scene.name() + " state");
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(StateKernelsTest, EveryCutOfASequenceGivesTheSameConvolution) {
  for (const int64_t width : {5, 64}) {
    ExpectSameBitsForEveryCut(ConvScene{DType::kBF16, width, 4, width == 5, true, true, 0});
    ExpectSameBitsForEveryCut(ConvScene{DType::kF16, width, 3, width != 5, false, false, 0});
    ExpectSameBitsForEveryCut(ConvScene{DType::kBF16, width, 6, true, true, true, 8});
  }
}

TEST(StateKernelsTest, EveryCutOfASequenceGivesTheSameRecurrence) {
  for (const RecurrenceKind kind : {RecurrenceKind::kDelta, RecurrenceKind::kMamba2}) {
    ExpectSameBitsForEveryCut(RecurrenceScene{kind, DType::kBF16, 3, 1, 19, 21, 0});
    ExpectSameBitsForEveryCut(RecurrenceScene{kind, DType::kF16, 4, 2, 32, 32, 0});
    ExpectSameBitsForEveryCut(RecurrenceScene{kind, DType::kBF16, 1, 1, 136, 8, 0});
  }
}

// Steps of 1e-6 decay the state by as little: the softplus of a large negative number is its
// exponential, and not the rounding of 1.
TEST(StateKernelsTest, StepsFarBelowOneAreExact) {
  KernelDevice device;
  const std::vector<float> decay(1, -14.0f), vectors = {0, 1, 0};
  const DeviceInput x(DType::kBF16, std::vector<float>(3, 1.0f)), scalars(DType::kF32, decay),
      device_vectors(DType::kF32, vectors);
  std::vector<float> slots(2 * 16, 0.0f);
  DeviceOutput states(DType::kF32, slots), out(DType::kBF16, 1);
  StateRows rows;
  rows.Add(1, -1, 1);
  const DeviceRows device_rows(rows);
  const RecurrenceParams params = {.kind = RecurrenceKind::kMamba2,
                                   .query = x.ptr(),
                                   .key = x.ptr(),
                                   .value = x.ptr(),
                                   .stride = 1,
                                   .decay = scalars.f32(),
                                   .gain = nullptr,
                                   .scalar_stride = 1,
                                   .decay_bias = device_vectors.f32(),
                                   .decay_rate = device_vectors.f32() + 1,
                                   .skip = device_vectors.f32() + 2,
                                   .step_min = 0,
                                   .step_max = 1,
                                   .states = states.f32(),
                                   .out = out.ptr(),
                                   .segments = device_rows.view(),
                                   .num_tokens = 1,
                                   .num_heads = 1,
                                   .num_groups = 1,
                                   .key_dim = 1,
                                   .value_dim = 1};
  ASSERT_EQ(LaunchRecurrence(device.context, params, true), kCudaSuccess);
  EXPECT_NEAR(states.values()[16] / std::log1p(std::exp(-14.0)), 1, 1e-6);
}

}  // namespace
}  // namespace minisgl::cuda
