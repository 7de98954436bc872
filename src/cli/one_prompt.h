// The one prompt of `minisgl run` without --file.
#pragma once

#include "batch/row.h"
#include "batch/run_options.h"
#include "minisgl/base/status.h"
#include "minisgl/text/text_model.h"

namespace minisgl::cli {

// The row of -p, after standard input if that is no terminal. kUsage if there is no prompt or it is
// a row of JSON Lines, kBadInput if standard input is empty.
Result<batch::Row> OnePromptRow(const batch::RunOptions& options);

// Whether the files of --image are pictures that the model of `text` can be shown: the errors of
// ImageReader::Take, and kUsage for a model without pictures.
Status CheckPictures(const batch::RunOptions& options, const TextModel& text);

}  // namespace minisgl::cli
