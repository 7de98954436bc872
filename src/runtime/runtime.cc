// The runtime's thread, which runs the serving loop. Callers put commands into the inbox under a
// mutex, in order; the thread owns everything else.
#include "minisgl/runtime/runtime.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>

#include "minisgl/base/check.h"
#include "minisgl/base/out_of_memory.h"
#include "minisgl/base/system_info.h"
#include "runtime/grammar_compiler.h"
#include "runtime/prefix_source.h"
#include "runtime/serve_loop.h"

namespace minisgl::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// Interval at which a KV source is polled while all requests wait for it, or while it saves: it
// cannot wake the thread.
constexpr auto kSourcePoll = std::chrono::milliseconds(1);

// One thread reads, checks and reorders 2 GB/s, eight 11 to 12, twelve less (on 16 processors
// beside an H200). Half of the processors stay for everything else.
int NumStoreThreads() {
  const auto num_cpus = static_cast<int>(UsableCpus().size());
  return std::clamp(num_cpus / 2, 1, 8);
}

RuntimeOptions WithSource(RuntimeOptions options, KvSource* source) {
  if (source != nullptr) options.scheduler.kv_source = source;
  return options;
}

class SchedulerRuntime : public Runtime {
 public:
  SchedulerRuntime(std::unique_ptr<Engine> engine, const Tokenizer* tokenizer,
                   const RuntimeOptions& options)
      : engine_(std::move(engine)),
        limits_(engine_->limits()),
        store_(options.kv_store),
        source_(store_ == nullptr
                    ? nullptr
                    : std::make_unique<PrefixSource>(engine_.get(), store_.get(),
                                                     MakeWorkThreads(NumStoreThreads()))),
        has_source_(source_ != nullptr || options.scheduler.kv_source != nullptr ||
                    engine_->adapter_source() != nullptr),
        grammars_(tokenizer == nullptr ? nullptr
                                       : std::make_unique<GrammarCompiler>(
                                             tokenizer, limits_.vocab_size, [this] { Wake(); })),
        loop_(
            engine_.get(), tokenizer, WithSource(options, source_.get()), &Clock::now,
            [this](const RuntimeStats& news) { TakeStats(news); }, grammars_.get()),
        started_(Clock::now()) {
    stats_ = loop_.Stats();
    thread_ = std::thread([this] { Run(); });
  }

  ~SchedulerRuntime() override {
    {
      std::lock_guard lock(mutex_);
      shutdown_ = true;
      wake_.notify_one();
    }
    thread_.join();
    grammars_.reset();  // its thread calls Wake
    source_.reset();    // its copies are the engine's
    // Before the scheduler: after a failure steps may be in flight, which read the sampling
    // parameters of requests.
    engine_.reset();
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
    const auto now = Clock::now();
    std::vector<RequestId> ids;
    ids.reserve(prompts.size());
    std::lock_guard lock(mutex_);
    const size_t inbox_before = inbox_.size();
    try {
      for (size_t i = 0; i < prompts.size(); ++i) {
        ids.push_back(next_request_++);
        inbox_.push_back(Submission{ids.back(), tags[i], std::move(prompts[i]), queue, now});
      }
    } catch (...) {
      // Take back those that were added before memory ran out: the caller does not wait for them,
      // and their queue may be destroyed.
      while (inbox_.size() > inbox_before) inbox_.pop_back();
      throw;
    }
    wake_.notify_one();
    return ids;
  }

  void Abort(RequestId request) override {
    std::lock_guard lock(mutex_);
    Post(AbortCommand{request});
  }

  SessionId OpenSession() override {
    std::lock_guard lock(mutex_);
    Post(OpenSessionCommand{next_session_});
    return next_session_++;
  }

  void CloseSession(SessionId session) override {
    std::lock_guard lock(mutex_);
    Post(CloseSessionCommand{session});
  }

  void FinishSaves(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    // The figures of a request are there before its kDone.
    const auto is_saved = [this] { return has_failed_ || stats_.scheduler.saves == 0; };
    if (saved_.wait_for(lock, timeout, is_saved)) return;
    Post(DropSavesCommand{});
    saved_.wait(lock, is_saved);  // for the blocks under way
  }

