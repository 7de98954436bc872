// What a run or a chat leaves beside its answers: figures as JSON, and a trace.
//
// The files are made before anything runs, so that one that cannot be is said at once. The trace
// comes from the runtime's thread; all else is called by one thread.
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
  // Makes the files that `options` name. kCannotCreate as Output::Open says it, and for a file that
  // is another report's or that `answers` are written to; kUsage where standard output is meant to
  // be two of them.
  Status Open(const load::ReportOptions& options, bool force, int input_fd,
              const term::Output& answers);

  // For RuntimeOptions::trace_sink; empty where no trace is asked for. This outlives the runtime.
  std::function<void(std::string_view)> TraceSink();

  // Writes the summary, where one is asked for. A reader that left is End()'s to tell.
  Status WriteSummary(const RunSummary& summary);

  // Call once the runtime is gone, with the exit status that all else came to; gives the one to end
  // with. A trace that could not be written is said here; neither that nor a reader of a report who
  // left takes the place of another failure or of a signal.
  int End(int exit_status);

 private:
  void WriteTrace(std::string_view piece);

  std::unique_ptr<term::Output> summary_;  // null where none is asked for
  std::unique_ptr<term::Output> trace_;
  bool trace_begun_ = false;
  Status trace_status_;
};

}  // namespace minisgl::report
