// The counters that the scheduler reports, gathered from those who keep them.
#include "sched/scheduler_impl.h"

namespace minisgl {

SchedulerStats Scheduler::Stats() const {
  SchedulerStats stats = impl_->context.stats;
  const CacheManager& cache = impl_->pages.cache();
  const sched::SessionTable& sessions = impl_->queues.sessions();
  stats.waiting = static_cast<int64_t>(impl_->queues.waiting().size());
  stats.running = static_cast<int64_t>(impl_->pages.running().size());
  stats.pages_total = cache.pool().num_pages();
  stats.pages_free = cache.pool().num_free();
  stats.pages_cached = cache.cache().num_evictable() + cache.cache().num_locked();
  stats.pages_locked = cache.cache().num_locked();
  stats.pages_peak = impl_->pages.pages_peak();
  stats.evicted_pages = cache.num_evicted();
  if (cache.windows() != nullptr) {
    stats.window_pages_total = cache.windows()->num_window_pages();
    stats.window_pages_free = cache.windows()->num_free();
    stats.reclaimed_window_pages = cache.windows()->num_reclaimed();
  }
  if (const StatePool* states = impl_->pages.states().pool(); states != nullptr) {
    stats.state_slots_total = states->num_slots();
    stats.state_slots_free = states->num_free();
    stats.snapshots = states->num_snapshots();
    stats.evicted_snapshots = states->num_evicted();
  }
  stats.encoded_inputs = impl_->encoders.num_encoded();
  stats.reused_inputs = impl_->encoders.num_reused();
  stats.sessions = sessions.size();
  stats.session_pages = sessions.num_pages();
  const sched::KvSaver& saver = impl_->pages.saver();
  stats.saved_pages = saver.saved_pages();
  stats.dropped_pages = saver.dropped_pages();
  stats.saved_states = saver.saved_states();
  stats.saves = saver.num_saves();
  stats.saving_pages = saver.num_pages();
  return stats;
}

}  // namespace minisgl
