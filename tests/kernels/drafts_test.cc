// The kernels of drafts on the emulator: against plain loops, and in every order of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernel_check.h"
#include "kernels/kernels.h"

namespace minisgl::cuda {
namespace {

constexpr int32_t kAny = std::numeric_limits<int32_t>::max();

// Half of the rows are read, and the others written, each at most once.
void CheckKeepStates(uint64_t seed, DType dtype, int64_t width, int32_t num_rows) {
  std::mt19937_64 random(seed);
  const auto row_bytes = static_cast<size_t>(width) * DTypeBytes(dtype);
  std::vector<unsigned char> states(row_bytes * static_cast<size_t>(2 * num_rows));
  for (auto& byte : states) byte = static_cast<unsigned char>(random());
  const std::vector<int32_t> accepted = {0, 1, 2, 5};
  std::vector<KeptState> items;
  std::vector<unsigned char> expected = states;
  for (int32_t i = 0; i < num_rows; ++i) {
    KeptState item = {.from = static_cast<int32_t>(random() % static_cast<uint64_t>(num_rows)),
                      .to = num_rows + i,
                      .row = static_cast<int32_t>(random() % 5) - 1,
                      .least = static_cast<int32_t>(random() % 4),
                      .most = 0};
    item.most = random() % 2 == 0 ? item.least : kAny;
    items.push_back(item);
    const int32_t count = item.row < 0 ? item.least : accepted[static_cast<size_t>(item.row)];
    if (count < item.least || count > item.most) continue;
    std::memcpy(expected.data() + static_cast<size_t>(item.to) * row_bytes,
                states.data() + static_cast<size_t>(item.from) * row_bytes, row_bytes);
  }
  const DeviceArray<KeptState> device_items(items);
  const DeviceArray<int32_t> device_accepted(accepted);
  GuardedArray<unsigned char> device_states(states);
  KernelDevice device;
  ASSERT_EQ(LaunchKeepStates(device.context, {.states = {device_states.data(), dtype},
                                              .width = width,
                                              .items = device_items.data(),
                                              .num_items = num_rows,
                                              .num_accepted = device_accepted.data()}),
            kCudaSuccess);
  EXPECT_EQ(device_states.values(), expected) << "width " << width << ", seed " << seed;
}

// Rows of whole 16 bytes, of one or several blocks, and others.
TEST(KeepStatesKernelTest, MovesTheStatesThatAreKept) {
  uint64_t seed = 0;
  for (const DType dtype : kHalfTypes) {
    for (const int64_t width : {8, 64, 1024, 4104, 5, 63}) {
      CheckKeepStates(++seed, dtype, width, 20);
    }
  }
}

TEST(KeepStatesKernelTest, EveryThreadOrderGivesTheSame) {
  emulator::ForEachOrder(emulator::kNumOrders,
                         [](int) { CheckKeepStates(77, DType::kBF16, 136, 9); });
}

TEST(MapTokensKernelTest, ReplacesTheIdsOfTokens) {
  constexpr auto kToken = static_cast<int32_t>(RowResult::Outcome::kToken);
  constexpr auto kNone = static_cast<int32_t>(RowResult::Outcome::kNonFinite);
  const std::vector<int32_t> ids = {40, 7, 9, 1000};
  std::vector<DeviceToken> tokens;
  for (int i = 0; i < 300; ++i) {
    tokens.push_back({.token = i % 5 == 4 ? -1 : i % 5,
                      .outcome = i % 5 == 4 ? kNone : kToken,
                      .logprob = static_cast<float>(i),
                      .num_ranks = i});
  }
  const DeviceArray<int32_t> device_ids(ids);
  GuardedArray<DeviceToken> device_tokens(tokens);
  KernelDevice device;
  ASSERT_EQ(LaunchMapTokens(
                device.context,
                {.tokens = device_tokens.data(), .num_tokens = 300, .ids = device_ids.data()}),
            kCudaSuccess);
  const std::vector<DeviceToken> mapped = device_tokens.values();
  for (size_t i = 0; i < tokens.size(); ++i) {
    DeviceToken expected = tokens[i];
    if (expected.outcome == kToken) expected.token = ids[static_cast<size_t>(expected.token)];
    EXPECT_EQ(std::memcmp(&mapped[i], &expected, sizeof(DeviceToken)), 0) << "token " << i;
  }
}

}  // namespace
}  // namespace minisgl::cuda
