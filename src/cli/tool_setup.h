// The tools of the user in `minisgl run`.
#pragma once

#include <memory>

#include "batch/row.h"
#include "batch/run_loop.h"
#include "batch/run_options.h"
#include "batch/tool_turns.h"
#include "load/user_tools.h"
#include "minisgl/base/status.h"

namespace minisgl::cli {

// The turns that begin with `row`, whose answers may call the tools of the options. Errors:
// UserTools::Take.
Result<std::unique_ptr<batch::ToolTurns>> ToolTurnsOf(const batch::RunOptions& options,
                                                      batch::Row row);

// The tools whose calls in rows of a file are run. REQUIRES that both arguments outlive the result.
batch::RowTools RowToolsOf(const load::ToolOptions& options, const load::UserTools& tools);

}  // namespace minisgl::cli
