// Makes masks that take too much work for the scheduler's thread, on a thread of its own.
//
// A piece of one mask in turn, so that a light one is not held up by heavy ones. A mask is made no
// further if no one has it any more.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/grammar/token_masks.h"
#include "minisgl/sched/request.h"

namespace minisgl::runtime {

// A mask that is being made. Until it is done, only the maker's thread uses it; after that, every
// holder may read the mask.
class LateMask {
 public:
  // `keeper` keeps `masks` alive.
  LateMask(std::shared_ptr<const void> keeper, const TokenMasks* masks, const Matcher& matcher)
      : keeper_(std::move(keeper)), work_(masks, matcher) {}

  MaskWork& work() { return work_; }
  bool done() const { return state_ != State::kMaking; }
  bool failed() const { return state_ == State::kFailed; }  // memory ran out
  void SetDone(bool failed) { state_ = failed ? State::kFailed : State::kMade; }

 private:
  enum class State : uint8_t { kMaking, kMade, kFailed };
  std::shared_ptr<const void> keeper_;
  MaskWork work_;
  std::atomic<State> state_ = State::kMaking;
};

// Thread-safe.
class MaskMaker {
 public:
  // `wake` is called on the maker's thread when masks are ready.
  explicit MaskMaker(std::function<void()> wake);
  ~MaskMaker();  // masks that are not made stay so

  // Goes on with the mask of `id` until it is done.
  void Add(RequestId id, const std::shared_ptr<LateMask>& mask);
  // The requests whose masks became done since the last call.
  std::vector<RequestId> TakeReady();

  int64_t num_added() const;  // so far

 private:
  struct Job {
    RequestId id = 0;
    std::weak_ptr<LateMask> mask;
    int64_t num_pieces = 0;  // made
  };

  void Work();

  const std::function<void()> wake_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<RequestId> ready_;
  int64_t num_added_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // begins with the first job
};

}  // namespace minisgl::runtime
