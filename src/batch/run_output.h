// The output of a run with what makes it trustworthy: the journal beside it (run_journal.h), the
// rows that an earlier run left in it (resume.h), and at the end the order that was asked for.
//
// Order of calls: Open, before a model is loaded, changes nothing that is there; Begin, before the
// first row; Finish, after the last.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

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

// The rows that the output is of.
struct RunInput {
  const LineReader* reader = nullptr;  // null: the one prompt of the command line
  const FileCheck* check = nullptr;    // of a regular file; used by Open alone
  const IdTable* ids = nullptr;        // of its rows, where --resume is given; used by Open alone
  Shard shard;
  std::string model_dir;
};

class RunOutput {
 public:
  // With --resume `*asked` loses the rows that are finished; it outlives this. kCannotCreate as
  // Output::Open says it, and for an output of another run; kBadInput for one that holds what is no
  // answer.
  static Result<std::unique_ptr<RunOutput>> Open(const RunOptions& options, const RunInput& input,
                                                 RowSelection* asked);

  // Empties or repairs the file, and writes the journal.
  Status Begin();
  // `all_written`: every row that was asked is there.
  Status Finish(bool all_written);

  term::Output* output() { return output_.get(); }
  // Whether --resume can go on with it after a failure.
  bool can_resume() const { return has_journal_; }
  // Of rows that stay in the output.
  int64_t failed_before() const { return failed_before_; }

 private:
  RunOutput() = default;
  Status ReadOld(const RunOptions& options, const RunInput& input, RowSelection* asked);
  Status CheckIsOurs(const RunInput& input, bool force) const;

  std::unique_ptr<term::Output> output_;
  std::optional<Json> run_;       // for the journal
  std::optional<OldOutput> old_;  // of a run that resumes
  const RowSelection* asked_ = nullptr;
  int64_t num_rows_ = 0;
  int64_t failed_before_ = 0;
  int64_t old_bytes_ = 0;
  bool ordered_ = false;
  bool has_journal_ = false;  // on its disk
};

}  // namespace minisgl::batch
