// System information read from made-up machines: cgroup versions, nested limits, quotas, cores and
// broken files.
#include "minisgl/base/system_info.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <string>

#include "base/system_info_roots.h"
#include "system_tree.h"

namespace minisgl {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

class SystemInfoTest : public SystemTreeTest {
 protected:
  void SetUp() override {
    SystemTreeTest::SetUp();
    Write("/proc/meminfo", "MemTotal: 2097152 kB\nMemFree: 1 kB\nMemAvailable:    1048576 kB\n");
  }
  // CPU `cpu` belongs to `core` of `package`.
  void WriteCpu(int cpu, int package, int core) {
    const std::string topology = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    Write(topology + "physical_package_id", std::to_string(package) + "\n");
    Write(topology + "core_id", std::to_string(core) + "\n");
  }
  uint64_t AvailableMiB() const { return base::AvailableMemoryBytesUnder(root_) / kMiB; }
};

TEST_F(SystemInfoTest, WithoutGroupsMemoryIsWhatTheSystemSays) { EXPECT_EQ(AvailableMiB(), 1024u); }

TEST_F(SystemInfoTest, Version2LimitLessUseCountsFilePagesAsFree) {
  Write("/proc/self/cgroup", "0::/app/job\n");
  Write("/sys/fs/cgroup/app/job/memory.max", std::to_string(300 * kMiB) + "\n");
  Write("/sys/fs/cgroup/app/job/memory.current", std::to_string(120 * kMiB) + "\n");
  Write("/sys/fs/cgroup/app/job/memory.stat",
        "anon 5\ninactive_file " + std::to_string(20 * kMiB) + "\nactive_file 7\n");
  EXPECT_EQ(AvailableMiB(), 200u);
}

TEST_F(SystemInfoTest, TheTightestOfNestedLimitsHolds) {
  Write("/proc/self/cgroup", "0::/app/job\n");
  Write("/sys/fs/cgroup/app/job/memory.max", "max\n");
  Write("/sys/fs/cgroup/app/memory.max", std::to_string(64 * kMiB) + "\n");
  Write("/sys/fs/cgroup/app/memory.current", std::to_string(14 * kMiB) + "\n");
  EXPECT_EQ(AvailableMiB(), 50u);
}

TEST_F(SystemInfoTest, Version1Limits) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/box\n0::/\n");
  Write("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(100 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(40 * kMiB) + "\n");
  Write("/sys/fs/cgroup/memory/box/memory.stat",
        "cache 1\ntotal_inactive_file " + std::to_string(10 * kMiB) + "\n");
  EXPECT_EQ(AvailableMiB(), 70u);
}

// In a container the path is the host's, and the group's own files are at the top of the mount.
TEST_F(SystemInfoTest, PathThatIsNotMountedFallsBackToTheTop) {
  Write("/proc/self/cgroup", "4:memory:/docker/0123456789abcdef\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(80 * kMiB) + "\n");
  EXPECT_EQ(AvailableMiB(), 80u);
}

TEST_F(SystemInfoTest, UseAboveTheLimitLeavesNothing) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "1000\n");
  Write("/sys/fs/cgroup/memory.current", "2000\n");
  EXPECT_EQ(base::AvailableMemoryBytesUnder(root_), 0u);
}

TEST_F(SystemInfoTest, LimitsOfTheProcessLessItsUse) {
  Write("/proc/self/status", "VmPeak:  999999 kB\nVmSize:\t  102400 kB\nVmData:\t   51200 kB\n");
  const std::string head =
      "Limit                     Soft Limit           Hard Limit           Units\n";
  const auto line = [](const char* name, const std::string& limit) {
    return fmt::format("{:<26}{:<21}{:<21}bytes\n", name, limit, "unlimited");
  };
  const std::string none =
      line("Max data size", "unlimited") + line("Max address space", "unlimited");
  Write("/proc/self/limits", head + none);
  EXPECT_EQ(AvailableMiB(), 1024u);
  Write("/proc/self/limits", head + line("Max address space", std::to_string(700 * kMiB)) + none);
  EXPECT_EQ(AvailableMiB(), 600u);
  Write("/proc/self/limits", head + line("Max data size", std::to_string(450 * kMiB)) +
                                 line("Max address space", std::to_string(700 * kMiB)));
  EXPECT_EQ(AvailableMiB(), 400u);
  Write("/proc/self/limits", head + line("Max address space", std::to_string(90 * kMiB)));
  EXPECT_EQ(base::AvailableMemoryBytesUnder(root_), 0u);
}

TEST_F(SystemInfoTest, HyperthreadsShareACore) {
  WriteCpu(0, 0, 0);
  WriteCpu(1, 0, 0);
  WriteCpu(2, 0, 1);
  WriteCpu(3, 1, 1);
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1, 2, 3}), 3);
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1}), 1);
  EXPECT_EQ(base::UsableCoresUnder(root_, {3}), 1);
}

TEST_F(SystemInfoTest, UnknownTopologyCountsEveryCpu) {
  EXPECT_EQ(base::UsableCoresUnder(root_, {4, 5, 6}), 3);
  EXPECT_EQ(base::UsableCoresUnder(root_, {}), 1);
}

TEST_F(SystemInfoTest, QuotaIsRoundedUp) {
  Write("/proc/self/cgroup", "0::/a\n");
  Write("/sys/fs/cgroup/a/cpu.max", "250000 100000\n");
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1, 2, 3}), 3);
  Write("/sys/fs/cgroup/a/cpu.max", "10000 100000\n");
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1, 2, 3}), 1);
  Write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1, 2, 3}), 4);
}

TEST_F(SystemInfoTest, Version1Quota) {
  Write("/proc/self/cgroup", "2:cpu,cpuacct:/\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1, 2, 3}), 2);
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(base::UsableCoresUnder(root_, {0, 1, 2, 3}), 4);
}

TEST_F(SystemInfoTest, BrokenFilesAreNoLimit) {
  for (const char* text : {"", "\n", "abc", "-5", "99999999999999999999999", "0 0", "1 0", ":::"}) {
    Write("/proc/self/cgroup", std::string(text) + "\n0::nopath\n0::/\n1:\n:\n");
    Write("/sys/fs/cgroup/cpu.max", text);
    Write("/sys/fs/cgroup/memory.current", text);
    Write("/proc/meminfo", std::string("MemAvailable: ") + text + "\n");
    EXPECT_GE(base::UsableCoresUnder(root_, {0, 1}), 1) << text;
    base::AvailableMemoryBytesUnder(root_);
  }
}

TEST(ThisMachineTest, HasMemoryAndCores) {
  EXPECT_GT(AvailableMemoryBytes(), kMiB);
  EXPECT_GE(UsableCores(), 1);
}

}  // namespace
}  // namespace minisgl
