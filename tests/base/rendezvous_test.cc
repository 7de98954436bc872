// Threads that meet get each other's pointers, every time, and none waits for one that has failed.
#include "minisgl/base/rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

namespace minisgl {
namespace {

void RunRanks(int32_t count, const std::function<void(int32_t)>& body) {
  std::vector<std::thread> threads;
  for (int32_t rank = 0; rank < count; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

// Plain writes before a meeting are read after it, without another synchronisation.
TEST(RendezvousTest, EveryRankSeesWhatAllHaveWritten) {
  for (const bool spins : {false, true}) {
    for (const int32_t count : {1, 2, 5}) {
      Rendezvous place(count, spins);
      std::vector<int64_t> values(static_cast<size_t>(count));
      std::atomic<int64_t> faults = 0;
      RunRanks(count, [&](int32_t rank) {
        int64_t* const own = &values[static_cast<size_t>(rank)];
        for (int64_t turn = 0; turn < 200; ++turn) {
          *own = turn * 10 + rank;
          const auto pointers = place.Meet(rank, own);
          for (int32_t other = 0; other < count; ++other) {
            const auto* const value =
                static_cast<const int64_t*>(pointers[static_cast<size_t>(other)]);
            if (*value != turn * 10 + other) ++faults;
          }
          place.Meet(rank, nullptr);
        }
      });
      EXPECT_EQ(faults, 0) << count;
    }
  }
}

TEST(RendezvousTest, AFailureEndsTheWaitOfAllOthers) {
  Rendezvous place(3, /*spins=*/false);
  for (int turn = 0; turn < 20; ++turn) {
    std::atomic<int> ended = 0;
    RunRanks(3, [&](int32_t rank) {
      if (rank == 1) return place.Fail();
      try {
        while (true) place.Meet(rank, nullptr);
      } catch (const RankFailed&) {
        ++ended;
      }
    });
    EXPECT_EQ(ended, 2);
    place.Reset();
    RunRanks(3, [&](int32_t rank) { EXPECT_EQ(place.Meet(rank, &place)[2], &place); });
  }
}

}  // namespace
}  // namespace minisgl
