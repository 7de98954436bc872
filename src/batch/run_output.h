// The output of a run: one file, or with --errors a second one for error rows. With its journal
// (run_journal.h), the rows of an earlier run that are kept (resume.h), and the requested order.
//
// Order of calls: Open before the model is loaded, which changes no existing file; Begin before the
// first row; Finish after the last.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "batch/error_file.h"
#include "batch/id_table.h"
#include "batch/resume.h"
#include "batch/row_source.h"
#include "batch/run_input.h"
#include "batch/run_options.h"
#include "batch/shard.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "term/output.h"

namespace minisgl::batch {

// The input whose rows the output answers.
struct RunInput {
  const LineReader* reader = nullptr;  // null for the one prompt of the command line
  const FileCheck* check = nullptr;    // of a regular file; used only by Open
  const IdTable* ids = nullptr;        // of the rows, if --resume is given; used only by Open
  Shard shard;
  std::string model_dir;
};

class RunOutput {
 public:
  // With --resume, removes finished rows from `*asked`, which must outlive this. kCannotCreate as
  // for Output::Open, and if the output belongs to another run; kBadInput if it holds something
  // else than answers.
  static Result<std::unique_ptr<RunOutput>> Open(const RunOptions& options, const RunInput& input,
                                                 RowSelection* asked);

  // Empties or repairs the files and writes the journal.
  Status Begin();
  // `all_written`: true if every selected row is in the output; only then files are sorted.
  Status Finish(bool all_written);

  term::Output* output() { return output_.get(); }
  // Null: error rows go to the output.
  ErrorFile* errors() { return errors_.get(); }
  // True if a reader of either output has closed its pipe.
  bool pipe_closed() const;
  // True if --resume can continue this output after a failure.
  bool can_resume() const { return has_journal_; }
  // Failed rows of the earlier run that stay in the output.
  int64_t failed_before() const { return failed_before_; }
  // Rows of the earlier run that stay in the output, failed ones included.
  int64_t rows_before() const { return rows_before_; }
  // Totals of its scored rows that stay.
  const ScoreTotals& scores_before() const { return scores_before_; }

 private:
  RunOutput() = default;
  Status OpenErrors(const RunOptions& options, int input_fd);
  Status ReadOld(const RunOptions& options, const RunInput& input, RowSelection* asked);
  Status CheckIsOurs(const RunInput& input, bool force) const;
  // Repairs a file of the earlier run; *bytes becomes its length then.
  Status TakeOldFile(term::Output* output, OldLines* old, int64_t* bytes) const;
  // Puts the rows that were added to a file in their places.
  Status MergeFile(const term::Output& output, int64_t old_bytes, bool holds_errors) const;

  std::unique_ptr<term::Output> output_;
  std::unique_ptr<ErrorFile> errors_;
  std::optional<Json> run_;       // for the journal; unset if none is written
  std::optional<OldOutput> old_;  // set if the run resumes
  const RowSelection* asked_ = nullptr;
  int64_t num_rows_ = 0;
  int64_t failed_before_ = 0, rows_before_ = 0;
  ScoreTotals scores_before_;
  int64_t old_bytes_ = 0, old_error_bytes_ = 0;
  bool ordered_ = false;
  bool sorts_files_ = false;  // after the last row: tables are made of them
  bool has_journal_ = false;  // and it is on disk
};

}  // namespace minisgl::batch