  void ResetPrefixCache() override {
    std::lock_guard lock(mutex_);
    Post(ResetCacheCommand{});
  }

  RuntimeStats Stats() const override {
    std::lock_guard lock(mutex_);
    RuntimeStats stats = stats_;
    stats.uptime_s = std::chrono::duration<double>(Clock::now() - started_).count();
    return stats;
  }

  const EngineLimits& limits() const override { return limits_; }

 private:
  struct AbortCommand {
    RequestId id;
  };
  struct OpenSessionCommand {
    SessionId id;
  };
  struct CloseSessionCommand {
    SessionId id;
  };
  struct DropSavesCommand {};
  struct ResetCacheCommand {};
  using Command = std::variant<Submission, AbortCommand, OpenSessionCommand, CloseSessionCommand,
                               DropSavesCommand, ResetCacheCommand>;

  // Lets the thread look for grammars that are compiled.
  void Wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    wake_.notify_one();
  }
  // REQUIRES the mutex to be held.
  void Post(Command command) {
    inbox_.push_back(std::move(command));
    wake_.notify_one();
  }

  void Run();
  // Takes the commands that arrived since the last call. With `sleeps`, waits until one arrives, a
  // deadline passes, or it is time to poll the source.
  void TakeInbox(bool sleeps);
  std::optional<Clock::time_point> WakeTime() const;
  void Execute(Command* command);
  void FailAll(const char* code, const char* message) noexcept;
  static void WaitForMemory(int tries) noexcept;
  void TakeStats(const RuntimeStats& news);

  std::unique_ptr<Engine> engine_;
  const EngineLimits limits_;
  const std::shared_ptr<KvBlockStore> store_;
  std::unique_ptr<PrefixSource> source_;
  const bool has_source_;
  std::unique_ptr<GrammarCompiler> grammars_;
  ServeLoop loop_;
  std::deque<Command> taken_;  // from the inbox, not yet executed
  bool is_ending_ = false;     // the thread has seen shutdown_
  const Clock::time_point started_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::deque<Command> inbox_;
  bool shutdown_ = false;
  bool woken_ = false;  // since the thread slept last
  RequestId next_request_ = 1;
  SessionId next_session_ = 1;
  RuntimeStats stats_;
  bool has_failed_ = false;        // no request runs any more
  std::condition_variable saved_;  // stats_ or has_failed_ changed

  std::thread thread_;  // last: starts after all other members
};

void SchedulerRuntime::Run() {
  bool sleeps = false;
  int tries = 0;  // failed ones since the last success
  while (true) {
    try {
      TakeInbox(sleeps);
      for (; !taken_.empty(); taken_.pop_front()) Execute(&taken_.front());
      if (is_ending_) {
        loop_.AbortAll();
        loop_.DropSaves();
      }
      sleeps = !loop_.Turn();
      tries = 0;
    } catch (const std::bad_alloc&) {
      if (++tries > 1) WaitForMemory(tries);
      FailAll("out_of_memory",
              "out of memory; run fewer requests at once, or make the KV pool smaller");
      sleeps = false;  // commands taken from the inbox must be answered too
    } catch (const std::exception& error) {
      FailAll("internal", error.what());
      sleeps = false;
    }
    if (is_ending_ && sleeps && loop_.Idle() && !loop_.Saving()) break;
  }
  try {
    loop_.FinishTrace();
  } catch (const std::bad_alloc&) {
    // The trace stays incomplete; its readers accept that.
  }
}

