// The queue of places for folds (attention_fold.cuh) alone: many blocks take a place, use it and
// give it back, while several are alive.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "device/device.h"
#include "emulator/emulator.h"
#ifdef MINISGL_CHECKED_KERNELS
#include "attention_fold_cuh_checked.h"
#else
#include "kernels/attention_fold.cuh"
#endif

namespace minisgl::cuda {
namespace {

using emulator::DeviceArray;

// Taken, returned, and as many entries, of which each holds its place + 1.
std::vector<uint32_t> FullQueue(uint32_t num_places) {
  std::vector<uint32_t> words(2 + num_places);
  words[1] = num_places;
  std::iota(words.begin() + 2, words.end(), 1u);
  return words;
}

struct QueueRun {
  uint32_t num_places;
  unsigned num_blocks;
  int alive;
};

// Every block adds one to its place's cell, in two accesses.
void RunThroughQueue(const QueueRun& run, int order) {
  SCOPED_TRACE(testing::Message() << run.num_places << " places, " << run.num_blocks << " blocks, "
                                  << run.alive << " alive, order " << order);
  const emulator::Options options = emulator::GetOptions();
  emulator::Options changed = options;
  changed.order = order;
  changed.blocks_at_once = run.alive;
  changed.atomics_max = 1 << 16;
  emulator::SetOptions(changed);
  DeviceArray<uint32_t> words(FullQueue(run.num_places));
  DeviceArray<uint32_t> cells(std::vector<uint32_t>(run.num_places, 0));
  const PlaceQueue queue = {static_cast<int32_t>(run.num_places), words.data()};
  EXPECT_NO_THROW(emulator::RunGrid({.grid = {run.num_blocks}, .block = {1}}, "queue", [&] {
    const uint32_t place = TakePlace(queue);
    device::Vec<uint32_t, 1> cell = device::LoadVec<1>(cells.data() + place);
    ++cell[0];
    device::StoreVec(cells.data() + place, cell);
    ReturnPlace(queue, place);
  }));
  emulator::FinishKernels();
  emulator::SetOptions(options);
  std::vector<uint32_t> left = words.values(), used = cells.values();
  EXPECT_EQ(left[0], run.num_blocks);
  EXPECT_EQ(left[1], run.num_blocks + run.num_places);
  std::sort(left.begin() + 2, left.end());
  std::vector<uint32_t> all = FullQueue(run.num_places);
  EXPECT_TRUE(std::equal(left.begin() + 2, left.end(), all.begin() + 2)) << "a place is lost";
  EXPECT_EQ(std::accumulate(used.begin(), used.end(), 0u), run.num_blocks);
}

// Blocks whose tickets are a whole turn of the queue apart give their places back at once.
TEST(AttentionPlacesTest, EveryPlaceComesBack) {
  for (const QueueRun& run :
       {QueueRun{3, 12, 4}, {4, 40, 4}, {8, 200, 8}, {1, 12, 4}, {2, 40, 8}}) {
    for (int order = 0; order < 24 && !testing::Test::HasFailure(); ++order) {
      RunThroughQueue(run, order);
    }
  }
}

// An entry that is never emptied drops a place, and a place that never comes ends the kernel.
TEST(AttentionPlacesTest, ALostPlaceIsAFault) {
  DeviceArray<uint32_t> words(FullQueue(2));
  const PlaceQueue queue = {2, words.data()};
  const auto run = [](const std::function<void()>& body) {
    emulator::RunGrid({.grid = {1}, .block = {1}}, "queue", body);
  };
  EXPECT_NO_THROW(run([&] { ReturnPlace(queue, 1, 1000); }));
  EXPECT_EQ(words.values(), (std::vector<uint32_t>{0, 3, 1, 2}));
  EXPECT_NO_THROW(run([&] {
    EXPECT_EQ(TakePlace(queue, 1000), 0u);
    EXPECT_EQ(TakePlace(queue, 1000), 1u);
  }));
  try {
    run([&] { (void)TakePlace(queue, 1000); });
    ADD_FAILURE() << "taken";
  } catch (const emulator::Fault& fault) {
    const std::string text = fault.what();
    EXPECT_NE(text.find("trap: a place for folds is lost"), std::string::npos) << text;
  }
  emulator::FinishKernels();
}

}  // namespace
}  // namespace minisgl::cuda
