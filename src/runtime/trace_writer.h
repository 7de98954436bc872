// Writes a trace of the serving loop in the Chrome trace event format, which Perfetto opens: steps
// of the engine, work of the runtime's thread, and events of requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <variant>

#include "minisgl/base/kernel_profile.h"
#include "minisgl/batch_plan.h"
#include "minisgl/runtime/runtime.h"

namespace minisgl::runtime {

class TraceWriter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Sink = std::function<void(std::string_view)>;

  // Times count from `start`.
  TraceWriter(Sink sink, Time start);

  // A step of the engine, and how many of its drafts were right.
  void Step(const BatchPlan& plan, int64_t accepted, Time begin, Time end);
  // Work of the runtime's thread: "plan", "wait" or "collect".
  void Host(std::string_view what, Time begin, Time end);
  // A kernel of the device, on a track of its own; of several ranks each has one.
  void Kernel(const KernelProfile::Span& kernel, int32_t num_ranks);
  void Note(const SchedNote& note, Time time);
  void Ended(RequestId id, FinishReason reason, int64_t num_tokens, Time time);
  // The scheduler's figures after a step.
  void Counters(const SchedulerStats& stats, Time time);
  // Completes the JSON text. REQUIRES no call after it.
  void Finish();

 private:
  struct Arg {
    std::string_view name;
    std::variant<int64_t, std::string_view> value;
  };
  using Args = std::initializer_list<Arg>;
  // Further ranks have the numbers after kDevice.
  enum class Track { kEngine = 1, kHost = 2, kDevice = 3 };

  // Begins an event: its phase, name and track. EndEvent completes it.
  void BeginEvent(char phase, std::string_view name, Track track);
  void EndEvent(Args args);
  void Span(std::string_view name, Track track, Time begin, Time end, Args args);
  void Instant(std::string_view name, Time time, Args args);
  void Counter(std::string_view name, Time time, Args args);
  void AppendMicroseconds(std::string_view key, Time::duration duration);
  void Flush();

  Sink sink_;
  Time start_;
  std::string buffer_;
  bool is_first_ = true;
  std::set<Track> device_tracks_;
};

}  // namespace minisgl::runtime
