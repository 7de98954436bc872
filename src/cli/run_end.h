// The messages of `minisgl run` and `minisgl score` on standard error during a run and at its end.
#pragma once

#include <cstdint>
#include <string>

#include "batch/failures.h"
#include "batch/row_source.h"
#include "batch/run_input.h"
#include "batch/run_loop.h"
#include "batch/run_options.h"
#include "batch/run_output.h"
#include "minisgl/base/status.h"
#include "minisgl/weights/model_config.h"
#include "report/summary.h"
#include "term/output.h"
#include "term/progress.h"

namespace minisgl::cli {

// Whether there is a line of progress: it would disturb answers on the same terminal.
term::ProgressKind ProgressOf(const batch::RunOptions& options, bool as_text,
                              const term::Output& output);

// Shows the numbers at the end of `loop`.
void EndProgress(const batch::RunLoop& loop, const Runtime& runtime, term::Progress* progress);

void SaySummary(const batch::RunOptions& options, const report::RunSummary& summary,
                bool one_prompt);

// Reports why the exit status is 1, even if notes are off.
void ReportFailures(const batch::RunOptions& options, const batch::Failures& failures,
                    const batch::RunOutput& output);

// Logs how many rows a stop has left without an answer, if --resume can go on with them.
void SayRowsLeft(int64_t count, const batch::RunOutput& output);

// Logs how many rows took too long and were asked again, and how many answers were cut since they
// took too long.
void SayTimeouts(const batch::RunLoop& loop, const batch::RunOptions& options);

// Makes the table or the array of the rows, and the table of error rows, if there are to be any and
// all rows are there. Returns the exit status that they call for.
Result<int> FinishFiles(const batch::RunOptions& options, batch::LineReader* reader,
                        const batch::RowSelection& asked, const batch::RunOutput& output,
                        bool all_written);

// Logs how many answers ended at the default limit, which no option or row asked for.
void SayCutAnswers(const batch::RunOptions& options, const GenerationConfig& generation,
                   int64_t count);

}  // namespace minisgl::cli
