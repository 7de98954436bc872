// Recurrences by chunks of tokens on the emulator: against the oracle, with rows by steps beside
// them; the same bits for every grid and beside any other rows.
#include "states_scene.h"

namespace minisgl::cuda {
namespace {

StateResults RunRows(const RecurrenceScene& scene, const StateRows& rows, int num_multiprocessors) {
  KernelDevice device;
  device.context.num_multiprocessors = num_multiprocessors;
  Sequence sequence(scene, rows.num_tokens(), scene.Slots());
  sequence.Run(scene, rows, 0, rows.num_tokens(), device.context);
  return sequence.Results();
}

void ExpectSameResults(const StateResults& actual, const StateResults& expected,
                       const std::string& what) {
  ExpectSameBytes(actual.out.data(), expected.out.data(), expected.out.size() * sizeof(float),
                  what);
  ExpectSameBytes(actual.states.data(), expected.states.data(),
                  expected.states.size() * sizeof(float), what + ", states");
}

class ChunkOracleTest : public testing::TestWithParam<DType> {};

TEST_P(ChunkOracleTest, MatchesOracle) {
  for (const RecurrenceScene& scene : ChunkScenes(GetParam())) {
    const StateResults expected = OracleOf(scene, ChunkedStateRows());
    StateRows rows = ChunkedStateRows();
    rows.Pad(3);
    const StateResults actual = RunRows(scene, rows, 132);
    ExpectOracle(actual, expected, scene.dtype, scene.name(), ChunksError(scene.dtype));
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ChunkOracleTest, testing::ValuesIn(kHalfTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// Grids of one block for each row, and of one for all rows.
TEST(RecurrenceChunkTest, GridsDoNotMatter) {
  const RecurrenceScene scene = {.by_chunks = true};
  const StateResults many = RunRows(scene, ChunkedStateRows(), 132);
  ExpectSameResults(RunRows(scene, ChunkedStateRows(), 1), many, scene.name());
}

// The first tokens of a sequence are the inputs of every scene.
TEST(RecurrenceChunkTest, OtherRowsDoNotMatter) {
  const RecurrenceScene scene = {.by_chunks = true};
  StateRows alone, beside;
  alone.Add(40, 1, 2);
  beside.Add(40, 1, 2);
  beside.Add(2, 0, 3);
  beside.Add(70, 1, 4);
  StateResults wanted = RunRows(scene, alone, 4), results = RunRows(scene, beside, 4);
  results.out.resize(wanted.out.size());
  for (StateResults* each : {&wanted, &results}) {
    each->states.resize(static_cast<size_t>(3 * scene.slot_floats()));
  }
  ExpectSameResults(results, wanted, scene.name());
}

// Rows without a long span have the bits of steps, whatever their number of tokens.
TEST(RecurrenceChunkTest, ShortSpansGoBySteps) {
  RecurrenceScene scene = {.by_chunks = true};
  StateRows rows;
  rows.Add(15, -1, 2);
  rows.Continue(15, 3);
  rows.Continue(1, 4);
  rows.Add(8, 0, 5);
  const StateResults results = RunRows(scene, rows, 4);
  scene.by_chunks = false;
  ExpectSameResults(results, RunRows(scene, rows, 4), scene.name());
  rows.Add(16, 1, 6);  // changes no other row
  scene.by_chunks = true;
  StateResults more = RunRows(scene, rows, 4);
  more.out.resize(results.out.size());
  more.states.resize(static_cast<size_t>(6 * scene.slot_floats()));
  StateResults few = results;
  few.states.resize(more.states.size());
  ExpectSameResults(more, few, scene.name());
}

// States that f16 cannot hold, which steps keep in f32: both parts together reach twice as far, and
// farther ones are cut off, so that nothing is NaN.
TEST(RecurrenceChunkTest, StatesAboveTheRangeOfF16) {
  RecurrenceScene scene = {.dtype = DType::kF16, .by_chunks = true};
  StateRows rows;
  rows.Add(40, 1, 2);
  for (const float largest : {100'000.0f, 1e6f}) {
    std::vector<float> slots = scene.Slots();
    float most = 0;
    for (const float value : slots) most = std::max(most, std::abs(value));
    for (float& value : slots) value *= largest / most;
    const auto states = [&] {
      KernelDevice device;
      Sequence sequence(scene, rows.num_tokens(), slots);
      sequence.Run(scene, rows, 0, rows.num_tokens(), device.context);
      return sequence.Results().states;
    };
    scene.by_chunks = true;
    const std::vector<float> by_chunks = states();
    scene.by_chunks = false;
    const std::vector<float> by_steps = states();
    for (int64_t i = 2 * scene.slot_floats(); i < 3 * scene.slot_floats(); ++i) {
      const auto at = static_cast<size_t>(i);
      ASSERT_TRUE(std::isfinite(by_chunks[at])) << largest << ", " << i;
      if (largest < 131'008) {
        ASSERT_NEAR(by_chunks[at], by_steps[at], 100.0) << i;
      }
    }
  }
}

// A device without room for the kernel's stages takes steps.
TEST(RecurrenceChunkTest, LittleSharedMemoryTakesSteps) {
  RecurrenceScene scene = {.by_chunks = true};
  StateRows rows;
  rows.Add(40, -1, 2);
  KernelDevice device;
  device.context.shared_bytes_max = 64 * 1024;
  Sequence sequence(scene, rows.num_tokens(), scene.Slots());
  sequence.Run(scene, rows, 0, rows.num_tokens(), device.context);
  scene.by_chunks = false;
  ExpectSameResults(sequence.Results(), RunRows(scene, rows, 4), scene.name());
}

}  // namespace
}  // namespace minisgl::cuda
