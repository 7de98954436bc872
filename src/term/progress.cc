#include "term/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "minisgl/base/json.h"
#include "term/messages.h"
#include "term/terminal.h"

namespace minisgl::term {
namespace {

// Fast enough to look alive, slow enough not to flicker.
constexpr std::chrono::milliseconds kTerminalInterval(200);
constexpr std::chrono::seconds kPlainInterval(10);
constexpr std::chrono::seconds kJsonInterval(1);
constexpr std::chrono::milliseconds kSampleInterval(100);

// Rates are averaged over the last seconds: long enough for several steps of a slow machine.
constexpr double kRateWindow_s = 10;

// Before this time and number of rows, the remaining time would be a guess.
constexpr double kLeftAfter_s = 3;
constexpr int64_t kLeftAfterRows = 5;

// Faster operations need no bar.
constexpr std::chrono::milliseconds kBarDelay(300);
constexpr int kBarColumns = 32;

constexpr int kLineBarColumns = 20;
constexpr std::string_view kGap = "  ";

// Returns "" if nothing is known. While the run stops, returns the remaining grace period instead
// of the time for all rows.
std::string TimeLeft(const ProgressView& view) {
  if (view.grace_left_s) {
    return *view.grace_left_s > 0
               ? fmt::format("stopping: {} of grace left", FormatDuration(*view.grace_left_s))
               : "stopping";
  }
  return view.left_s ? FormatDuration(*view.left_s) + " left" : "";
}

// Returns the fields of a line, most important first.
std::vector<std::string> Fields(const ProgressView& view) {
  std::vector<std::string> fields;
  std::string rows = FormatCount(view.before + view.done);
  if (view.total) rows += fmt::format("/{}", FormatCount(view.before + *view.total));
  rows += " rows";
  if (view.held > 0) rows += fmt::format(", {} held for the order", FormatCount(view.held));
  if (view.failed > 0) rows += fmt::format(", {} failed", FormatCount(view.failed));
  if (view.cancelled > 0) rows += fmt::format(", {} not answered", FormatCount(view.cancelled));
  fields.push_back(rows);
  if (const std::string left = TimeLeft(view); !left.empty()) fields.push_back(left);
  const std::string in = FormatRate(view.in_per_s);
  fields.push_back(view.has_answers
                       ? fmt::format("{} in, {} out tok/s", in, FormatRate(view.out_per_s))
                       : in + " tok/s");
  fields.push_back(FormatCount(view.running) + " running");
  fields.push_back(FormatCount(view.waiting) + " waiting");
  if (view.hit_percent) fields.push_back(fmt::format("cache {:.0f} %", *view.hit_percent));
  fields.push_back(
      fmt::format("pages {}/{}", FormatCount(view.pages_used), FormatCount(view.pages_total)));
  return fields;
}

std::string Coloured(std::string_view text, std::string_view code, bool colour) {
  return colour ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

// "[=====>    ]  45 %"
std::string LineBar(int64_t done, int64_t total, bool colour) {
  const double share = std::min(static_cast<double>(done) / static_cast<double>(total), 1.0);
  const auto filled = static_cast<size_t>(share * kLineBarColumns);
  std::string bar(filled, '=');
  if (filled < kLineBarColumns) bar += '>';
  const std::string rest(kLineBarColumns - bar.size(), ' ');
  // Shows 100 % only if all rows are done.
  const int percent = done >= total ? 100 : std::min(static_cast<int>(100 * share), 99);
  return fmt::format("[{}{}] {:3} %", Coloured(bar, "32", colour), rest, percent);
}
constexpr size_t kLineBarWidth = kLineBarColumns + 8;

}  // namespace

std::string FormatCount(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const size_t sign = value < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > sign + 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string FormatRate(double per_second) {
  return per_second < 9.95 ? fmt::format("{:.1f}", per_second)
                           : FormatCount(std::llround(per_second));
}

std::string FormatBytes(uint64_t bytes) {
  constexpr double kStep = 1024;
  double value = static_cast<double>(bytes);
  if (value < kStep) return fmt::format("{} B", bytes);
  const char* unit = "KiB";
  value /= kStep;
  for (const char* next : {"MiB", "GiB", "TiB"}) {
    if (value < kStep) break;
    value /= kStep;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string FormatDuration(double seconds) {
  // Rounds as a person would; the bound covers values out of the range of clocks.
  const auto total = static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) + 0.5);
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}m{:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h{:02}m", total / 3600, total % 3600 / 60);
  return fmt::format("{}d{:02}h", total / 86400, total % 86400 / 3600);
}

std::string FormatProgressLine(const ProgressView& view, int columns, bool colour) {
  const std::vector<std::string> fields = Fields(view);
  size_t width = 0;
  for (const std::string& field : fields) width += field.size() + kGap.size();
  const auto room = static_cast<size_t>(std::max(columns, 0));
  std::string line;
  size_t used = 0;
  if (view.total && *view.total > 0 && kLineBarWidth + width <= room) {
    line = LineBar(view.before + view.done, view.before + *view.total, colour);
    used = kLineBarWidth;
  }
  for (size_t i = 0; i < fields.size(); ++i) {
    const size_t gap = used > 0 ? kGap.size() : 0;
    if (used + gap + fields[i].size() > room) break;
    // Two colours: one for the progress, one for all other fields.
    const bool is_place = i == 0 || (i == 1 && (view.left_s || view.grace_left_s));
    line += std::string(gap, ' ') + (is_place ? fields[i] : Coloured(fields[i], "2", colour));
    used += gap + fields[i].size();
  }
  return line;
}

std::string FormatProgressPlain(const ProgressView& view) {
  std::string line;
  for (const std::string& field : Fields(view)) {
    if (!line.empty()) line += "; ";
    line += field;
  }
  return line;
}

std::string FormatProgressJson(const ProgressView& view, bool ended) {
  const auto rounded = [](double value) { return Json(std::round(value * 1000) / 1000); };
  Json json = Json(Json::Object());
  json.Set("rows_done", view.done - view.failed - view.cancelled);
  json.Set("rows_failed", view.failed);
  json.Set("rows_cancelled", view.cancelled);
  json.Set("rows_total", view.total ? Json(*view.total) : Json());
  json.Set("rows_held", view.held).Set("rows_before", view.before);
  json.Set("seconds", rounded(view.seconds));
  json.Set("seconds_left", view.left_s ? rounded(*view.left_s) : Json());
  if (view.grace_left_s) json.Set("grace_seconds_left", rounded(*view.grace_left_s));
  json.Set("prompt_tokens", view.prompt_tokens);
  json.Set("cached_tokens", view.cached_tokens);
  json.Set("completion_tokens", view.completion_tokens);
  json.Set("prompt_tokens_per_s", rounded(view.in_per_s));
  json.Set("completion_tokens_per_s", rounded(view.out_per_s));
  json.Set("running", view.running).Set("waiting", view.waiting);
  json.Set("pages_used", view.pages_used).Set("pages_total", view.pages_total);
  json.Set("ended", ended);
  return json.Dump();
}

std::string ProgressBar(std::string_view what, int64_t done, int64_t total, int columns) {
  const auto filled =
      total > 0 ? static_cast<int>(static_cast<double>(done) / static_cast<double>(total) * columns)
                : columns;
  return fmt::format("{} [{:<{}}] {}/{}", what, std::string(static_cast<size_t>(filled), '='),
                     columns, done, total);
}

void InstallProgressBar() {
  SetProgressSink([begin = std::optional<Progress::Clock::time_point>()](
                      std::string_view what, int64_t done, int64_t total) mutable {
    if (done >= total) {
      begin.reset();
      ShowProgressLine("");
      return;
    }
    const Progress::Clock::time_point now = Progress::Clock::now();
    if (!begin) begin = now;
    if (now - *begin >= kBarDelay) ShowProgressLine(ProgressBar(what, done, total, kBarColumns));
  });
}

Progress::Progress(ProgressKind kind, bool terminal, Clock::time_point begin)
    : kind_(kind),
      terminal_(terminal),
      begin_(begin),
      next_sample_(begin + kSampleInterval),
      next_line_(begin + Interval()) {}

Progress::Clock::duration Progress::Interval() const {
  if (kind_ == ProgressKind::kJson) return kJsonInterval;
  return terminal_ ? Clock::duration(kTerminalInterval) : kPlainInterval;
}

Progress::~Progress() { Finish(); }

void Progress::Update(const Numbers& numbers, Clock::time_point now) {
  if (!IsDue(now)) return;
  next_sample_ = now + kSampleInterval;
  const double now_s = SecondsAt(now);
  history_.Add(RunSample::Of(numbers.stats, numbers.done + numbers.failed, now_s));
  recent_.push_back({now_s, numbers.stats.prompt_tokens, numbers.stats.generated_tokens});
  while (recent_.size() > 2 && recent_[1].time_s <= now_s - kRateWindow_s) recent_.pop_front();
  if (kind_ == ProgressKind::kNone || now < next_line_) return;
  next_line_ = now + Interval();
  const ProgressView view = ViewOf(numbers, now_s, /*whole_run=*/false);
  if (kind_ == ProgressKind::kJson) {
    PrintStderr(FormatProgressJson(view, /*ended=*/false));
  } else if (terminal_) {
    // Leave the last column empty: writing it makes some terminals wrap.
    ShowProgressLine(
        FormatProgressLine(view, TerminalColumns(STDERR_FILENO) - 1, AllowsColour(STDERR_FILENO)));
  } else {
    PrintStderr("minisgl: " + FormatProgressPlain(view));
  }
}

void Progress::End(const Numbers& numbers, Clock::time_point now) {
  if (kind_ != ProgressKind::kJson) return;
  const ProgressView view = ViewOf(numbers, SecondsAt(now), /*whole_run=*/true);
  PrintStderr(FormatProgressJson(view, /*ended=*/true));
}

ProgressView Progress::ViewOf(const Numbers& numbers, double now_s, bool whole_run) const {
  const SchedulerStats& stats = numbers.stats;
  ProgressView view;
  view.held = numbers.held_done + numbers.held_failed;
  view.done = numbers.done + numbers.failed - view.held;
  // Rows that are cancelled while they are held count on both sides.
  view.failed = std::max<int64_t>(numbers.failed - numbers.cancelled - numbers.held_failed, 0);
  view.cancelled = numbers.cancelled;
  view.before = numbers.before;
  view.total = numbers.total;
  view.has_answers = numbers.has_answers;
  view.grace_left_s = numbers.grace_left_s;
  if (!view.grace_left_s) view.left_s = SecondsLeft(numbers, now_s);
  // In the first seconds, average since the beginning.
  const bool is_young = whole_run || now_s <= kRateWindow_s || recent_.empty();
  const Mark since = is_young ? Mark() : recent_.front();
  if (now_s > since.time_s) {
    const auto rate = [&](int64_t count) {
      return static_cast<double>(count) / (now_s - since.time_s);
    };
    view.in_per_s = rate(stats.prompt_tokens - since.prompt_tokens);
    view.out_per_s = rate(stats.generated_tokens - since.completion_tokens);
  }
  view.seconds = now_s;
  view.prompt_tokens = stats.prompt_tokens;
  view.cached_tokens = stats.cached_tokens;
  view.completion_tokens = stats.generated_tokens;
  view.running = stats.running;
  view.waiting = stats.waiting;
  if (stats.prompt_tokens > 0) {
    view.hit_percent =
        100 * static_cast<double>(stats.cached_tokens) / static_cast<double>(stats.prompt_tokens);
  }
  view.pages_used = PagesInUse(stats);
  view.pages_total = stats.pages_total;
  return view;
}

// Estimates the remaining time in answer tokens, assuming that missing rows are as long as finished
// ones: rows end in waves, but tokens arrive steadily. The speed is measured over the second half
// of the time so far, which forgets a slow start and smooths the rest.
std::optional<double> Progress::SecondsLeft(const Numbers& numbers, double now_s) const {
  const int64_t ended = numbers.done + numbers.failed;
  if (!numbers.total || now_s < kLeftAfter_s || ended < std::min(kLeftAfterRows, *numbers.total)) {
    return std::nullopt;
  }
  if (ended >= *numbers.total) return std::nullopt;
  if (numbers.finished_tokens == 0) {  // fall back to counting rows
    return now_s / static_cast<double>(ended) * static_cast<double>(*numbers.total - ended);
  }
  const std::vector<RunSample>& samples = history_.samples();
  const auto half =
      std::partition_point(samples.begin(), samples.end(),
                           [&](const RunSample& sample) { return sample.time_s <= now_s / 2; });
  const RunSample since = half == samples.begin() ? RunSample() : *(half - 1);
  const auto tokens = static_cast<double>(numbers.stats.generated_tokens - since.completion_tokens);
  const double expected = static_cast<double>(numbers.finished_tokens) /
                          static_cast<double>(ended) * static_cast<double>(*numbers.total);
  const double missing = expected - static_cast<double>(numbers.tokens);
  // Some running answers are longer than all before: the remaining time is unknown.
  if (tokens <= 0 || missing <= 0) return std::nullopt;
  return missing * (now_s - since.time_s) / tokens;
}

void Progress::Finish() {
  if (kind_ == ProgressKind::kAuto && terminal_) ShowProgressLine("");
}

const RunHistory& Progress::EndHistory(const SchedulerStats& stats, int64_t rows,
                                       Clock::time_point now) {
  history_.End(RunSample::Of(stats, rows, SecondsAt(now)));
  return history_;
}

}  // namespace minisgl::term
