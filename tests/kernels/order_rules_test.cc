// Tests of the emulator's checks of order: small kernels that overlap, and blocks that exchange
// results. Each wrong kernel must be detected in every order of blocks and threads; the right form
// of each protocol must pass.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "emulator/emulator.h"
#include "emulator_check.h"

namespace minisgl::cuda {
namespace {

using emulator::DeviceArray;

template <typename T>
T Get(const T* p) {
  return device::LoadVec<1>(p)[0];
}

template <typename T>
void Put(T* p, T value) {
  device::Vec<T, 1> v;
  v[0] = value;
  device::StoreVec(p, v);
}

int BlockNumber() { return static_cast<int>(blockIdx.x); }

struct GridLaunch {
  unsigned num_blocks = 1, num_threads = 32;
  bool programmatic = true;
  std::function<void()> body;
};

void RunInTurn(const std::vector<GridLaunch>& launches) {
  emulator::FinishKernels();
  int number = 1;
  for (const GridLaunch& launch : launches) {
    emulator::RunGrid({.grid = {launch.num_blocks},
                       .block = {launch.num_threads},
                       .programmatic = launch.programmatic},
                      "number" + std::to_string(number++), launch.body);
  }
}

void InEveryOrder(const std::function<void()>& fn) {
  emulator::ForEachOrder(emulator::kNumOrders, [&](int order) {
    SCOPED_TRACE(order);
    fn();
  });
}

// `begin` resets the arrays.
void ExpectGridFault(const std::vector<std::string>& parts, const std::function<void()>& begin,
                     const std::vector<GridLaunch>& launches) {
  InEveryOrder([&] {
    begin();
    try {
      RunInTurn(launches);
      ADD_FAILURE() << "not caught";
    } catch (const emulator::Fault& fault) {
      const std::string text = fault.what();
      for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  });
}

void ExpectClean(const std::function<void()>& begin, const std::vector<GridLaunch>& launches) {
  InEveryOrder([&] {
    begin();
    EXPECT_NO_THROW(RunInTurn(launches));
  });
}

// Two arrays, and kernels on them that wait before they do something, or after.
class OverlapTest : public testing::Test {
 protected:
  GridLaunch Wait(const std::function<void()>& then) {
    return {.num_blocks = 2, .body = [then] {
              device::GridRelease();
              device::GridWait();
              then();
            }};
  }
  GridLaunch WaitAfter(const std::function<void()>& first) {
    return {.num_blocks = 2, .body = [first] {
              first();
              device::GridRelease();
              device::GridWait();
            }};
  }
  static int Place() { return BlockNumber() * 32 + Thread(); }
  void WriteA() { Put(a_.data() + Place(), 1.0f); }
  void WriteB() { Put(b_.data() + Place(), 1.0f); }
  void ReadA() { (void)Get(a_.data() + Place()); }
  void Nothing() {}

  DeviceArray<float> a_{64}, b_{64};
};

TEST_F(OverlapTest, ReadBeforeWait) {
  ExpectGridFault({"kernel number2", "reads byte", "kernel number1 wrote", "before GridWait"},
                  [] {}, {Wait([&] { WriteA(); }), WaitAfter([&] { ReadA(); })});
  ExpectClean([] {}, {Wait([&] { WriteA(); }), Wait([&] { ReadA(); })});
}

TEST_F(OverlapTest, ReadOfConstantsBeforeWait) {
  ExpectClean([] {}, {Wait([&] { WriteB(); }), WaitAfter([&] { ReadA(); })});
}

TEST_F(OverlapTest, WriteBeforeWaitToWhatTheLastKernelWrites) {
  ExpectGridFault({"kernel number2", "writes byte", "kernel number1 wrote", "before GridWait"},
                  [] {}, {Wait([&] { WriteA(); }), WaitAfter([&] { WriteA(); })});
  ExpectClean([] {}, {Wait([&] { WriteA(); }), WaitAfter([&] { WriteB(); })});
}

TEST_F(OverlapTest, WriteBeforeWaitToWhatTheLastKernelReads) {
  ExpectGridFault({"kernel number2", "writes byte", "kernel number1 read", "before GridWait"},
                  [] {}, {Wait([&] { ReadA(); }), WaitAfter([&] { WriteA(); })});
}

TEST_F(OverlapTest, EndWithoutWait) {
  ExpectGridFault({"kernel number1", "ended without GridWait"}, [] {}, {{.body = [] {
                    device::GridRelease();
                    if (Thread() == 7) return;
                    device::GridWait();
                  }}});
  // A barrier after another thread's wait does as well.
  ExpectClean([] {}, {{.num_threads = 64, .body = [] {
                         if (Thread() == 7) device::GridWait();
                         __syncthreads();
                       }}});
}

// A kernel that lets the next begin before it has waited itself lets it overlap with older ones.
TEST_F(OverlapTest, ReadBeforeWaitOfWhatAnOlderKernelWrites) {
  const GridLaunch reads = WaitAfter([&] { ReadA(); });
  ExpectGridFault({"kernel number3", "kernel number1 wrote"}, [] {},
                  {Wait([&] { WriteA(); }), Wait([] {}), reads});
  const GridLaunch waits_first = {.num_blocks = 2, .body = [] {
                                    device::GridWait();
                                    device::GridRelease();
                                  }};
  ExpectClean([] {}, {Wait([&] { WriteA(); }), waits_first, reads});
  // A kernel that is not launched so begins after the end of all before it.
  ExpectClean([] {}, {Wait([&] { WriteA(); }), {.programmatic = false, .body = [] {}}, reads});
  ExpectGridFault(
      {"kernel number3", "kernel number1 wrote"}, [] {},
      {{.num_blocks = 2, .programmatic = false, .body = [&] { WriteA(); }}, Wait([] {}), reads});
}

TEST_F(OverlapTest, ReadBeforeWaitOfAProduct) {
  const auto product = [&] {
    emulator::RecordKernel("(product)", nullptr, {{b_.data(), 256}}, {{a_.data(), 256}});
  };
  InEveryOrder([&] {
    product();
    EXPECT_THROW(emulator::RunGrid({.block = {32}, .programmatic = true}, "reads",
                                   WaitAfter([&] { ReadA(); }).body),
                 emulator::Fault);
    product();
    EXPECT_THROW(emulator::RunGrid({.block = {32}, .programmatic = true}, "writes",
                                   WaitAfter([&] { WriteB(); }).body),
                 emulator::Fault);
    product();
    emulator::FinishKernels();
    EXPECT_NO_THROW(emulator::RunGrid({.block = {32}, .programmatic = true}, "reads",
                                      WaitAfter([&] { ReadA(); }).body));
  });
}

// The steps of a merge by the block that arrives last; each can be left out or done wrong.
struct MergeSteps {
  bool fence_too_early = false;
  bool fence_by_one_lane = false;  // before the others' barrier
  bool fence_before = true;
  bool barrier_before = true;
  bool fence_after = true;
  bool barrier_after = true;
  bool reset_by_all = false;
  int merge_at = 4;  // parts counted
};

// Blocks of two warps write 64 parts each. The last one adds them all.
class MergeTest : public testing::Test {
 protected:
  static constexpr int kBlocks = 4, kThreads = 64;

  void Begin() {
    for (size_t i = 0; i < parts_.size(); ++i) parts_[i] = 0;
    count_[0] = last_[0] = last_[1] = last_[2] = last_[3] = 0;
    for (size_t i = 0; i < kThreads; ++i) out_[i] = 0;
  }

  void Count(const MergeSteps& steps) {
    const uint32_t before = device::AtomicAddGlobal(count_.data(), 1u);
    const bool last = before + 1 == static_cast<uint32_t>(steps.merge_at);
    if (last || steps.reset_by_all) Put(count_.data(), 0u);
    Put(last_.data() + BlockNumber(), last ? 1u : 0u);
  }

  void Body(const MergeSteps& steps) {
    if (steps.fence_too_early) device::ThreadFence();
    Put(parts_.data() + BlockNumber() * kThreads + Thread(), 1 + Thread());
    if (steps.fence_by_one_lane && Thread() == 0) device::ThreadFence();
    if (steps.barrier_before) __syncthreads();
    if (Thread() == 0) {
      if (steps.fence_before) device::ThreadFence();
      Count(steps);
    }
    if (steps.barrier_after) __syncthreads();
    if (steps.fence_after) device::ThreadFence();
    if (Get(last_.data() + BlockNumber()) == 0) return;
    int sum = 0;
    for (int block = 0; block < kBlocks; ++block) {
      sum += Get(parts_.data() + block * kThreads + Thread());
    }
    Put(out_.data() + Thread(), sum);
  }

  GridLaunch Launch(const MergeSteps& steps) {
    return {.num_blocks = kBlocks,
            .num_threads = kThreads,
            .programmatic = false,
            .body = [this, steps] { Body(steps); }};
  }
  void ExpectCaught(const std::vector<std::string>& parts, const MergeSteps& steps) {
    ExpectGridFault(parts, [&] { Begin(); }, {Launch(steps)});
  }

  DeviceArray<int> parts_{kBlocks * kThreads}, out_{kThreads};
  DeviceArray<uint32_t> count_{1}, last_{kBlocks};
};

TEST_F(MergeTest, RightOrder) {
  InEveryOrder([&] {
    Begin();
    // Twice: the counter is reset.
    for (int i = 0; i < 2; ++i) RunInTurn({Launch({})});
    for (int i = 0; i < kThreads; ++i) EXPECT_EQ(out_[static_cast<size_t>(i)], kBlocks * (1 + i));
  });
}

// As attention does: each lane fences what it wrote itself, then one counts; all fence afterwards.
TEST_F(MergeTest, FencesOfEachLane) {
  const auto body = [&](bool sync_warp) {
    if (Thread() < 32) {
      Put(parts_.data() + BlockNumber() * kThreads + Thread(), 5);
      device::ThreadFence();
      if (sync_warp) __syncwarp();
      if (Lane() == 3) Count({});
    }
    __syncthreads();
    device::ThreadFence();
    if (Get(last_.data() + BlockNumber()) == 0) return;
    if (Thread() >= 32) {
      int sum = 0;
      for (int block = 0; block < kBlocks; ++block) {
        sum += Get(parts_.data() + block * kThreads + Thread() - 32);
      }
      Put(out_.data() + Thread() - 32, sum);
    }
  };
  const auto launch = [&](bool sync_warp) {
    return GridLaunch{.num_blocks = kBlocks,
                      .num_threads = kThreads,
                      .programmatic = false,
                      .body = [&body, sync_warp] { body(sync_warp); }};
  };
  ExpectClean([&] { Begin(); }, {launch(true)});
  ExpectGridFault({"with no fence"}, [&] { Begin(); }, {launch(false)});
}

TEST_F(MergeTest, NoFenceBeforeTheCounter) {
  ExpectCaught({"reads byte", "of block (", "with no fence"}, {.fence_before = false});
}

TEST_F(MergeTest, NoFenceAfterTheCounter) {
  ExpectCaught({"reads byte", "of block (", "with no fence"}, {.fence_after = false});
}

TEST_F(MergeTest, FenceBeforeThePartsAreWritten) {
  ExpectCaught({"with no fence"}, {.fence_too_early = true, .fence_before = false});
}

TEST_F(MergeTest, FenceByALaneThatHasNotMetTheOthers) {
  ExpectCaught({"with no fence"}, {.fence_by_one_lane = true, .fence_before = false});
}

TEST_F(MergeTest, NoBarrierBeforeTheCounter) {
  ExpectCaught({"with no"}, {.barrier_before = false});
}

TEST_F(MergeTest, NoBarrierAfterTheCounter) {
  ExpectCaught({"with no barrier in between"}, {.barrier_after = false});
}

TEST_F(MergeTest, PartsThatAreNotThereYet) {
  ExpectCaught({"with no fence"}, {.merge_at = kBlocks - 1});
}

TEST_F(MergeTest, CounterResetWhileOthersCount) {
  ExpectCaught({"atomically changes byte 0", "of block (", "with no fence"},
               {.reset_by_all = true});
}

// Blocks that touch the same memory with nothing in between.
class BlocksTest : public testing::Test {
 protected:
  void SetUp() override { options_ = emulator::GetOptions(); }
  void TearDown() override { emulator::SetOptions(options_); }
  static GridLaunch Two(const std::function<void()>& body) {
    return {.num_blocks = 2, .programmatic = false, .body = body};
  }
  void Begin() {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = 0;
    flag_[0] = 0;
  }
  void ExpectCaught(const std::vector<std::string>& parts, const std::function<void()>& body) {
    ExpectGridFault(parts, [&] { Begin(); }, {Two(body)});
  }

  DeviceArray<int> x_{64};
  DeviceArray<uint32_t> flag_{1};

 private:
  emulator::Options options_;
};

TEST_F(BlocksTest, TwoWritesOfAWord) {
  ExpectCaught({"writes byte 20 of the 256", "wrote, with no fence"}, [&] {
    if (Thread() == BlockNumber()) Put(x_.data() + 5, BlockNumber());
  });
}

TEST_F(BlocksTest, ReadOfAnotherBlocksWord) {
  ExpectCaught({"with no fence"}, [&] {
    if (BlockNumber() == 0) Put(x_.data() + Thread(), 1);
    if (BlockNumber() == 1) (void)Get(x_.data() + Thread());
  });
}

TEST_F(BlocksTest, PlainDereferences) {
  int* const word = x_.data() + 3;
  ExpectCaught({"byte 12 of the 256", "with no fence", " at order_rules_test.cc:"}, [&] {
    if (Thread() != 0) return;
    if (BlockNumber() == 0) *word = 1;
    if (BlockNumber() == 1) (void)*static_cast<volatile int*>(word);
  });
}

TEST_F(BlocksTest, AtomicAndPlainAccessOfAWord) {
  ExpectCaught({"with no fence"}, [&] {
    if (BlockNumber() == 0) device::AtomicAddGlobal(x_.data(), 1);
    if (BlockNumber() == 1) (void)Get(x_.data());
  });
}

TEST_F(BlocksTest, ThreadsOfABlock) {
  const auto body = [&](bool barrier) {
    Put(x_.data() + BlockNumber() * 32 + Thread(), 1);
    if (barrier) __syncwarp();
    (void)Get(x_.data() + BlockNumber() * 32 + (Thread() + 1) % 32);
  };
  ExpectCaught({"with no barrier in between"}, [&] { body(false); });
  ExpectClean([] {}, {Two([&] { body(true); })});
}

TEST_F(BlocksTest, WhatIsNoConflict) {
  ExpectClean([] {}, {Two([&] {
                device::AtomicAddGlobal(x_.data(), 1);
                (void)Get(x_.data() + 1);
                // The halves of a word.
                Put(reinterpret_cast<uint16_t*>(x_.data() + 2) + BlockNumber(), uint16_t{1});
                // Equal values.
                Put(x_.data() + 4, 7);
              })});
  // What another kernel wrote.
  ExpectClean([] {}, {Two([&] {
                        if (BlockNumber() == 0) Put(x_.data() + Thread(), 1);
                      }),
                      Two([&] {
                        if (BlockNumber() == 1) Put(x_.data() + Thread(), 1);
                      })});
}

// Block 1 waits for block 0 in a loop: both must be alive.
class FlagTest : public BlocksTest {
 protected:
  void SetUp() override {
    BlocksTest::SetUp();
    emulator::Options options = emulator::GetOptions();
    options.blocks_at_once = 2;
    emulator::SetOptions(options);
  }
  void Body(bool fence_by_writer, bool fence_by_reader) {
    if (Thread() != 0) return;
    if (BlockNumber() == 0) {
      Put(x_.data(), 42);
      if (fence_by_writer) device::ThreadFence();
      device::AtomicExchangeGlobal(flag_.data(), 1u);
    } else {
      while (device::AtomicAddGlobal(flag_.data(), 0u) == 0) {
      }
      if (fence_by_reader) device::ThreadFence();
      EXPECT_EQ(Get(x_.data()), 42);
    }
  }
};

TEST_F(FlagTest, BothFences) {
  ExpectClean([&] { Begin(); }, {Two([&] { Body(true, true); })});
}

TEST_F(FlagTest, NoFenceByTheReader) {
  ExpectCaught({"reads byte 0 of the 256", "wrote, with no fence"}, [&] { Body(true, false); });
}

TEST_F(FlagTest, NoFenceByTheWriter) {
  ExpectCaught({"reads byte 0 of the 256", "wrote, with no fence"}, [&] { Body(false, true); });
}

TEST_F(FlagTest, FlagOfPlainAccesses) {
  ExpectCaught({"with no fence"}, [&] {
    if (Thread() != 0) return;
    if (BlockNumber() == 0) {
      Put(x_.data(), 42);
      device::ThreadFence();
      Put(flag_.data(), 1u);
    } else {
      while (Get(flag_.data()) == 0) device::ThreadFence();
    }
  });
}

TEST_F(FlagTest, CompareAndExchange) {
  ExpectClean([&] { Begin(); }, {Two([&] {
                if (Thread() != 0) return;
                if (BlockNumber() == 0) {
                  Put(x_.data(), 42);
                  device::ThreadFence();
                  EXPECT_EQ(device::AtomicCompareExchangeGlobal(flag_.data(), 0u, 1u), 0u);
                } else {
                  while (device::AtomicCompareExchangeGlobal(flag_.data(), 1u, 2u) != 1) {
                  }
                  device::ThreadFence();
                  EXPECT_EQ(Get(x_.data()), 42);
                }
              })});
  EXPECT_EQ(flag_[0], 2u);
}

TEST_F(FlagTest, AFailedCompareAndExchangeReleasesNothing) {
  ExpectCaught({"with no fence"}, [&] {
    if (Thread() != 0) return;
    if (BlockNumber() == 0) {
      Put(x_.data(), 42);
      device::ThreadFence();
      EXPECT_EQ(device::AtomicCompareExchangeGlobal(flag_.data(), 5u, 1u), 0u);
    } else {
      (void)device::AtomicAddGlobal(flag_.data(), 0u);
      device::ThreadFence();
      (void)Get(x_.data());
    }
  });
}

TEST_F(FlagTest, ChainOfThreeBlocks) {
  // Block 2 knows what block 0 wrote through block 1, if that fences between its two atomics.
  const auto body = [&](bool fence) {
    if (Thread() != 0) return;
    uint32_t* const flags = reinterpret_cast<uint32_t*>(x_.data() + 8);
    if (BlockNumber() == 0) {
      Put(x_.data(), 42);
      device::ThreadFence();
      device::AtomicExchangeGlobal(flags, 1u);
    } else {
      while (device::AtomicAddGlobal(flags + BlockNumber() - 1, 0u) == 0) {
      }
      if (fence || BlockNumber() == 2) device::ThreadFence();
      if (BlockNumber() == 1) device::AtomicExchangeGlobal(flags + 1, 1u);
      if (BlockNumber() == 2) {
        EXPECT_EQ(Get(x_.data()), 42);
      }
    }
  };
  emulator::Options options = emulator::GetOptions();
  options.blocks_at_once = 3;
  emulator::SetOptions(options);
  const auto launch = [&](bool fence) {
    return GridLaunch{
        .num_blocks = 3, .programmatic = false, .body = [&body, fence] { body(fence); }};
  };
  ExpectClean([&] { Begin(); }, {launch(true)});
  ExpectGridFault({"with no fence"}, [&] { Begin(); }, {launch(false)});
}

}  // namespace
}  // namespace minisgl::cuda
