// The rows of `minisgl toolcalls --file`: answers, of which the calls are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "batch/row.h"
#include "minisgl/base/status.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl::cli {

struct ToolCallRow {
  std::string id = "null";  // as JSON
  ToolDialect dialect = ToolDialect::kNone;
  Json tools;
  std::string text;
};

// Reads a line; `dialect` is that of rows that name none, kNone if they must. On an error, *row has
// the id if it could be read.
std::optional<batch::RowError> ParseToolCallRow(const std::string& line, ToolDialect dialect,
                                                ToolCallRow* row);

// Reads the calls and formats the answer, a line.
std::string AnswerToolCallRow(const ToolCallRow& row);
std::string FormatToolCallError(const ToolCallRow& row, int64_t line, const batch::RowError& error);

}  // namespace minisgl::cli
