// minisgl pull: downloads a model into the hub cache. The only command that uses a network.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "hub/pull.h"
#include "load/option_table.h"
#include "minisgl/base/environment.h"
#include "minisgl/base/folder.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/weights/adapter.h"
#include "minisgl/weights/find_model_dir.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"
#include "term/question.h"
#include "term/signals.h"
#include "term/terminal.h"

namespace minisgl::cli {
namespace {

struct PullCommandOptions {
  std::string model;
  std::vector<std::string> patterns;
  bool quiet = false;
  bool verbose = false;
};

// Shows a download: on a terminal one line that is rewritten, elsewhere a line every ten seconds.
class DownloadProgress {
 public:
  using Clock = std::chrono::steady_clock;

  explicit DownloadProgress(bool enabled)
      : enabled_(enabled), is_terminal_(term::StderrIsTerminal()) {}
  ~DownloadProgress() {
    if (enabled_ && is_terminal_) term::ShowProgressLine("");
  }
  DownloadProgress(const DownloadProgress&) = delete;
  DownloadProgress& operator=(const DownloadProgress&) = delete;

  void Show(const hub::PullProgress& progress) {
    const Clock::time_point now = Clock::now();
    if (!enabled_ || now < next_ || progress.total_bytes == 0) return;
    const bool is_first = marks_.empty();
    next_ = now + (is_terminal_ ? kTerminalInterval : kPlainInterval);
    marks_.push_back({now, progress.done_bytes});
    while (marks_.size() > 2 && marks_[1].time <= now - kRateWindow) marks_.pop_front();
    if (is_terminal_) {
      ShowLine(Line(progress));
    } else if (!is_first) {
      term::PrintStderr("minisgl: " + Line(progress));
    }
  }

 private:
  static constexpr auto kTerminalInterval = std::chrono::milliseconds(200);
  static constexpr auto kPlainInterval = std::chrono::milliseconds(10'000);
  static constexpr auto kRateWindow = std::chrono::seconds(10);
  static constexpr int kBarColumns = 20;
  struct Mark {
    Clock::time_point time;
    uint64_t bytes = 0;
  };

  static void ShowLine(std::string line) {
    // The last column stays empty: writing it makes some terminals wrap.
    const auto columns = static_cast<size_t>(std::max(term::TerminalColumns(STDERR_FILENO) - 1, 0));
    if (line.size() > columns) line.resize(columns);  // file names may be cut inside a character,
    term::ShowProgressLine(ReplaceInvalidUtf8(line));
  }
  std::string Line(const hub::PullProgress& progress) const {
    const auto done = static_cast<double>(progress.done_bytes);
    const auto total = static_cast<double>(progress.total_bytes);
    std::string bar(static_cast<size_t>(std::min(done / total, 1.0) * kBarColumns), '=');
    std::string line =
        fmt::format("[{:<{}}] {} of {}", bar, kBarColumns, term::FormatBytes(progress.done_bytes),
                    term::FormatBytes(progress.total_bytes));
    const Mark &first = marks_.front(), &last = marks_.back();
    const double seconds = std::chrono::duration<double>(last.time - first.time).count();
    if (seconds > 0 && last.bytes > first.bytes) {
      const double rate = static_cast<double>(last.bytes - first.bytes) / seconds;
      line += fmt::format(", {}/s, {} left", term::FormatBytes(static_cast<uint64_t>(rate)),
                          term::FormatDuration((total - done) / rate));
    }
    return line + "  " + Visible(progress.file, 100);
  }

  const bool enabled_, is_terminal_;
  Clock::time_point next_{};
  std::deque<Mark> marks_;  // of the last kRateWindow, oldest first
};

// Downloads a model, and reports the files.
Result<hub::PulledModel> Pull(const std::string& model, const std::vector<std::string>& patterns,
                              bool shows_progress) {
  const hub::PullOptions pull{.model = model,
                              .patterns = patterns,
                              .endpoint = EnvironmentVariable("HF_ENDPOINT"),
                              .token = EnvironmentVariable("HF_TOKEN"),
                              .cache_dir = HubCacheDir(),
                              .user_agent = std::string("minisgl/") + MINISGL_VERSION};
  std::optional<Result<hub::PulledModel>> pulled;
  {
    DownloadProgress progress(shows_progress);
    const hub::PullHooks hooks{.stops = [] { return term::StopSignal() != 0; },
                               .shows = [&](const hub::PullProgress& now) { progress.Show(now); }};
    pulled = hub::Pull(pull, hooks);
  }
  if (!(*pulled).ok()) return (*pulled).status();
  const hub::PulledModel& found = **pulled;
  Log(LogLevel::kInfo,
      fmt::format("{} files, {}; downloaded: {}", found.num_files,
                  term::FormatBytes(found.num_bytes), term::FormatBytes(found.downloaded_bytes)));
  return found;
}

// Says how to use `folder`, if the download is a model or an adapter.
void NameNextStep(const PullCommandOptions& options, const std::string& folder) {
  if (IsAdapterDir(folder) && !IsListed(folder + "/config.json")) {
    return Log(LogLevel::kInfo,
               fmt::format("an adapter: --adapter {} has rows of its model go through it",
                           Visible(IsHubModel(options.model) ? options.model : folder, 400)));
  }
  const Result<std::string> found = FindModelDir(folder);
  if (!found.ok() || !CheckHasModelFiles(*found).ok()) return;
  // Chosen files have no name that is found again.
  const bool has_name = options.patterns.empty() && IsHubModel(options.model);
  Log(LogLevel::kInfo, fmt::format("minisgl chat -m {} talks to it",
                                   Visible(has_name ? options.model : *found, 400)));
}

int RunPull(const PullCommandOptions& options) {
  term::InstallNotes({.quiet = options.quiet, .verbose = options.verbose});
  term::InstallStopSignals();
  const auto model = Pull(options.model, options.patterns, !options.quiet);
  if (!model.ok()) {
    const int signal_number = term::StopSignal();
    if (signal_number == 0) return term::Fail(model.status());
    term::PrintStderr("minisgl: stopped; the same command continues the download");
    return term::kExitSignalBase + signal_number;
  }
  NameNextStep(options, model->folder);
  const auto output = term::Output::Open("", false, -1);
  if (!output.ok()) return term::Fail(output.status());
  return (*output)->ExitAfter((*output)->Write(model->folder + "\n"));
}

}  // namespace

// A signal kills the program, as nothing is loaded yet; `minisgl pull` or the same answer go on.
Result<bool> OfferPull(const std::string& model) {
  const auto answer = term::AskYesNo(fmt::format(
      "minisgl: {} is not in the hub cache ({}). Download it now?", model, HubCacheDir()));
  if (!answer.value_or(false)) return false;
  MINISGL_RETURN_IF_ERROR(Pull(model, {}, /*shows_progress=*/true).status());
  return true;
}

CommandBody AddPullCommand(load::OptionTable* app) {
  const auto options = std::make_shared<PullCommandOptions>();
  app->Add("MODEL", &options->model, "OWNER/NAME, or OWNER/NAME@REVISION: a branch, tag or commit")
      ->Required()
      ->TypeName("MODEL");
  app->Add("--include", &options->patterns,
           "Download the files that match, such as '*.gguf', not those a model needs; repeatable")
      ->TypeName("PATTERN")
      ->OneValueEach();
  app->AddFlag("-q,--quiet", &options->quiet, "Print only errors and warnings");
  app->AddFlag("-v,--verbose", &options->verbose, "Print each transfer that is continued, too");
  return [options] { return RunPull(*options); };
}

}  // namespace minisgl::cli
