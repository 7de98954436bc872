// Resuming from the output of an earlier run, one file or two (--errors): which rows it answers,
// which of its lines are kept, and how a file gets into input order at the end.
//
// Rules:
// - A row with an answer is kept.
// - A failed row is kept too, unless the failure was the run's (cancelled, device_fault, internal)
//   or failed rows are retried. Then its line is dropped, so that each row appears once.
// - Rows of a session after one that is asked again are asked again, too.
// - Of a row that is in both files the answer is kept.
// - Only the last line of a file may be torn. If it is a complete row without its line break, it is
//   kept.
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

// The lines of an existing file.
struct OldLines {
  std::deque<uint32_t> indexes;  // row index of each line; kDroppedLine if dropped
  bool any_dropped = false;
  bool ascending = true;  // lines that are kept are in input order
  int64_t torn_at = -1;   // offset of a torn last line; -1 if there is none
  bool lacks_line_break = false;

  static constexpr uint32_t kDroppedLine = UINT32_MAX;
};

// Contents of an existing output.
struct OldOutput {
  std::vector<bool> finished;  // by row index
  int64_t answered = 0;
  int64_t failed = 0;  // and not retried
  int64_t asked_again = 0;
  ScoreTotals scores;  // of the rows of minisgl score that are kept
  // Kept rows of sessions that go on.
  std::unordered_map<int64_t, EarlierAnswer> earlier;
  OldLines answers, errors;  // errors: of the file of error rows, if there is one
};

// Reads the output file, and the file of error rows ("": none), without changing them. A missing
// file counts as empty. kBadInput, naming the line, if a complete line is not an answer to this
// input: the row at its index must have the line's id, or neither may have one. (The line of a
// failed row may lack the id.) The same if the file of error rows holds an answer.
Result<OldOutput> ReadOldOutput(const std::string& path, const std::string& errors_path,
                                const ResumeOptions& options);

// Keeps the lines of a file that stay, in input order if `ordered`. If lines are dropped, the whole
// file is replaced atomically. kIoError, kCannotCreate.
Status RepairOldFile(const std::string& path, const OldLines& old, bool ordered);

// Called after all rows are written: moves the rows added after `old_bytes` to their places. Both
// the old part and the added part are in input order. `asked` selects the added rows out of
// `num_rows`; the other rows of its range were there before.
Status MergeInOrder(const std::string& path, const RowSelection& asked, int64_t num_rows,
                    int64_t old_bytes);
// Sorts the rows of a file by `index`, which each of them has; a file that is sorted stays. Memory:
// 12 bytes a row. kIoError, kBadInput naming the line.
Status SortByIndex(const std::string& path);
// True if MergeInOrder has anything to do.
bool NeedsMerge(const RowSelection& asked, int64_t num_rows);

}  // namespace minisgl::batch
