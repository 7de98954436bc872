// Going on with the output file of an earlier run: which rows it answers, what of it stays, and the
// order of the whole at the end.
//
// A row that has an answer stays. One that failed stays too, unless the failure was the run's and
// not its own (cancelled, device_fault, internal) or failed rows are to be asked again; then its
// line goes, so that each row is there once. Only the last line may be torn; where it is a whole
// row that lacks its line break it stays. Memory: four bytes a row and a bit.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "batch/id_table.h"
#include "batch/row_source.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

struct ResumeOptions {
  const FileCheck* check = nullptr;  // of the input
  const IdTable* ids = nullptr;      // index of the first row of the input that has an id
  bool retry_failed = false;
};

// What an output file holds, as it was found.
struct OldOutput {
  std::vector<bool> finished;  // by index of the row
  int64_t answered = 0;
  int64_t failed = 0;  // and not asked again
  int64_t asked_again = 0;
  std::deque<uint32_t> indexes;  // of each line; kDroppedLine: it goes
  bool any_dropped = false;
  bool ascending = true;  // those that stay
  int64_t torn_at = -1;   // the last line is torn, and begins there
  bool lacks_line_break = false;

  static constexpr uint32_t kDroppedLine = UINT32_MAX;
};

// Changes nothing. A file that is not there is empty. kBadInput for a whole line that is no answer
// of this input, naming it: the row at its index has the line's id, or neither has one. (A row that
// failed may lack the id.)
Result<OldOutput> ReadOldOutput(const std::string& path, const ResumeOptions& options);

// Leaves what stays, in input order where `ordered`. Where lines go, the file is replaced by
// another as a whole. kIoError, kCannotCreate.
Status RepairOldOutput(const std::string& path, const OldOutput& old, bool ordered);

// Once all rows are there: brings the rows that were added after `old_bytes` (in input order, as
// are those before) to their places. `asked`: which those are, of `num_rows`; the others of its
// range were there before.
Status MergeInOrder(const std::string& path, const RowSelection& asked, int64_t num_rows,
                    int64_t old_bytes);
// Whether there is anything for it to do.
bool NeedsMerge(const RowSelection& asked, int64_t num_rows);

}  // namespace minisgl::batch
