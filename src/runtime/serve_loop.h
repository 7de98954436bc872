// What the runtime's thread does, without the thread: requests go to the scheduler, steps to the
// engine, tokens and ends to the answers' queues. No mutex, no sleep, and time comes from outside,
// so that a simulation drives this very code.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "minisgl/engine/engine.h"
#include "minisgl/runtime/runtime.h"
#include "minisgl/sched/scheduler.h"
#include "runtime/answer.h"
#include "runtime/trace_writer.h"

namespace minisgl::runtime {

struct Submission {
  RequestId id = 0;  // never used before
  uint64_t tag = 0;
  Prompt prompt;
  EventQueue* queue = nullptr;
  std::chrono::steady_clock::time_point time;  // of Submit: deadline and latencies count from it
};

class ServeLoop {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // Takes what Runtime::Stats is made of: the scheduler's figures as they are, and of the
  // histograms what came since the last call. Called every turn, mostly with empty histograms; what
  // there is to say of a request was said before its kDone is pushed.
  using StatsSink = std::function<void(const RuntimeStats& news)>;

  // `engine` and `tokenizer` (which may be null) outlive it. Without a `stats_sink` the loop keeps
  // the figures: see Stats.
  ServeLoop(Engine* engine, const Tokenizer* tokenizer, const RuntimeOptions& options,
            std::function<Time()> now, StatsSink stats_sink = {});

  // Takes it: from here on it gets its answer whatever happens, and `submission.queue` is null.
  void Submit(Submission&& submission);
  void Abort(RequestId id);
  void OpenSession(SessionId id);  // REQUIRES a new id
  void CloseSession(SessionId id);
  // Ends all that is there, and closes all sessions.
  void AbortAll();

  // One round: deadlines, a step planned and launched, a step collected, events handed out. False
  // where there was nothing to do: before something is submitted, a deadline passes or what waits
  // outside comes, another round will not find anything either. What it throws is for FailAll.
  bool Turn();

  // After an exception, memory that ran out most likely, in a place that cannot be made good:
  // nothing can run any more. Fails all that is there, and all that is submitted later at once. May
  // throw where memory is short still: called again, it goes on where it was.
  void FailAll(const std::string& code, const std::string& message);

  // Nothing waits, runs or is in flight.
  bool Idle() const { return failure_ || scheduler_.Idle(); }
  // See Scheduler::WaitsOutside.
  bool WaitsOutside() const { return !failure_ && scheduler_.WaitsOutside(); }
  std::optional<Time> NextDeadline() const;

  // All since the beginning; where there is a stats sink, since it was last told. No uptime.
  RuntimeStats Stats() const;
  // Writes the end of the trace. No Turn may follow.
  void FinishTrace();

  // Steps that may stay in flight while the next is planned. At first 1 with overlap, else 0.
  void set_depth(int depth) { depth_ = static_cast<size_t>(depth); }
  Scheduler& scheduler() { return scheduler_; }

 private:
  // A request from Submit to its kDone.
  struct Live {
    Answer answer;
    Time submitted;
    AnswerTimes times;
    std::optional<Time> deadline;
    bool was_admitted = false;
  };
  struct InFlight {
    std::shared_ptr<const BatchPlan> plan;
    Time launched;
    double plan_s = 0;  // what planning it took
  };
  struct Failure {
    std::string code, message;
  };
  using LiveMap = std::map<RequestId, Live>;

  void Start(LiveMap::iterator place, Submission submission);
  Status CheckPrompt(const Prompt& prompt) const;
  void SetDeadline(LiveMap::iterator place, const Submission& submission);
  void ExpireDeadlines(Time now);
  void LaunchStep(std::shared_ptr<const BatchPlan> plan, Time begin, Time planned);
  void CollectStep();
  void TraceStep(const InFlight& step, Time asked, Time collected);
  // Passes the scheduler's events on; a stop string found makes new ones. False: there were none.
  bool HandleEvents(Time now);
  void HandleToken(const SchedEvent& event, Time now);
  void HandleEnd(const SchedEvent& event, Time now);
  void HandleNotes(Time now);
  void Forget(LiveMap::iterator place);
  void PublishStats(bool with_histograms, Time now);
  // In every build: with nothing to do, no page is lost, and none held but by sessions.
  void CheckIdle() const;

  Engine* engine_;
  const EngineLimits limits_;
  const Tokenizer* tokenizer_;
  std::function<Time()> now_;
  StatsSink stats_sink_;
  size_t depth_;
  Scheduler scheduler_;
  std::optional<TraceWriter> trace_;
  LiveMap live_;
  std::set<std::pair<Time, RequestId>> deadlines_;
  std::set<SessionId> sessions_;  // open
  std::deque<InFlight> in_flight_;
  RuntimeStats stats_;  // its histograms
  Time histograms_published_, last_collected_;
  std::optional<Failure> failure_;
};

}  // namespace minisgl::runtime
