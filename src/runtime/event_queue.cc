#include <condition_variable>
#include <deque>
#include <mutex>

#include "minisgl/runtime/runtime.h"

namespace minisgl {

struct EventQueue::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Event> events;
  bool interrupted = false;
};

EventQueue::EventQueue() : state_(std::make_unique<State>()) {}
EventQueue::~EventQueue() = default;

void EventQueue::Push(Event event) {
  {
    std::lock_guard lock(state_->mutex);
    state_->events.push_back(std::move(event));
    // Under the lock: once the popper has seen the last event it may destroy the queue.
    state_->wake.notify_one();
  }
}

std::optional<Event> EventQueue::Pop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  // A wait of no time would still cost a sleep of the timer's slack.
  if (timeout > timeout.zero()) {
    state_->wake.wait_for(lock, timeout,
                          [this] { return !state_->events.empty() || state_->interrupted; });
  }
  state_->interrupted = false;
  if (state_->events.empty()) return std::nullopt;
  Event event = std::move(state_->events.front());
  state_->events.pop_front();
  return event;
}

void EventQueue::Interrupt() {
  std::lock_guard lock(state_->mutex);
  state_->interrupted = true;
  state_->wake.notify_one();
}

}  // namespace minisgl
