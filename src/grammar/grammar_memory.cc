#include "minisgl/grammar/grammar_memory.h"

#include "grammar/machine.h"

namespace minisgl {
namespace {

// Less than this, or than half of the memory that stays, is not worth a drop.
constexpr size_t kDropBytesMin = size_t{256} << 10;

}  // namespace

using grammar::Machine;

size_t GrammarMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t GrammarMemory::num_drops() const {
  const std::lock_guard lock(mutex_);
  return num_drops_;
}

Machine* GrammarMemory::LongestUnused(const Machine* user, uint64_t after) const {
  Machine* found = nullptr;
  uint64_t found_time = UINT64_MAX;
  for (const auto& [machine, use] : uses_) {
    if (machine == user || use.last_used <= after || use.last_used >= found_time) continue;
    if (use.bytes < use.needed + use.needed / 2 + kDropBytesMin) continue;
    found = machine;
    found_time = use.last_used;
  }
  return found;
}

void GrammarMemory::Report(Machine* machine, size_t bytes) {
  const std::lock_guard lock(mutex_);
  Use& own = uses_[machine];
  bytes_ += bytes - own.bytes;
  own.bytes = bytes;
  own.last_used = ++time_;
  uint64_t tried = 0;  // machines last used up to this time have been tried
  while (bytes_ > bytes_max_) {
    Machine* const other = LongestUnused(machine, tried);
    if (other == nullptr) return;
    Use& use = uses_[other];
    tried = use.last_used;
    // This machine's lock is held, so do not wait for another one.
    if (!other->mutex.try_lock()) continue;
    const std::lock_guard other_lock(other->mutex, std::adopt_lock);
    other->DropCaches();
    const size_t left = other->memory_bytes();
    bytes_ += left - use.bytes;
    use.bytes = use.needed = left;
    ++num_drops_;
  }
}

void GrammarMemory::Forget(Machine* machine) {
  const std::lock_guard lock(mutex_);
  const auto found = uses_.find(machine);
  if (found == uses_.end()) return;
  bytes_ -= found->second.bytes;
  uses_.erase(found);
}

}  // namespace minisgl
