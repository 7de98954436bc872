// The report files of a run or a chat: figures as JSON (--summary), and a trace (--trace).
//
// The files are created before anything runs, so that a failure to create one is reported at once.
// The trace is written from the runtime's thread; all other calls come from one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "load/options.h"
#include "minisgl/base/status.h"
#include "report/summary.h"
#include "term/output.h"

namespace minisgl::report {

class ReportFiles {
 public:
  // Creates the files named in `options`. kCannotCreate as for Output::Open, and if two reports
  // have the same file or a report is the file of the `answers`; kUsage if standard output is used
  // twice.
  Status Open(const load::ReportOptions& options, bool force, int input_fd,
              const term::Output& answers);

  // For RuntimeOptions::trace_sink; empty if no trace is requested. This must outlive the runtime.
  std::function<void(std::string_view)> TraceSink();

  // Writes the summary, if requested. A closed pipe is not an error here, but changes the exit
  // status in End().
  Status WriteSummary(const RunSummary& summary);

  // Call after the runtime is destroyed, with the exit status so far; returns the final one.
  // Reports a trace that could not be written. A failed trace or a closed pipe does not replace the
  // exit status of another failure or of a signal.
  int End(int exit_status);

 private:
  void WriteTrace(std::string_view piece);

  std::unique_ptr<term::Output> summary_;  // null if not requested
  std::unique_ptr<term::Output> trace_;
  bool trace_begun_ = false;
  Status trace_status_;
};

}  // namespace minisgl::report
