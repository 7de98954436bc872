// The loop that joins scheduler and engine. Threads: callers put submissions and aborts into the
// inbox under a mutex; the runtime's own thread owns everything else.
#include "minisgl/runtime/runtime.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "minisgl/base/check.h"
#include "runtime/answer.h"

namespace minisgl {
namespace {

class SchedulerRuntime : public Runtime {
 public:
  SchedulerRuntime(std::unique_ptr<Engine> engine, const Tokenizer* tokenizer,
                   const RuntimeOptions& options)
      : engine_(std::move(engine)),
        limits_(engine_->limits()),
        tokenizer_(tokenizer),
        depth_(options.overlap ? 1 : 0),
        scheduler_(limits_, options.scheduler),
        started_(Answer::Clock::now()) {
    stats_.scheduler = scheduler_.Stats();
    thread_ = std::thread([this] { Run(); });
  }

  ~SchedulerRuntime() override {
    {
      std::lock_guard lock(mutex_);
      inbox_.shutdown = true;
      wake_.notify_one();
    }
    thread_.join();
  }

  RequestId Submit(Prompt prompt, EventQueue* queue, uint64_t tag) override {
    std::vector<Prompt> prompts;
    prompts.push_back(std::move(prompt));
    return SubmitAll(std::move(prompts), queue, {tag}).front();
  }

  std::vector<RequestId> SubmitAll(std::vector<Prompt> prompts, EventQueue* queue,
                                   const std::vector<uint64_t>& tags) override {
    MINISGL_CHECK(prompts.size() == tags.size(), "{} prompts, {} tags", prompts.size(),
                  tags.size());
    const auto now = Answer::Clock::now();
    std::vector<RequestId> ids;
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < prompts.size(); ++i) {
      ids.push_back(next_id_++);
      inbox_.submissions.push_back({ids.back(), tags[i], std::move(prompts[i]), queue, now});
    }
    wake_.notify_one();
    return ids;
  }

  void Abort(RequestId request) override {
    std::lock_guard lock(mutex_);
    inbox_.aborts.push_back(request);
    wake_.notify_one();
  }

  RuntimeStats Stats() const override {
    std::lock_guard lock(mutex_);
    RuntimeStats stats = stats_;
    stats.uptime_s = std::chrono::duration<double>(Answer::Clock::now() - started_).count();
    return stats;
  }

  const EngineLimits& limits() const override { return limits_; }

 private:
  struct Submission {
    RequestId id;
    uint64_t tag;
    Prompt prompt;
    EventQueue* queue;
    Answer::Clock::time_point time;
  };
  struct Inbox {
    std::deque<Submission> submissions;
    std::vector<RequestId> aborts;
    bool shutdown = false;
    bool empty() const { return submissions.empty() && aborts.empty(); }
  };

  void Run();
  void Serve();
  void FailAll(const char* what);
  // What arrived since the last call. With `wait`, sleeps until something does.
  Inbox TakeInbox(bool wait);
  void Take(Submission submission);
  Status CheckPrompt(const Prompt& prompt) const;
  // Passes the scheduler's events on; a stop string found makes new ones.
  void HandleEvents();
  void Finish(const SchedEvent& event);
  void PublishStats();
  // In every build: with nothing to do, no page is lost and none is held.
  void CheckIdle() const;

  std::unique_ptr<Engine> engine_;
  const EngineLimits limits_;
  const Tokenizer* tokenizer_;
  const int depth_;  // steps that may stay in flight while the next is planned
  Scheduler scheduler_;
  std::map<RequestId, Answer> answers_;
  Inbox inbox_taken_;  // what is being worked on
  int in_flight_ = 0;
  std::vector<double> new_first_token_s_, new_between_tokens_s_;  // since the last PublishStats
  const Answer::Clock::time_point started_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  Inbox inbox_;
  RequestId next_id_ = 1;
  RuntimeStats stats_;

