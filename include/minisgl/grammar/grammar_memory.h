// Bounds what the tables and masks of several grammars hold together.
//
// They are caches for the most part. If all together are too large, those of the grammars that were
// used the longest time ago are dropped, and computed again when they are needed. Answers do not
// depend on it. What a grammar needs for itself is not counted as a cache: that of very many large
// ones may pass the bound. Thread-safe.
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
    size_t needed = 0;  // about what is left if its caches are dropped
    uint64_t last_used = 0;
  };

  // Records that `machine` holds `bytes` bytes. REQUIRES that the caller holds its lock. If all
  // machines hold too much, drops caches of others whose locks are free.
  void Report(grammar::Machine* machine, size_t bytes);
  void Forget(grammar::Machine* machine);
  // Of those that may be dropped, and were used after `after`, but `user`: the one that was used
  // the longest time ago. Null if there is none.
  grammar::Machine* LongestUnused(const grammar::Machine* user, uint64_t after) const;

  const size_t bytes_max_;
  mutable std::mutex mutex_;  // taken after the lock of a machine, guards what follows
  std::map<grammar::Machine*, Use> uses_;
  size_t bytes_ = 0;
  uint64_t time_ = 0;  // number of reports
  int64_t num_drops_ = 0;
};

}  // namespace minisgl
