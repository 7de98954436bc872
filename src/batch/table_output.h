// The answers of a run as a table: the columns of the input, then those of the answers. The same
// for the error rows of --errors: the columns of the input, then the error.
//
// A run with such an output writes its rows as they end, to a file beside it, from which it can be
// resumed. After all rows are answered that file is sorted (RunOutput), the table is made of it and
// of the input, in the order of the input, and replaces what had its name in one piece. Used by one
// thread.
#pragma once

#include <string>
#include <vector>

#include "batch/row_source.h"
#include "batch/run_input.h"
#include "batch/run_options.h"
#include "minisgl/base/status.h"

namespace minisgl::batch {

// If the output of `options` is a table, moves its name to options->table, and makes a file of
// rows, with .jsonl added to the name, the output; likewise for the error rows. Checks that nothing
// is overwritten: kCannotCreate, kUsage.
Status TakeTableOutput(RunOptions* options);

// Moves the name of a file that is made of all rows at the end from *output to *file, and makes the
// file of rows, with .jsonl added to the name, the output. `option` is what names it.
// kCannotCreate: the name is that of another file of the run, or as CheckReplaces.
Status TakeFinishedFile(const RunOptions& options, const char* option, std::string* output,
                        std::string* file);
// kCannotCreate if the file is there, is not empty, and no option lets the run replace it.
Status CheckReplaces(const RunOptions& options, const std::string& path);

// The columns that answers fill: the properties of the schema that they follow, or `text`; of
// scores their sum and number.
std::vector<std::string> AnswerColumns(const RunOptions& options);

// Writes options.table and options.errors_table: the records of `reader` that `asked` owns, with
// their answers or errors from the files of rows, one of which has a row for each of them, in input
// order. Reads the input again. Returns the number of answers that count as answers and are no JSON
// objects, of which the columns are to be filled. kBadInput, kIoError, kCannotCreate.
Result<int64_t> WriteTables(const RunOptions& options, LineReader* reader,
                            const RowSelection& asked);

}  // namespace minisgl::batch
