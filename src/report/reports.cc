#include "report/reports.h"

#include "batch/run_journal.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"
#include "term/exit_status.h"
#include "term/messages.h"

namespace minisgl::report {
namespace {

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

Status ReportFiles::Open(const load::ReportOptions& options, bool force, int input_fd,
                         const term::Output& answers) {
  MINISGL_RETURN_IF_ERROR(CheckBeside("--summary", options.summary, answers));
  MINISGL_RETURN_IF_ERROR(CheckBeside("--trace", options.trace, answers));
  if (!options.summary.empty()) {
    MINISGL_ASSIGN_OR_RETURN(summary_, term::Output::Open(options.summary, force, input_fd));
    MINISGL_RETURN_IF_ERROR(
        CheckApart(*summary_, "--summary", options.summary, answers, "answers are"));
  }
  if (options.trace.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(trace_, term::Output::Open(options.trace, force, input_fd));
  MINISGL_RETURN_IF_ERROR(CheckApart(*trace_, "--trace", options.trace, answers, "answers are"));
  if (summary_ == nullptr) return Status();
  return CheckApart(*trace_, "--trace", options.trace, *summary_, "the summary is");
}

std::function<void(std::string_view)> ReportFiles::TraceSink() {
  if (trace_ == nullptr) return nullptr;
  return [this](std::string_view piece) { WriteTrace(piece); };
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
  return own_exit != 0 && exit_status <= term::kExitSomeFailed ? own_exit : exit_status;
}

}  // namespace minisgl::report
