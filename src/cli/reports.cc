#include "cli/reports.h"

#include "cli/exit_status.h"
#include "cli/messages.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

// One file is not two.
Status CheckApart(const Output& file, const char* option, const std::string& path,
                  const Output& other, const char* what) {
  if (!file.IsSameFileAs(other)) return Status();
  return MakeStatus(StatusCode::kCannotCreate,
                    "{} {}: is the file that {} written to; choose another", option,
                    Visible(path, 400), what);
}

}  // namespace

Status ReportFiles::Open(const ReportOptions& options, bool force, int input_fd,
                         const Output& answers) {
  if (!options.summary.empty()) {
    MINISGL_ASSIGN_OR_RETURN(summary_, Output::Open(options.summary, force, input_fd));
    MINISGL_RETURN_IF_ERROR(
        CheckApart(*summary_, "--summary", options.summary, answers, "answers are"));
  }
  if (options.trace.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(trace_, Output::Open(options.trace, force, input_fd));
  MINISGL_RETURN_IF_ERROR(CheckApart(*trace_, "--trace", options.trace, answers, "answers are"));
  if (summary_ == nullptr) return Status();
  return CheckApart(*trace_, "--trace", options.trace, *summary_, "the summary is");
}

std::function<void(std::string_view)> ReportFiles::TraceSink() {
  if (trace_ == nullptr) return nullptr;
  return [this](std::string_view piece) { WriteTrace(piece); };
}

// An old file is emptied only here: a run that fails before costs nothing.
void ReportFiles::WriteTrace(std::string_view piece) {
  if (!trace_begun_) trace_status_ = trace_->Begin();
  trace_begun_ = true;
  if (trace_status_.ok()) trace_status_ = trace_->Write(piece);
}

Status ReportFiles::WriteSummary(const RunSummary& summary) {
  return summary_ == nullptr ? Status() : WriteSummaryFile(summary, summary_.get());
}

int ReportFiles::End(int exit_status) {
  if (trace_ == nullptr) return exit_status;
  if (trace_status_.ok() && trace_begun_) trace_status_ = trace_->Finish();
  if (trace_status_.ok()) return exit_status;
  const int trace_exit = Fail(trace_status_);
  return exit_status <= kExitSomeFailed ? trace_exit : exit_status;
}

}  // namespace minisgl
