// Timing and attention cases on a device with a queue and graphs, emulated by the host.
#include "bench/bench_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "bench/bench_attention_case.h"
#include "engine/host_device_ops.h"

namespace minisgl::bench {
namespace {

class BenchDeviceTest : public ::testing::Test {
 protected:
  BenchDeviceTest() {
    auto device = BenchDevice::FromDevice(
        MakeHostDeviceOps(uint64_t{1} << 30, HostDeviceFaults(), counters_, DType::kBF16));
    EXPECT_TRUE(device.ok());
    device_ = std::move(device).value();
    EXPECT_TRUE(device_.Reserve(kCeilingLimits).ok());
  }

  const std::shared_ptr<HostDeviceCounters> counters_ = std::make_shared<HostDeviceCounters>();
  BenchDevice device_;
};

TEST_F(BenchDeviceTest, LaunchesAreOneGraph) {
  std::vector<int> launched;
  const auto seconds = device_.TimeLaunches(5, 3, [&](int i) { launched.push_back(i); });
  ASSERT_TRUE(seconds.ok()) << seconds.status().message();
  EXPECT_EQ(launched, (std::vector<int>{0, 0, 1, 2, 3, 4}));  // one warm-up before the capture
  EXPECT_EQ(counters_->captures, 1);
  EXPECT_EQ(counters_->replays, 4);  // including one warm-up
}

TEST_F(BenchDeviceTest, CopiesComeBackAsFloats) {
  auto memory = device_.ops()->Allocate(4);
  ASSERT_TRUE(memory.ok());
  const uint16_t bits[] = {FloatToBf16(1.5f), FloatToBf16(-2.0f)};
  ASSERT_TRUE(device_.ops()->Upload(memory->get(), bits, sizeof(bits)).ok());
  const auto values = device_.Download({memory->get(), DType::kBF16}, 2);
  ASSERT_TRUE(values.ok());
  EXPECT_EQ(*values, (std::vector<float>{1.5f, -2.0f}));
}

TEST_F(BenchDeviceTest, AttentionRunsInEveryShape) {
  const AttentionHeads heads = {4, 2, 16};
  for (const AttentionSize& size :
       {AttentionSize{.page_size = 1, .num_rows = 2, .kv_len = 7},
        AttentionSize{.page_size = 16, .num_rows = 3, .kv_len = 40, .shared_len = 32},
        AttentionSize{.page_size = 4, .extend_len = 9, .kv_len = 12}}) {
    auto attention = AttentionCase::Make(size, heads, 2, 1, &device_);
    ASSERT_TRUE(attention.ok()) << attention.status().message();
    EXPECT_FALSE((*attention)->CheckFinite().ok()) << "nothing was computed yet";
    for (const int copy : {1, 0}) (*attention)->Launch(copy);
    const Status status = (*attention)->CheckFinite();
    EXPECT_TRUE(status.ok()) << status.message();
  }
}

// A group has at most eight rows with 2 query heads a KV head; a single row is in no group.
TEST_F(BenchDeviceTest, RowsThatShareWholeSplitsAreGrouped) {
  const auto groups = [&](int32_t num_rows, int32_t shared_len) {
    const AttentionSize size = {
        .page_size = 16, .num_rows = num_rows, .kv_len = 300, .shared_len = shared_len};
    counters_->groups = -1;
    const auto attention = AttentionCase::Make(size, {4, 2, 16}, 1, 1, &device_);
    EXPECT_TRUE(attention.ok());
    return counters_->groups;
  };
  EXPECT_EQ(groups(3, 256), 1);
  EXPECT_EQ(groups(9, 256), 1);
  EXPECT_EQ(groups(40, 272), 1);  // any number of rows
  EXPECT_EQ(groups(3, 240), 0);   // less than a split
  EXPECT_EQ(groups(3, 0), 0);
  EXPECT_EQ(groups(1, 256), 0);
}

}  // namespace
}  // namespace minisgl::bench
