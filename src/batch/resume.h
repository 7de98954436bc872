// Resuming from the output file of an earlier run: which rows it answers, which of its lines are
// kept, and how the file gets into input order at the end.
//
// Rules:
// - A row with an answer is kept.
// - A failed row is kept too, unless the failure was the run's (cancelled, device_fault, internal)
//   or failed rows are retried. Then its line is dropped, so that each row appears once.
// - Rows of a session after one that is asked again are asked again, too.
// - Only the last line may be torn. If it is a complete row without its line break, it is kept.
//
// Memory: slightly more than four bytes a row.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "batch/id_table.h"
#include "batch/row_source.h"
#include "batch/score_totals.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

struct ResumeOptions {
  const FileCheck* check = nullptr;  // of the input
  const IdTable* ids = nullptr;      // first row of the input with each id
  bool retry_failed = false;
};

// Contents of an existing output file.
struct OldOutput {
  std::vector<bool> finished;  // by row index
  int64_t answered = 0;
  int64_t failed = 0;  // and not retried
  int64_t asked_again = 0;
  ScoreTotals scores;            // of the rows of minisgl score that are kept
  std::deque<uint32_t> indexes;  // row index of each line; kDroppedLine if dropped
  // Kept rows of sessions that go on.
  std::unordered_map<int64_t, EarlierAnswer> earlier;
  bool any_dropped = false;
  bool ascending = true;  // lines that are kept are in input order
  int64_t torn_at = -1;   // offset of a torn last line; -1 if there is none
  bool lacks_line_break = false;

  static constexpr uint32_t kDroppedLine = UINT32_MAX;
};

// Reads the output file without changing it. A missing file counts as empty. kBadInput, naming the
// line, if a complete line is not an answer to this input: the row at its index must have the
// line's id, or neither may have one. (The line of a failed row may lack the id.)
Result<OldOutput> ReadOldOutput(const std::string& path, const ResumeOptions& options);

// Keeps the lines that stay, in input order if `ordered`. If lines are dropped, the whole file is
// replaced atomically. kIoError, kCannotCreate.
Status RepairOldOutput(const std::string& path, const OldOutput& old, bool ordered);

// Called after all rows are written: moves the rows added after `old_bytes` to their places. Both
// the old part and the added part are in input order. `asked` selects the added rows out of
// `num_rows`; the other rows of its range were there before.
Status MergeInOrder(const std::string& path, const RowSelection& asked, int64_t num_rows,
                    int64_t old_bytes);
// True if MergeInOrder has anything to do.
bool NeedsMerge(const RowSelection& asked, int64_t num_rows);

}  // namespace minisgl::batch
