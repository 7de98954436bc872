#include "runtime/trace_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "minisgl/base/json.h"

namespace minisgl::runtime {
namespace {

constexpr size_t kPieceBytes = 64 * 1024;

// True if the row computes tokens known before: of its prompt, or of its answer after a preemption.
// A decode row computes the last sampled token, and drafts.
bool IsPrefill(const BatchPlan& plan, int row) {
  const auto at = static_cast<size_t>(row);
  const int32_t begin = plan.kv_len[at] - plan.extend_len(row);
  return begin < plan.prompt_len[at] || plan.extend_len(row) > 1 + plan.num_drafts[at];
}

}  // namespace

TraceWriter::TraceWriter(Sink sink, Time start) : sink_(std::move(sink)), start_(start) {
  buffer_ = "{\"traceEvents\":[";
  BeginEvent('M', "process_name", Track::kHost);
  EndEvent({{"name", "minisgl"}});
  BeginEvent('M', "thread_name", Track::kEngine);
  EndEvent({{"name", "engine"}});
  BeginEvent('M', "thread_name", Track::kHost);
  EndEvent({{"name", "host"}});
}

void TraceWriter::Step(const BatchPlan& plan, int64_t accepted, Time begin, Time end) {
  int64_t prefill_rows = 0, drafts = 0;
  for (int row = 0; row < plan.num_rows(); ++row) {
    prefill_rows += IsPrefill(plan, row) ? 1 : 0;
    drafts += plan.num_drafts[static_cast<size_t>(row)];
  }
  const char* name = "mixed";
  if (prefill_rows == 0) name = "decode";
  if (prefill_rows == plan.num_rows()) name = "prefill";
  if (plan.num_rows() == 0) name = "encode";  // a piece of a picture alone
  Span(name, Track::kEngine, begin, end,
       {{"step", static_cast<int64_t>(plan.step)},
        {"rows", plan.num_rows()},
        {"tokens", plan.num_tokens()},
        {"drafts", drafts},
        {"accepted_drafts", accepted},
        {"page_table_writes", static_cast<int64_t>(plan.page_table_writes.size())},
        {"token_pool_writes", static_cast<int64_t>(plan.token_pool_writes.size())}});
}

void TraceWriter::Host(std::string_view what, Time begin, Time end) {
  Span(what, Track::kHost, begin, end, {});
}

void TraceWriter::Kernel(const KernelProfile::Span& kernel, int32_t num_ranks) {
  const auto track = static_cast<Track>(static_cast<int32_t>(Track::kDevice) + kernel.rank);
  if (device_tracks_.insert(track).second) {
    const std::string name =
        num_ranks == 1 ? "device" : fmt::format("device of rank {}", kernel.rank);
    BeginEvent('M', "thread_name", track);
    EndEvent({{"name", std::string_view(name)}});
  }
  Span(kernel.name, track, kernel.begin, kernel.end, {});
}

void TraceWriter::Note(const SchedNote& note, Time time) {
  const auto id = static_cast<int64_t>(note.id);
  switch (note.kind) {
    case SchedNote::Kind::kQueued:
      return Instant("queued", time, {{"request", id}, {"prompt_tokens", note.value}});
    case SchedNote::Kind::kAdmitted:
      return Instant("scheduled", time, {{"request", id}, {"cached_tokens", note.value}});
    case SchedNote::Kind::kPreempted:
      return Instant("preempted", time, {{"request", id}, {"times", note.value}});
    case SchedNote::Kind::kPagesStored:
      return Instant("pages stored", time, {{"request", id}, {"pages", note.value}});
    case SchedNote::Kind::kPagesEvicted:
      return Instant("pages evicted", time, {{"pages", note.value}});
    case SchedNote::Kind::kCacheReset:
      return Instant("cache reset", time, {{"pages_left", note.value}});
  }
}

void TraceWriter::Ended(RequestId id, FinishReason reason, int64_t num_tokens, Time time) {
  Instant("ended", time,
          {{"request", static_cast<int64_t>(id)},
           {"reason", FinishReasonName(reason)},
           {"tokens", num_tokens}});
}

void TraceWriter::Counters(const SchedulerStats& stats, Time time) {
  const int64_t used =
      stats.pages_total - stats.pages_free - stats.pages_cached + stats.pages_locked;
  Counter("pages", time, {{"used", used}, {"cached", stats.pages_cached}});
  Counter("requests", time, {{"waiting", stats.waiting}, {"running", stats.running}});
}

void TraceWriter::Finish() {
  buffer_ += "\n]}\n";
  Flush();
}

void TraceWriter::BeginEvent(char phase, std::string_view name, Track track) {
  buffer_ += is_first_ ? "\n" : ",\n";
  is_first_ = false;
  fmt::format_to(std::back_inserter(buffer_), R"({{"ph":"{}","pid":1,"tid":{},"name":)", phase,
                 static_cast<int>(track));
  AppendJsonString(name, &buffer_);
}

void TraceWriter::EndEvent(Args args) {
  buffer_ += ",\"args\":{";
  const char* separator = "";
  for (const Arg& arg : args) {
    buffer_ += std::exchange(separator, ",");
    AppendJsonString(arg.name, &buffer_);
    buffer_ += ':';
    if (const auto* number = std::get_if<int64_t>(&arg.value)) {
      buffer_ += std::to_string(*number);
    } else {
      AppendJsonString(std::get<std::string_view>(arg.value), &buffer_);
    }
  }
  buffer_ += "}}";
  if (buffer_.size() >= kPieceBytes) Flush();
}

void TraceWriter::Span(std::string_view name, Track track, Time begin, Time end, Args args) {
  BeginEvent('X', name, track);
  AppendMicroseconds("ts", begin - start_);
  AppendMicroseconds("dur", end - begin);
  EndEvent(args);
}

void TraceWriter::Instant(std::string_view name, Time time, Args args) {
  BeginEvent('i', name, Track::kHost);
  AppendMicroseconds("ts", time - start_);
  buffer_ += ",\"s\":\"t\"";  // as wide as its track
  EndEvent(args);
}

void TraceWriter::Counter(std::string_view name, Time time, Args args) {
  BeginEvent('C', name, Track::kHost);
  AppendMicroseconds("ts", time - start_);
  EndEvent(args);
}

void TraceWriter::AppendMicroseconds(std::string_view key, Time::duration duration) {
  const auto nanoseconds =
      std::max<int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(duration).count(), 0);
  fmt::format_to(std::back_inserter(buffer_), ",\"{}\":{}.{:03}", key, nanoseconds / 1000,
                 nanoseconds % 1000);
}

void TraceWriter::Flush() {
  sink_(buffer_);
  buffer_.clear();
}

}  // namespace minisgl::runtime
