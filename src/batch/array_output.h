// The vectors of a run as one NumPy array, FILE.npy of format 1.0, and beside it
// FILE.npy.ids.jsonl, which says of each row of the array whose vector it is.
//
// As with a table (table_output.h), the run writes rows as they end, to FILE.npy.jsonl, from which
// it can be resumed. After all rows are there that file is sorted, and the array is made of it and
// replaces what had its name in one piece: a reader sees no array that is cut. Used by one thread.
#pragma once

#include <string>

#include "batch/run_options.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

// If the output of `options` is an array, moves its name to options->array, and makes the file of
// rows the output. kUsage, kCannotCreate as for a table.
Status TakeArrayOutput(RunOptions* options);

// The file that names the rows of an array.
std::string ArrayIdsPath(const std::string& array);

// Writes options.array of the rows in options.output, and the file beside it: first that, so that
// an array is never there without it. A row of the input has one row of the array, or one for each
// of its texts. An error row has one of NaN, with its code in the file beside. The array is [0, 0]
// if there are no rows. kBadInput, kIoError, kCannotCreate.
Status WriteArray(const RunOptions& options);

}  // namespace minisgl::batch
