// The threads of an engine's ranks on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "minisgl/base/rendezvous.h"

namespace minisgl::engine {

// Runs work on all ranks at once: on the caller's thread for the first rank, unless the ranks have
// processors of their own, and on a thread of its own for each other one. Used by one thread.
class RankThreads {
 public:
  // `rendezvous`: where the ranks meet in their work; null: there is one rank. Throws
  // std::system_error if a thread cannot be started.
  // `cpus`: the logical CPUs that each rank's thread may run on; empty: all.
  explicit RankThreads(std::shared_ptr<Rendezvous> rendezvous,
                       std::vector<std::vector<int>> cpus = {});
  // Ranks that wait for each other on devices, too. `on_fault` is called on the thread of a rank
  // whose work throws, and keeps others from waiting for it.
  RankThreads(std::shared_ptr<Rendezvous> rendezvous, std::function<void()> on_fault);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  int32_t num_ranks() const;

  // Calls work(rank) for each rank, and returns after all have ended. If any throws, the others are
  // kept from waiting for it, and what it threw is rethrown. The ranks may then run again.
  void Run(const std::function<void(int32_t rank)>& work);

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace minisgl::engine
