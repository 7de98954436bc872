#include "cli/tool_setup.h"

#include <functional>
#include <string>
#include <utility>

#include "term/signals.h"

namespace minisgl::cli {

Result<std::unique_ptr<batch::ToolTurns>> ToolTurnsOf(const batch::RunOptions& options,
                                                      batch::Row row) {
  MINISGL_ASSIGN_OR_RETURN(load::UserTools tools, load::UserTools::Take(options.tools));
  return std::make_unique<batch::ToolTurns>(std::move(row), std::move(tools), options.tools,
                                            [] { return term::StopSignal() != 0; });
}

batch::RowTools RowToolsOf(const load::ToolOptions& options, const load::UserTools& tools) {
  batch::RowTools row_tools;
  if (tools.empty()) return row_tools;
  row_tools.knows = [&tools](const std::string& name) { return tools.Find(name) != nullptr; };
  row_tools.run = [&](const ToolCall& call, const std::function<bool()>& stops) {
    return load::RunUserTool(tools, options, call, stops);
  };
  row_tools.turns_max = options.turns_max;
  row_tools.at_once = options.at_once;
  return row_tools;
}

}  // namespace minisgl::cli
