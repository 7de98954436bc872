#include "report/reports.h"

#include <utility>

#include "batch/run_journal.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"
#include "term/exit_status.h"
#include "term/messages.h"

namespace minisgl::report {
namespace {

// How long the end of a run waits for a reader of events that takes nothing.
constexpr auto kReaderPatience = std::chrono::seconds(5);

// Two outputs must not be the same file, and only one can be standard output.
Status CheckApart(const term::Output& file, const char* option, const std::string& path,
                  const term::Output& other, const char* what) {
  if (file.is_stdout() && other.is_stdout()) {
    return UsageError("{} -: standard output is already used: {} written there; name a file",
                      option, what);
  }
  if (!file.IsSameFileAs(other)) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{} {}: names the same file that {} written to; choose another", option,
                    Visible(path, 400), what);
}

// A file that the run itself writes beside its answers would replace the report.
Status CheckBeside(const char* option, const std::string& path, const term::Output& answers) {
  if (path.empty() || path == "-" || !answers.is_regular_file()) return Status();
  const std::string journal = batch::JournalPath(answers.path());
  const bool is_journal = IsSamePlace(path, journal);
  if (!is_journal && !IsSamePlace(path, FileReplacement::PartOf(answers.path()))) return Status();
  return MakeStatus(StatusCode::kCannotCreate, "{} {}: is {} of {}; choose another", option,
                    Visible(path, 400), is_journal ? "the journal" : "the temporary file",
                    Visible(answers.path(), 400));
}

}  // namespace

Result<std::unique_ptr<term::Output>> ReportFiles::OpenOne(const char* option,
                                                           const std::string& path, bool force,
                                                           int input_fd,
                                                           const term::Output& answers,
                                                           const term::Output* error_rows) const {
  MINISGL_RETURN_IF_ERROR(CheckBeside(option, path, answers));
  if (error_rows != nullptr) MINISGL_RETURN_IF_ERROR(CheckBeside(option, path, *error_rows));
  MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<term::Output> file,
                           term::Output::Open(path, force, input_fd));
  MINISGL_RETURN_IF_ERROR(CheckApart(*file, option, path, answers, "answers are"));
  if (error_rows != nullptr) {
    MINISGL_RETURN_IF_ERROR(CheckApart(*file, option, path, *error_rows, "error rows are"));
  }
  if (summary_ != nullptr) {
    MINISGL_RETURN_IF_ERROR(CheckApart(*file, option, path, *summary_, "the summary is"));
  }
  if (trace_ != nullptr) {
    MINISGL_RETURN_IF_ERROR(CheckApart(*file, option, path, *trace_, "the trace is"));
  }
  return file;
}

Status ReportFiles::Open(const load::ReportOptions& options, bool force, int input_fd,
                         const term::Output& answers, const term::Output* error_rows) {
  const auto open = [&](const char* option, const std::string& path) {
    return OpenOne(option, path, force, input_fd, answers, error_rows);
  };
  if (!options.summary.empty()) {
    MINISGL_ASSIGN_OR_RETURN(summary_, open("--summary", options.summary));
  }
  if (!options.trace.empty()) {
    MINISGL_ASSIGN_OR_RETURN(trace_, open("--trace", options.trace));
  }
  if (!options.events.empty()) {
    MINISGL_ASSIGN_OR_RETURN(std::unique_ptr<term::Output> file, open("--events", options.events));
    events_ = std::make_unique<EventFile>(
        std::move(file), options.events == "-" ? "standard output" : options.events);
  }
  return Status();
}

load::ReportSinks ReportFiles::Sinks() {
  load::ReportSinks sinks;
  if (trace_ != nullptr) sinks.trace = [this](std::string_view piece) { WriteTrace(piece); };
  if (events_ != nullptr) {
    sinks.cache_events = [file = events_.get()](std::string_view lines) { file->Write(lines); };
  }
  return sinks;
}

// An existing file is truncated only here, so that a run that fails earlier loses nothing.
void ReportFiles::WriteTrace(std::string_view piece) {
  if (!trace_begun_) trace_status_ = trace_->Begin();
  trace_begun_ = true;
  if (trace_status_.ok()) trace_status_ = trace_->Write(piece);
}

Status ReportFiles::WriteSummary(const RunSummary& summary) {
  if (summary_ == nullptr) return Status();
  const Status status = WriteSummaryFile(summary, summary_.get());
  return summary_->pipe_closed() ? Status() : status;
}

int ReportFiles::End(int exit_status) {
  int own_exit = summary_ != nullptr && summary_->pipe_closed() ? term::kExitPipeClosed : 0;
  if (trace_ != nullptr) {
    if (trace_status_.ok() && trace_begun_) trace_status_ = trace_->Finish();
    if (!trace_status_.ok()) {
      own_exit = trace_->pipe_closed() ? term::kExitPipeClosed : term::Fail(trace_status_);
    }
  }
  if (events_ != nullptr) {
    const Status status = events_->Finish(kReaderPatience);
    if (!status.ok()) own_exit = term::Fail(status);
  }
  return own_exit != 0 && exit_status <= term::kExitSomeFailed ? own_exit : exit_status;
}

}  // namespace minisgl::report
