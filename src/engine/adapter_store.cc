// See adapter_store.h.
#include "engine/adapter_store.h"

#include <exception>
#include <new>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::engine {

AdapterStore::AdapterStore(int32_t num_adapters, int32_t max_loaded, Pack pack, Set set)
    : num_adapters_(num_adapters),
      max_loaded_(max_loaded),
      pack_(std::move(pack)),
      set_(std::move(set)),
      thread_([this] { Work(); }) {}

AdapterStore::~AdapterStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AdapterStore::Load(AdapterSlot adapter) {
  {
    const std::lock_guard lock(mutex_);
    wanted_.push_back(adapter);
  }
  changed_.notify_all();
}

std::vector<AdapterLoad> AdapterStore::TakeFinished() {
  std::vector<Finished> finished;
  {
    const std::lock_guard lock(mutex_);
    finished.swap(finished_);
  }
  std::vector<AdapterLoad> loads;
  for (Finished& one : finished) {
    loads.push_back({one.adapter, one.status.message()});
    if (one.status.ok()) set_(one.adapter, std::move(one.packed));
  }
  return loads;
}

void AdapterStore::Freed() {
  {
    const std::lock_guard lock(mutex_);
    --num_in_memory_;
  }
  changed_.notify_all();
}

// A fault while one is loaded is the result of that load only.
AdapterStore::Finished AdapterStore::PackOne(AdapterSlot adapter) const {
  try {
    auto packed = pack_(adapter);
    if (packed.ok()) return {adapter, Status(), std::move(packed).value()};
    return {adapter, packed.status(), {}};
  } catch (const std::bad_alloc&) {
    return {adapter, Status(StatusCode::kOutOfMemory, "no memory for the adapter"), {}};
  } catch (const std::exception& error) {
    return {adapter, Status(StatusCode::kInternal, Visible(error.what())), {}};
  }
}

void AdapterStore::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(
        lock, [this] { return stopping_ || (!wanted_.empty() && num_in_memory_ < max_loaded_); });
    if (stopping_) return;
    const AdapterSlot adapter = wanted_.front();
    wanted_.pop_front();
    ++num_in_memory_;
    lock.unlock();
    Finished finished = PackOne(adapter);
    lock.lock();
    if (!finished.status.ok()) --num_in_memory_;
    finished_.push_back(std::move(finished));
  }
}

}  // namespace minisgl::engine
