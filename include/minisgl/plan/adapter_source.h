// Adapters that are loaded and dropped while requests run: of many, few are in memory at once.
//
// Called by the scheduler's thread; loads run on threads of the source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "minisgl/plan/adapter_slot.h"

namespace minisgl {

struct AdapterLoad {
  AdapterSlot adapter = kNoAdapter;
  std::string error;  // "": it is loaded, and steps that are launched later may have rows of it
};

class AdapterSource {
 public:
  virtual ~AdapterSource() = default;
  // Adapters 0 .. num_adapters() - 1, of which at most max_loaded() (at least 1) are loaded or
  // loading at once. None is at the start.
  virtual int32_t num_adapters() const = 0;
  virtual int32_t max_loaded() const = 0;
  // Begins a load, which ends through TakeFinished. REQUIRES an adapter that is not loaded, and
  // room for it.
  virtual void Load(AdapterSlot adapter) = 0;
  // Drops a loaded adapter after all launched steps. REQUIRES that no later step has rows of it,
  // until it is loaded again.
  virtual void Drop(AdapterSlot adapter) = 0;
  // Loads that ended since the last call.
  virtual std::vector<AdapterLoad> TakeFinished() = 0;
};

}  // namespace minisgl
