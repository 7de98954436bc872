// An upper bound on the memory of several grammars' tables and masks together.
//
// Most of them are caches. If they take too much memory, the caches of the grammars that were used
// the longest time ago are dropped, and computed again when they are needed. Answers do not depend
// on it. A grammar also needs memory that is no cache, so very many large grammars may exceed the
// bound. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace minisgl {

namespace grammar {
class Machine;
}

class GrammarMemory {
 public:
  explicit GrammarMemory(size_t bytes_max) : bytes_max_(bytes_max) {}

  size_t bytes() const;
  int64_t num_drops() const;  // times that the caches of a grammar were dropped

 private:
  friend class grammar::Machine;

  struct Use {
    size_t bytes = 0;
    size_t needed = 0;  // estimate of the bytes left after its caches are dropped
    uint64_t last_used = 0;
  };

  // Records that `machine` holds `bytes` bytes. REQUIRES that the caller holds its lock. If all
  // machines hold too much, drops caches of others whose locks are free.
  void Report(grammar::Machine* machine, size_t bytes);
  void Forget(grammar::Machine* machine);
  // Returns the machine other than `user` with caches worth a drop that was used the longest time
  // ago, but after `after`; null if there is none.
  grammar::Machine* LongestUnused(const grammar::Machine* user, uint64_t after) const;

  const size_t bytes_max_;
  mutable std::mutex mutex_;  // taken after the lock of a machine, guards what follows
  std::map<grammar::Machine*, Use> uses_;
  size_t bytes_ = 0;
  uint64_t time_ = 0;  // number of reports
  int64_t num_drops_ = 0;
};

}  // namespace minisgl
