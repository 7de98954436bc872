// The report files of a run or a chat: figures as JSON (--summary), a trace (--trace) and events of
// the prefix cache (--events).
//
// The files are created before anything runs, so that a failure to create one is reported at once.
// The trace and the events come from the runtime's thread; all other calls come from one thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/status.h"
#include "report/event_file.h"
#include "report/summary.h"
#include "term/output.h"

namespace minisgl::report {

class ReportFiles {
 public:
  // Creates the files named in `options`. kCannotCreate as for Output::Open, and if two reports
  // have the same file or a report is the file of the `answers`, or of the `error_rows`
  // (null: none); kUsage if standard output is used twice.
  Status Open(const load::ReportOptions& options, bool force, int input_fd,
              const term::Output& answers, const term::Output* error_rows = nullptr);

  // For the runtime; an empty one is of a report that is not requested. This must outlive the
  // runtime.
  load::ReportSinks Sinks();

  // Writes the summary, if requested. A closed pipe is not an error here, but changes the exit
  // status in End().
  Status WriteSummary(const RunSummary& summary);

  // Call after the runtime is destroyed, with the exit status so far; returns the final one.
  // Reports a trace and events that could not be written. A failed trace, failed events or a closed
  // pipe do not replace the exit status of another failure or of a signal; events whose reader has
  // left change no exit status.
  int End(int exit_status);

 private:
  // One of the files, which must be none of those that are open.
  Result<std::unique_ptr<term::Output>> OpenOne(const char* option, const std::string& path,
                                                bool force, int input_fd,
                                                const term::Output& answers,
                                                const term::Output* error_rows) const;
  void WriteTrace(std::string_view piece);

  std::unique_ptr<term::Output> summary_;  // null if not requested
  std::unique_ptr<term::Output> trace_;
  std::unique_ptr<EventFile> events_;
  bool trace_begun_ = false;
  Status trace_status_;
};

}  // namespace minisgl::report