  std::thread thread_;  // last: starts when all else is there
};

SchedulerRuntime::Inbox SchedulerRuntime::TakeInbox(bool wait) {
  std::unique_lock lock(mutex_);
  if (wait) wake_.wait(lock, [this] { return !inbox_.empty() || inbox_.shutdown; });
  Inbox taken = std::move(inbox_);
  inbox_ = Inbox();
  inbox_.shutdown = taken.shutdown;
  return taken;
}

void SchedulerRuntime::Run() {
  try {
    Serve();
  } catch (const std::exception& error) {
    FailAll(error.what());
  }
}

void SchedulerRuntime::Serve() {
  bool nothing_to_do = false;
  while (true) {
    inbox_taken_ = TakeInbox(nothing_to_do);
    while (!inbox_taken_.submissions.empty()) {
      // Known before it is worked on: whatever happens, it gets its answer.
      const Submission& next = inbox_taken_.submissions.front();
      answers_.try_emplace(next.id, next.id, next.tag, next.prompt, tokenizer_, next.queue,
                           next.time);
      Submission submission = std::move(inbox_taken_.submissions.front());
      inbox_taken_.submissions.pop_front();
      Take(std::move(submission));
    }
    for (RequestId id : inbox_taken_.aborts) scheduler_.Abort(id);
    if (inbox_taken_.shutdown) {
      std::vector<RequestId> left;
      for (const auto& [id, answer] : answers_) left.push_back(id);
      for (RequestId id : left) scheduler_.Abort(id);
    }
    HandleEvents();

    const auto plan = scheduler_.Next();
    if (plan != nullptr) {
      engine_->Launch(plan);
      ++in_flight_;
    }
    const bool collects = in_flight_ > depth_ || (plan == nullptr && in_flight_ > 0);
    if (collects) {
      scheduler_.Collect(engine_->Collect());
      --in_flight_;
      HandleEvents();
    }
    // What was just collected may have made room for what waits.
    nothing_to_do = plan == nullptr && !collects;
    MINISGL_CHECK(!nothing_to_do || scheduler_.Idle(), "nothing runs and something waits: {}",
                  scheduler_.DebugString());
    if (nothing_to_do) CheckIdle();
    PublishStats();
    if (inbox_taken_.shutdown && nothing_to_do) return;
  }
}

// Out of memory, most likely, in a place that cannot be made good: nothing can run any more, and
// everybody is told so.
void SchedulerRuntime::FailAll(const char* what) {
  while (true) {
    for (auto& [id, answer] : answers_) answer.Fail("internal", what);
    answers_.clear();
    for (const Submission& submission : inbox_taken_.submissions) {
      Answer(submission.id, submission.tag, submission.prompt, nullptr, submission.queue,
             submission.time)
          .Fail("internal", what);
    }
    if (inbox_taken_.shutdown) return;
    inbox_taken_ = TakeInbox(/*wait=*/true);
  }
}

Status SchedulerRuntime::CheckPrompt(const Prompt& prompt) const {
  if (prompt.ids.empty()) return BadInput("the prompt is empty");
  for (TokenId id : prompt.ids) {
    if (id < 0 || id >= limits_.vocab_size) {
      return BadInput("token id {} is outside the model's vocabulary of {}", id,
                      limits_.vocab_size);
    }
  }
  if (prompt.max_tokens == 0) return BadInput("max_tokens is 0");
  return Status();
}

void SchedulerRuntime::Take(Submission submission) {
  Prompt& prompt = submission.prompt;
  std::sort(prompt.stop_token_ids.begin(), prompt.stop_token_ids.end());
  if (prompt.sampling.min_tokens > 0) prompt.sampling.banned_until_min = prompt.stop_token_ids;
  const auto place = answers_.find(submission.id);
  Answer& answer = place->second;
  if (const Status status = CheckPrompt(prompt); !status.ok()) {
    answer.Fail("invalid_row", status.message());
    answers_.erase(place);
    return;
  }
  const int64_t pool_tokens = int64_t{limits_.num_pages} * limits_.page_size + 1;
  const int64_t capacity = std::min<int64_t>(limits_.max_seq_len, pool_tokens);
  const auto prompt_len = static_cast<int64_t>(prompt.ids.size());
  if (prompt_len >= capacity) {
    answer.Fail("length_exceeded",
                fmt::format("the prompt has {} tokens; at most {} leave room for an answer",
                            prompt_len, capacity - 1));
    answers_.erase(place);
    return;
  }
  Request request;
  request.id = submission.id;
  request.max_tokens = capacity - prompt_len;
  if (prompt.max_tokens > request.max_tokens) answer.set_max_tokens_lowered();
  if (prompt.max_tokens > 0) request.max_tokens = std::min(request.max_tokens, prompt.max_tokens);
  request.prompt = std::move(prompt.ids);
  request.sampling = std::move(prompt.sampling);
  request.stop_ids = std::move(prompt.stop_token_ids);
  request.priority = prompt.priority;
  scheduler_.Submit(std::move(request));
}

void SchedulerRuntime::HandleEvents() {
  while (true) {
    const std::vector<SchedEvent> events = scheduler_.TakeEvents();
    if (events.empty()) return;
    for (const SchedEvent& event : events) {
      if (event.kind == SchedEvent::Kind::kEnd) {
        Finish(event);
      } else if (const auto found = answers_.find(event.id); found != answers_.end()) {
        if (found->second.AcceptToken(event.token)) scheduler_.Stop(event.id);
      }
    }
  }
}

void SchedulerRuntime::Finish(const SchedEvent& event) {
  const auto found = answers_.find(event.id);
  MINISGL_CHECK(found != answers_.end(), "request {} ended twice", event.id);
  Answer& answer = found->second;
  if (const auto first = answer.first_token_s()) new_first_token_s_.push_back(*first);
  if (const auto between = answer.between_tokens_s()) new_between_tokens_s_.push_back(*between);
  PublishStats();  // first: who sees the end sees it counted
  answer.End(event);
  answers_.erase(found);
}

void SchedulerRuntime::CheckIdle() const {
  const SchedulerStats stats = scheduler_.Stats();
  MINISGL_CHECK(
      stats.pages_free + stats.pages_cached == stats.pages_total && stats.pages_locked == 0,
      "idle, with pages lost or held: {}", scheduler_.DebugString());
}

void SchedulerRuntime::PublishStats() {
  const SchedulerStats scheduler_stats = scheduler_.Stats();
  std::lock_guard lock(mutex_);
  stats_.scheduler = scheduler_stats;
  const auto append = [](std::vector<double>& from, std::vector<double>* to) {
    to->insert(to->end(), from.begin(), from.end());
    from.clear();
  };
  append(new_first_token_s_, &stats_.first_token_s);
  append(new_between_tokens_s_, &stats_.between_tokens_s);
}

}  // namespace

Result<std::unique_ptr<Runtime>> Runtime::Create(std::unique_ptr<Engine> engine,
                                                 const Tokenizer* tokenizer,
                                                 const RuntimeOptions& options) {
  if (engine->limits().max_in_flight < 2 && options.overlap) {
    return MakeStatus(StatusCode::kInternal,
                      "the engine takes one step at a time; overlap needs two");
  }
  const EngineLimits& limits = engine->limits();
  if (options.scheduler.max_prefill_tokens + limits.max_running_requests > limits.max_step_tokens) {
    return MakeStatus(StatusCode::kInternal,
                      "{} prefill tokens and {} rows do not fit in the engine's steps of {} tokens",
                      options.scheduler.max_prefill_tokens, limits.max_running_requests,
                      limits.max_step_tokens);
  }
  return std::unique_ptr<Runtime>(
      std::make_unique<SchedulerRuntime>(std::move(engine), tokenizer, options));
}

}  // namespace minisgl
