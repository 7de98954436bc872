#include "batch/tool_runner.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/check.h"

namespace minisgl::batch {
namespace {

// An answer may consist of calls alone, thousands of them; the results of so many would not fit
// into a prompt.
constexpr size_t kCallsOfAnswerMax = 128;
constexpr const char* kTooManyCalls = R"({"error": "the answer has too many calls"})";

}  // namespace

ToolRunner::ToolRunner(Run run, int64_t at_once, std::function<void()> notify)
    : run_(std::move(run)), at_once_(std::max<int64_t>(at_once, 1)), notify_(std::move(notify)) {}

ToolRunner::~ToolRunner() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    waiting_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ToolRunner::Add(int64_t row, std::vector<ToolCall> calls) {
  auto job = std::make_shared<Job>();
  job->row = row;
  job->calls = std::move(calls);
  bool needs_thread = false;
  {
    const std::lock_guard lock(mutex_);
    MINISGL_CHECK(jobs_.emplace(row, job).second, "calls of row {} are run already", row);
    waiting_.push_back(std::move(job));
    needs_thread = num_idle_ < static_cast<int64_t>(waiting_.size()) &&
                   static_cast<int64_t>(threads_.size()) < at_once_;
    if (needs_thread) ++num_idle_;
  }
  if (needs_thread) threads_.emplace_back([this] { Work(); });
  changed_.notify_one();
}

std::optional<ToolRunner::Finished> ToolRunner::Take() {
  std::shared_ptr<Job> job;
  {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) return std::nullopt;
    job = std::move(done_.front());
    done_.pop_front();
    jobs_.erase(job->row);
  }
  if (job->thrown) std::rethrow_exception(job->thrown);
  return Finished{job->row, std::move(job->texts)};
}

void ToolRunner::Cancel(int64_t row) {
  const std::lock_guard lock(mutex_);
  const auto found = jobs_.find(row);
  if (found == jobs_.end()) return;
  found->second->is_cancelled = true;
  std::erase(waiting_, found->second);
  std::erase(done_, found->second);
  jobs_.erase(found);
}

int64_t ToolRunner::num_rows() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(jobs_.size());
}

bool ToolRunner::IsCancelled(const Job& job) {
  const std::lock_guard lock(mutex_);
  return ends_ || job.is_cancelled;
}

void ToolRunner::RunJob(Job* job) {
  for (size_t i = 0; i < job->calls.size() && !IsCancelled(*job); ++i) {
    job->texts.push_back(i < kCallsOfAnswerMax
                             ? run_(job->calls[i], [this, job] { return IsCancelled(*job); })
                             : kTooManyCalls);
  }
}

// A thread counts as idle from before it is started, so that no second one is started for its job.
void ToolRunner::Work() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !waiting_.empty(); });
      if (ends_) return;
      job = std::move(waiting_.front());
      waiting_.pop_front();
      --num_idle_;
    }
    try {
      RunJob(job.get());
    } catch (...) {
      job->thrown = std::current_exception();
    }
    bool is_wanted = false;
    {
      const std::lock_guard lock(mutex_);
      ++num_idle_;
      is_wanted = !job->is_cancelled && !ends_;
      if (is_wanted) done_.push_back(job);
    }
    if (is_wanted && notify_) notify_();
  }
}

}  // namespace minisgl::batch
