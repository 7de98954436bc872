// Tests of the thread-block emulator: small wrong kernels, each of which it must detect, and
// correct ones, which must pass in every order.
#include "emulator/emulator.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "device/device.h"
#include "emulator_check.h"

namespace minisgl::cuda {
namespace {

using namespace device;
using emulator::DeviceArray;
using emulator::Fault;
using emulator::ForEachOrder;
using emulator::kNumOrders;

void RunKernel(unsigned num_blocks, unsigned num_threads, size_t shared_bytes,
               const std::function<void()>& kernel) {
  emulator::RunGrid({.grid = {num_blocks}, .block = {num_threads}, .shared_bytes = shared_bytes},
                    "test", kernel);
}

// Expects that the kernel fails in every order, with all of `parts` in the message.
void ExpectFault(unsigned num_threads, size_t shared_bytes, const std::vector<std::string>& parts,
                 const std::function<void()>& kernel) {
  ForEachOrder(kNumOrders, [&](int order) {
    SCOPED_TRACE(order);
    try {
      RunKernel(2, num_threads, shared_bytes, kernel);
      ADD_FAILURE() << "not caught";
    } catch (const Fault& fault) {
      const std::string text = fault.what();
      EXPECT_EQ(text.rfind("kernel test, block (", 0), 0u) << text;
      for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  });
}

void ExpectNoFault(unsigned num_threads, size_t shared_bytes, const std::function<void()>& kernel) {
  ForEachOrder(kNumOrders, [&](int order) {
    SCOPED_TRACE(order);
    EXPECT_NO_THROW(RunKernel(2, num_threads, shared_bytes, kernel));
  });
}

int WarpIndex() { return Thread() / kWarpSize; }

// Wrong kernels: races.

TEST(EmulatorRace, ReadOfAnotherWarpsWriteWithoutBarrier) {
  ExpectFault(64, 256, {"no barrier in between", "emulator_test.cc"}, [] {
    SharedArena arena;
    const Shared<float> s = arena.Take<float>(64);
    s[Thread()] = 1;
    __syncthreads();
    s[Thread()] = 2;
    const float x = s[(Thread() + 32) % 64];
    (void)x;
  });
}

TEST(EmulatorRace, ReadWithinAWarpWithoutSyncWarp) {
  const auto kernel = [](bool synchronise) {
    SharedArena arena;
    const Shared<float> s = arena.Take<float>(32);
    s[Lane()] = 1;
    __syncthreads();
    s[Lane()] = 2;
    if (synchronise) __syncwarp();
    // A shuffle is not a memory barrier.
    (void)__shfl_xor_sync(kAllLanes, Lane(), 1);
    const float x = s[31 - Lane()];
    if (x != 2) __trap();
  };
  ExpectFault(32, 128, {"wrote, with no barrier in between"}, [&] { kernel(false); });
  ExpectNoFault(32, 128, [&] { kernel(true); });
}

TEST(EmulatorRace, WriteAfterAnotherThreadsAccess) {
  const auto kernel = [](bool first_barrier, bool second_barrier) {
    SharedArena arena;
    const Shared<int> s = arena.Take<int>(1);
    if (Thread() == 0) s[0] = 1;
    __syncthreads();
    if (Thread() < 32) {
      const int x = s[0];
      (void)x;
    }
    if (first_barrier) __syncthreads();
    if (Thread() == 40) s[0] = 2;
    if (second_barrier) __syncthreads();
    if (Thread() == 80) s[0] = 3;
  };
  ExpectFault(96, 4, {"no barrier in between"}, [&] { kernel(false, true); });
  ExpectFault(96, 4, {"no barrier in between"}, [&] { kernel(true, false); });
  ExpectNoFault(96, 4, [&] { kernel(true, true); });
}

TEST(EmulatorRace, NeighbouringBytesAreNoRace) {
  ExpectNoFault(64, 64, [] {
    SharedArena arena;
    const Shared<uint8_t> s = arena.Take<uint8_t>(64);
    s[Thread()] = static_cast<uint8_t>(Thread());
    __syncthreads();
    const uint8_t x = s[63 - Thread()];
    if (x != 63 - Thread()) __trap();
  });
}

TEST(EmulatorRace, PartialMasksOrderOnlyTheirLanes) {
  // Lane 0 writes; `masks` are synchronised one after the other; lane 8 reads.
  const auto kernel = [](std::vector<unsigned> masks) {
    SharedArena arena;
    const Shared<int> s = arena.Take<int>(1);
    if (Lane() == 0) s[0] = 7;
    for (const unsigned mask : masks) {
      if (mask >> Lane() & 1) __syncwarp(mask);
    }
    if (Lane() == 8) {
      const int x = s[0];
      if (x != 7) __trap();
    }
  };
  ExpectNoFault(32, 4, [&] { kernel({0x101}); });
  ExpectNoFault(32, 4, [&] { kernel({0x011, 0x110}); });  // by way of lane 4
  ExpectFault(32, 4, {"nothing in this block has written"}, [&] {
    if (Lane() == 8) kernel({});
  });
  for (const std::vector<unsigned>& masks :
       {std::vector<unsigned>{0x011}, {0x110}, {0x110, 0x011}, {0x003, 0x300}}) {
    // Lane 8 may come first, and reads what is not written; else it races.
    ExpectFault(32, 4, {"reads bytes 0 to 4"}, [&] { kernel(masks); });
  }
}

TEST(EmulatorRace, AtomicsDoNotRaceWithAtomicsButWithTheRest) {
  const auto kernel = [](bool plain_read, bool barrier) {
    SharedArena arena;
    const Shared<int> s = arena.Take<int>(1);
    if (Thread() == 0) s[0] = 0;
    __syncthreads();
    AtomicAddShared(s, 1);
    AtomicMaxShared(s, 0);
    if (barrier) __syncthreads();
    if (plain_read) {
      const int x = s[0];
      if (barrier && x != 64) __trap();
    }
  };
  ExpectNoFault(64, 4, [&] { kernel(false, false); });
  ExpectNoFault(64, 4, [&] { kernel(true, true); });
  ExpectFault(64, 4, {"no barrier in between"}, [&] { kernel(true, false); });
}

TEST(EmulatorRace, BarrierAloneBetweenLoopIterationsIsNotEnough) {
  // A tile is written, read after a barrier, and written again with none in between.
  ExpectFault(64, 256, {"no barrier in between"}, [] {
    SharedArena arena;
    const Shared<int> s = arena.Take<int>(64);
    for (int i = 0; i < 2; ++i) {
      s[Thread()] = i;
      __syncthreads();
      const int x = s[63 - Thread()];
      (void)x;
    }
  });
}

// Wrong kernels: barriers and warp operations.

TEST(EmulatorMeeting, DivergentBarrier) {
  ExpectFault(64, 0, {"divergent barrier", "__syncthreads at emulator_test.cc"}, [] {
    if (WarpIndex() == 0) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  });
}

TEST(EmulatorMeeting, BarrierAgainstWarpOperation) {
  ExpectFault(32, 0, {"__syncthreads at emulator_test.cc"}, [] {
    if (Lane() == 5) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  });
}

TEST(EmulatorMeeting, EndedThreadsDoNotHoldABarrier) {
  ExpectNoFault(64, 4, [] {
    SharedArena arena;
    const Shared<int> s = arena.Take<int>(1);
    if (Thread() == 63) s[0] = 5;
    if (WarpIndex() == 1) return;
    __syncthreads();
    const int x = s[0];
    if (x != 5) __trap();
  });
}

TEST(EmulatorMeeting, WarpOperationWithALaneMissing) {
  ExpectFault(32, 0, {"__shfl_xor_sync"}, [] {
    if (Lane() == 7) return;
    (void)__shfl_xor_sync(kAllLanes, 1.0f, 16);
  });
  ExpectFault(32, 0, {"__ballot_sync", "divergent"}, [] {
    if (Lane() < 16) {
      (void)__ballot_sync(kAllLanes, 1);
    } else {
      (void)__any_sync(kAllLanes, 1);
    }
  });
  ExpectFault(48, 0, {"names threads that the block does not have"}, [] {
    if (WarpIndex() == 1) __syncwarp();
  });
}

TEST(EmulatorMeeting, MasksMustAgree) {
  ExpectFault(32, 0, {"the mask 0x2 lacks the calling lane"}, [] {
    if (Lane() == 0) __syncwarp(2);
  });
  ExpectFault(32, 0, {"__syncwarp"}, [] { __syncwarp(Lane() < 16 ? 0xffffu : kAllLanes); });
  ExpectNoFault(32, 0, [] { __syncwarp(Lane() < 16 ? 0xffffu : 0xffff0000u); });
}

TEST(EmulatorMeeting, WaitsInACircle) {
  ExpectFault(32, 0, {"no thread can go on", "__syncwarp", "with mask 0x3"}, [] {
    const unsigned first[] = {0x3, 0x6, 0x5};
    if (Lane() < 3) __syncwarp(first[Lane()]);
    while (Lane() < 3) __syncwarp();
  });
}

TEST(EmulatorMeeting, ShuffleFromALaneOutsideTheMask) {
  ExpectFault(32, 0, {"a shuffle from lane 20, which is not in the mask"}, [] {
    if (Lane() < 16) (void)__shfl_sync(0xffffu, Lane(), 20);
  });
}

TEST(EmulatorMeeting, TrapAndExceptionsEndTheLaunch) {
  ExpectFault(64, 0, {"__trap"}, [] {
    if (Thread() == 33) __trap();
    __syncthreads();
  });
}

// Wrong kernels: memory.

TEST(EmulatorShared, PastTheArena) {
  ExpectFault(32, 128, {"ends at byte 132 of 128"}, [] {
    SharedArena arena;
    (void)arena.Take<float>(33);
  });
}

TEST(EmulatorShared, PastOneArrayIntoTheNext) {
  for (const int index : {4, -1}) {
    ExpectFault(1, 128, {"out of bounds", "the array of 16 bytes"}, [&] {
      SharedArena arena;
      (void)arena.Take<float>(4);
      const Shared<float> a = arena.Take<float>(4);
      (void)arena.Take<float>(4);
      a[index] = 1;
    });
  }
  // The next array begins 16-byte aligned; what lies between belongs to none.
  ExpectFault(1, 128, {"writes bytes 12 to 16", "out of bounds"}, [] {
    SharedArena arena;
    const Shared<float> a = arena.Take<float>(3);
    a[3] = 1;
  });
}

TEST(EmulatorShared, ReadOfUnwritten) {
  ExpectFault(1, 16, {"reads bytes 4 to 8", "which nothing in this block has written"}, [] {
    SharedArena arena;
    const Shared<float> a = arena.Take<float>(4);
    a[0] = 1;
    const float x = a[1];
    (void)x;
  });
  // What the block before wrote is not written.
  ExpectFault(1, 16, {"which nothing in this block has written"}, [] {
    SharedArena arena;
    const Shared<float> a = arena.Take<float>(4);
    if (blockIdx.x == 0) a[0] = 1;
    const float x = a[0];
    (void)x;
  });
  ExpectFault(1, 16, {"atomically changes", "which nothing in this block has written"}, [] {
    SharedArena arena;
    AtomicAddShared(arena.Take<int>(1), 1);
  });
}

TEST(EmulatorShared, Misaligned) {
  ExpectFault(1, 64, {"not aligned to 16"}, [] {
    SharedArena arena;
    const Shared<float> a = arena.Take<float>(8);
    StoreShared(a + 1, Vec<float, 4>());
  });
  ExpectFault(32, 1024, {"not aligned to 16"}, [] {
    SharedArena arena;
    const Shared<bf16> a = arena.Take<bf16>(512);
    for (int i = Lane(); i < 512; i += 32) a[i] = FromFloat<bf16>(0);
    __syncthreads();
    uint32_t regs[4];
    LoadMatrix4(regs, a + (Lane() * 8 + 4));
  });
}

TEST(EmulatorShared, ThreadsMustTakeTheSame) {
  ExpectFault(2, 64, {"another thread's is"}, [] {
    SharedArena arena;
    (void)arena.Take<float>(4 + Thread());
  });
}

TEST(EmulatorGlobal, OutOfBoundsAndMisaligned) {
  DeviceArray<float> x(std::vector<float>(8, 1.0f));
  float* const p = x.data();
  ExpectNoFault(1, 0, [&] { (void)LoadVec<4>(static_cast<const float*>(p + 4)); });
  ExpectFault(1, 0, {"LoadVec: 16 bytes", "not within"},
              [&] { (void)LoadVec<4>(static_cast<const float*>(p + 8)); });
  ExpectFault(1, 0, {"LoadStream", "not within"},
              [&] { (void)LoadStream<2>(static_cast<const float*>(p - 2)); });
  ExpectFault(1, 0, {"LoadVec", "not aligned to 16"},
              [&] { (void)LoadVec<4>(static_cast<const float*>(p + 2)); });
  ExpectFault(1, 0, {"StoreVec", "not aligned to 8"}, [&] { StoreVec(p + 1, Vec<float, 2>()); });
  ExpectFault(1, 0, {"AtomicAddGlobal", "not within"}, [&] { AtomicAddGlobal(p + 8, 1.0f); });
  ExpectNoFault(1, 0, [&] { PrefetchL2(p + 4, 16); });
  ExpectFault(1, 0, {"PrefetchL2: 32 bytes", "not within"}, [&] { PrefetchL2(p + 4, 32); });
  ExpectFault(1, 0, {"PrefetchL2", "not aligned to 16"}, [&] { PrefetchL2(p + 1, 16); });
  ExpectFault(1, 0, {"PrefetchL2: 8 bytes", "no multiple of 16"}, [&] { PrefetchL2(p, 8); });
  float local = 0;
  ExpectFault(1, 0, {"AtomicExchangeGlobal", "not within"},
              [&] { AtomicExchangeGlobal(&local, 1.0f); });
  int count = 0;
  ExpectFault(1, 0, {"AtomicCompareExchangeGlobal", "not within"},
              [&] { AtomicCompareExchangeGlobal(&count, 0, 1); });
}

#ifdef __SANITIZE_ADDRESS__
TEST(EmulatorGlobal, PlainDereferencesAreTheSanitizers) {
  DeviceArray<float> x(8);
  float* const p = x.data();
  EXPECT_DEATH(RunKernel(1, 64, 0,
                         [&] {
                           __syncthreads();
                           if (Thread() == 40) p[8] = 1;
                         }),
               "heap-buffer-overflow");
}
#endif

TEST(EmulatorGlobal, AThreadThatWaitsInVainIsAFault) {
  DeviceArray<int> flag(std::vector<int>{0});
  const emulator::Options options = emulator::GetOptions();
  emulator::Options changed = options;
  changed.atomics_max = 1000;
  emulator::SetOptions(changed);
  ExpectFault(1, 0, {"too many atomics"}, [&] {
    while (AtomicAddGlobal(flag.data(), 0) == 0) {
    }
  });
  emulator::SetOptions(options);
}

TEST(EmulatorGlobal, LaunchAfterAFaultIsAsIfThereHadBeenNone) {
  DeviceArray<int> sum(std::vector<int>{0});
  for (int i = 0; i < 3; ++i) {
    EXPECT_THROW(RunKernel(3, 96, 16,
                           [] {
                             SharedArena arena;
                             const Shared<int> s = arena.Take<int>(4);
                             if (Thread() == 50) s[4] = 1;
                             __syncthreads();
                           }),
                 Fault);
    RunKernel(3, 256, 0, [&] {
      __syncthreads();
      AtomicAddGlobal(sum.data(), 1);
    });
  }
  EXPECT_EQ(sum[0], 3 * 3 * 256);
}

TEST(EmulatorGlobal, EachOsThreadHasItsOwnFibers) {
  std::vector<std::thread> threads;
  std::vector<int> results(2, 0);
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&results, i] {
      RunKernel(1, 128, 0, [&] {
        const int sum = WarpSum(Thread());
        __syncthreads();
        if (Thread() == 127) results[i] = sum;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(results, std::vector<int>(2, 32 * 96 + 496));
}

// Asynchronous copies.

void CopyKernel(const float* source, bool wait, bool barrier) {
  SharedArena arena;
  const Shared<float> s = arena.Take<float>(4 * 64);
  CopyAsync16(s + 4 * Thread(), source + 4 * Thread(), Thread() % 2 == 0);
  CopyAsyncCommit();
  if (wait) CopyAsyncWait<0>();
  if (barrier) __syncthreads();
  const int other = barrier ? 63 - Thread() : Thread();
  const float x = s[4 * other];
  if (x != (other % 2 == 0 ? source[4 * other] : 0.0f)) __trap();
  CopyAsyncWait<0>();
}

TEST(EmulatorCopyAsync, NeedsItsWaitAndABarrier) {
  std::vector<float> values(256);
  std::iota(values.begin(), values.end(), 1.0f);
  const DeviceArray<float> source(values);
  ExpectNoFault(64, 1024, [&] { CopyKernel(source.data(), true, true); });
  ExpectNoFault(64, 1024, [&] { CopyKernel(source.data(), true, false); });
  ExpectFault(64, 1024, {"was under way"}, [&] { CopyKernel(source.data(), false, false); });
  ExpectFault(64, 1024, {"was under way"}, [&] { CopyKernel(source.data(), false, true); });
}

TEST(EmulatorCopyAsync, WaitedForByOneReadByAnother) {
  const DeviceArray<float> source(std::vector<float>(4, 1.0f));
  ExpectFault(64, 16, {"reads bytes"}, [&] {
    SharedArena arena;
    const Shared<float> s = arena.Take<float>(4);
    if (Thread() == 0) {
      CopyAsync16(s, source.data(), true);
      CopyAsyncCommit();
      CopyAsyncWait<0>();
    }
    const float x = s[0];
    (void)x;
  });
}

TEST(EmulatorCopyAsync, WaitLeavesTheNewestGroups) {
  const DeviceArray<float> source(std::vector<float>(12, 3.0f));
  const auto kernel = [&](int read) {
    SharedArena arena;
    const Shared<float> s = arena.Take<float>(12);
    for (int i = 0; i < 3; ++i) {
      CopyAsync16(s + 4 * i, source.data() + 4 * i, true);
      CopyAsyncCommit();
    }
    CopyAsyncWait<1>();
    const float x = s[4 * read];
    if (x != 3) __trap();
    CopyAsyncWait<0>();
  };
  ExpectNoFault(1, 48, [&] { kernel(0); });
  ExpectNoFault(1, 48, [&] { kernel(1); });
  ExpectFault(1, 48, {"was under way"}, [&] { kernel(2); });
}

TEST(EmulatorCopyAsync, WaitWithFewerGroupsThanItLeaves) {
  const DeviceArray<float> source(std::vector<float>(4, 3.0f));
  ExpectNoFault(1, 16, [&] {
    SharedArena arena;
    const Shared<float> s = arena.Take<float>(4);
    CopyAsyncWait<2>();
    CopyAsync16(s, source.data(), true);
    CopyAsyncCommit();
    CopyAsyncWait<2>();
    CopyAsyncWait<0>();
    const float x = s[3];
    if (x != 3) __trap();
  });
}

TEST(EmulatorCopyAsync, OtherFaults) {
  const DeviceArray<float> source(std::vector<float>(8, 3.0f));
  const auto copy = [&](int target, int from, bool valid) {
    SharedArena arena;
    const Shared<float> s = arena.Take<float>(8);
    CopyAsync16(s + target, source.data() + from, valid);
    CopyAsyncCommit();
    CopyAsyncWait<0>();
  };
  ExpectNoFault(1, 32, [&] { copy(4, 4, true); });
  ExpectNoFault(1, 32, [&] { copy(4, 8, false); });  // not valid: not read
  ExpectFault(1, 32, {"not within"}, [&] { copy(4, 8, true); });
  ExpectFault(1, 32, {"source not aligned"}, [&] { copy(4, 1, true); });
  ExpectFault(1, 32, {"not aligned to 16"}, [&] { copy(1, 4, true); });
  ExpectFault(1, 32, {"out of bounds"}, [&] { copy(8, 4, true); });
  ExpectFault(1, 32, {"ended without waiting"}, [&] {
    SharedArena arena;
    CopyAsync16(arena.Take<float>(8), source.data(), true);
    CopyAsyncCommit();
  });
}

}  // namespace
}  // namespace minisgl::cuda