// Called after `tries` consecutive allocation failures. Exits after about one second of them, so
// that callers do not wait forever.
void SchedulerRuntime::WaitForMemory(int tries) noexcept {
  constexpr int kTriesMax = 100;
  if (tries == kTriesMax) ExitOutOfMemory();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

// Failing the requests takes memory too. If it runs out, the remaining ones are failed when memory
// is free again.
void SchedulerRuntime::FailAll(const char* code, const char* message) noexcept {
  {
    const std::lock_guard lock(mutex_);
    has_failed_ = true;
    saved_.notify_all();
  }
  for (int tries = 1;; ++tries) {
    try {
      return loop_.FailAll(code, message);
    } catch (...) {
      WaitForMemory(tries);
    }
  }
}

void SchedulerRuntime::TakeInbox(bool sleeps) {
  const auto wake_time = WakeTime();
  std::unique_lock lock(mutex_);
  const auto is_wanted = [this] { return !inbox_.empty() || shutdown_ != is_ending_ || woken_; };
  if (sleeps && wake_time) wake_.wait_until(lock, *wake_time, is_wanted);
  if (sleeps && !wake_time) wake_.wait(lock, is_wanted);
  is_ending_ = shutdown_;
  woken_ = false;
  if (taken_.empty()) std::swap(taken_, inbox_);
}

std::optional<Clock::time_point> SchedulerRuntime::WakeTime() const {
  std::optional<Clock::time_point> time = loop_.NextDeadline();
  if (has_source_ && (!loop_.Idle() || loop_.Saving())) {
    const auto poll = Clock::now() + kSourcePoll;
    time = std::min(time.value_or(poll), poll);
  }
  return time;
}

void SchedulerRuntime::Execute(Command* command) {
  if (auto* submission = std::get_if<Submission>(command)) {
    // queue == nullptr: Submit threw halfway through earlier, and the request was already answered.
    if (submission->queue != nullptr) loop_.Submit(std::move(*submission));
  } else if (const auto* abort = std::get_if<AbortCommand>(command)) {
    loop_.Abort(abort->id);
  } else if (const auto* open = std::get_if<OpenSessionCommand>(command)) {
    loop_.OpenSession(open->id);
  } else if (const auto* close = std::get_if<CloseSessionCommand>(command)) {
    loop_.CloseSession(close->id);
  } else if (std::holds_alternative<DropSavesCommand>(*command)) {
    loop_.DropSaves();
  } else if (std::holds_alternative<ResetCacheCommand>(*command)) {
    loop_.ResetPrefixCache();
  }
}

void SchedulerRuntime::TakeStats(const RuntimeStats& news) {
  std::lock_guard lock(mutex_);
  stats_.scheduler = news.scheduler;
  stats_.waiting_s.Add(news.waiting_s);
  stats_.first_token_s.Add(news.first_token_s);
  stats_.between_tokens_s.Add(news.between_tokens_s);
  stats_.host_step_s.Add(news.host_step_s);
  if (stats_.scheduler.saves == 0) saved_.notify_all();
}

}  // namespace
}  // namespace minisgl::runtime

namespace minisgl {

Result<std::unique_ptr<Runtime>> Runtime::Create(std::unique_ptr<Engine> engine,
                                                 const Tokenizer* tokenizer,
                                                 const RuntimeOptions& options) {
  const bool lacks_states = engine->limits().num_state_slots > 0 && engine->StateBytes() == 0;
  if (options.kv_store != nullptr && (engine->KvBlockBytes(kKvBlockTokens) == 0 || lacks_states)) {
    return MakeStatus(StatusCode::kInternal, "the engine's keys and values cannot be kept");
  }
  if (engine->limits().max_in_flight < 2 && options.overlap) {
    return MakeStatus(StatusCode::kInternal,
                      "overlap needs an engine that takes two steps at a time");
  }
  const EngineLimits& limits = engine->limits();
  if (options.scheduler.max_prefill_tokens + limits.max_running_requests > limits.max_step_tokens) {
    return MakeStatus(StatusCode::kInternal,
                      "{} prefill tokens and {} rows do not fit in the engine's steps of {} tokens",
                      options.scheduler.max_prefill_tokens, limits.max_running_requests,
                      limits.max_step_tokens);
  }
  if (options.scheduler.max_drafts > 0 &&
      ((options.scheduler.drafter == nullptr && !limits.makes_drafts) ||
       limits.max_step_drafts < 1)) {
    return MakeStatus(
        StatusCode::kInternal,
        "drafts of up to {} tokens require a drafter and an engine that verifies them",
        options.scheduler.max_drafts);
  }
  return std::unique_ptr<Runtime>(
      std::make_unique<runtime::SchedulerRuntime>(std::move(engine), tokenizer, options));
}

}  // namespace minisgl
