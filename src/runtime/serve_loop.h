// The work of the runtime's thread, without the thread: passes requests to the scheduler, steps to
// the engine, and tokens and ends to the answers' queues.
//
// It has no mutex and does not sleep, and its time comes from outside, so a simulation can drive
// the same code.
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
#include "runtime/cache_event_writer.h"
#include "runtime/grammar_source.h"
#include "runtime/thought_tracker.h"
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
  // Receives the figures of Runtime::Stats: the scheduler's figures as they are, and of the
  // histograms what came since the last call. Called every turn, mostly with empty histograms. It
  // has received all figures of a request before the request's kDone is pushed.
  using StatsSink = std::function<void(const RuntimeStats& news)>;

  // `engine`, `tokenizer` and `grammars` outlive it. The last two may be null; without `grammars`
  // a prompt with a grammar fails. Without a `stats_sink` the loop keeps the figures: see Stats.
  ServeLoop(Engine* engine, const Tokenizer* tokenizer, const RuntimeOptions& options,
            std::function<Time()> now, StatsSink stats_sink = {},
            GrammarSource* grammars = nullptr);

  // Takes the request and sets `submission.queue` to null: from then on it gets its kDone whatever
  // happens.
  void Submit(Submission&& submission);
  void Abort(RequestId id);
  void OpenSession(SessionId id);  // REQUIRES a new id
  void CloseSession(SessionId id);
  void ResetPrefixCache() {
    if (!failure_) scheduler_.ResetPrefixCache();
  }
  // Aborts all requests and closes all sessions.
  void AbortAll();

  // One round: expires deadlines, plans and launches a step, collects a step, hands out events.
  // Returns false if there was nothing to do: another round will find nothing either, until a
  // request is submitted, a deadline passes, or what requests wait for outside comes. If it throws,
  // call FailAll.
  bool Turn();

  // After an exception from which the loop cannot recover, most likely out of memory: fails all
  // requests, and later ones at Submit. May throw while memory is still short; called again, it
  // continues where it stopped.
  void FailAll(const std::string& code, const std::string& message);

  // Nothing waits, runs or is in flight.
  bool Idle() const { return failure_ || scheduler_.Idle(); }
  // See Scheduler::WaitsOutside.
  bool WaitsOutside() const { return !failure_ && scheduler_.WaitsOutside(); }
  // See Scheduler::Saving. Another Turn may find something to do.
  bool Saving() const { return !failure_ && scheduler_.Saving(); }
  void DropSaves() {
    if (!failure_) scheduler_.DropSaves();
  }
  std::optional<Time> NextDeadline() const;

  // Figures since the beginning; with a stats sink, since its last call. Without uptime.
  RuntimeStats Stats() const;
  // Writes the end of the trace and of the cache events. REQUIRES no Turn after it.
  void FinishTrace();

  // Number of steps that may stay in flight while the next is planned. Initially 1 with overlap,
  // else 0.
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
    bool has_grammar = false;
  };
  struct InFlight {
    std::shared_ptr<const BatchPlan> plan;
    Time launched;
    double plan_s = 0;  // time spent on planning it
  };
  struct Failure {
    std::string code, message;
  };
  using LiveMap = std::map<RequestId, Live>;

  void Start(LiveMap::iterator place, Submission submission);
  Status CheckPrompt(const Prompt& prompt) const;
  // Returns the constraint of an answer without a grammar, which limits its tokens and its
  // thoughts; null if nothing does.
  std::shared_ptr<TokenConstraint> ConstraintOf(const Prompt& prompt);
  // Returns the marks of the prompt's reasoning; null if it has none, or if there is no tokenizer.
  std::shared_ptr<const ThoughtMarks> MarksOf(const Prompt& prompt);
  void SetDeadline(LiveMap::iterator place, const Submission& submission);
  void ExpireDeadlines(Time now);
  // Opens the gates of requests whose grammars are compiled, and tells the scheduler which masks
  // are made. Returns false if there were none.
  bool TakeGrammars();
  void LaunchStep(std::shared_ptr<const BatchPlan> plan, Time begin, Time planned);
  // Passes the masks of the last step to the engine, if they can be made now.
  void SupplyMasks();
  void CollectStep();
  void TraceStep(const InFlight& step, int64_t accepted, Time asked, Time collected);
  void TraceKernels();
  // Passes the scheduler's events on, including those that a found stop string causes. Returns
  // false if there were none.
  bool HandleEvents(Time now);
  void HandleToken(const SchedEvent& event, Time now);
  void HandleScored(const SchedEvent& event);
  void HandleProgress(const SchedEvent& event);
  void HandleVector(const SchedEvent& event);
  void HandleEnd(const SchedEvent& event, Time now);
  void HandleNotes(Time now);
  void Forget(LiveMap::iterator place);
  void PublishStats(bool with_histograms, Time now);
  // Checks, in every build, that an idle scheduler has lost no page, and that only sessions and
  // saves hold any.
  void CheckIdle() const;

  Engine* engine_;
  const EngineLimits limits_;
  const Tokenizer* tokenizer_;
  GrammarSource* grammars_;
  std::function<Time()> now_;
  StatsSink stats_sink_;
  size_t depth_;
  const std::unique_ptr<CacheEventWriter> cache_events_;  // null: none are wanted
  Scheduler scheduler_;
  std::optional<TraceWriter> trace_;
  const std::shared_ptr<KernelProfile> kernel_profile_;  // null: no kernels in the trace
  // The marks that MarksOf returned last, and the tags that they belong to.
  ReasoningTags last_tags_;
  std::shared_ptr<const ThoughtMarks> last_marks_;
  LiveMap live_;
  std::set<std::pair<Time, RequestId>> deadlines_;
  std::set<SessionId> sessions_;  // open
  std::deque<InFlight> in_flight_;
  RuntimeStats stats_;  // its histograms
  Time histograms_published_, last_collected_;
  std::optional<Failure> failure_;
};

}  // namespace minisgl::runtime
