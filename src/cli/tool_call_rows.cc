#include "cli/tool_call_rows.h"

#include <fmt/core.h>

#include <optional>
#include <string_view>
#include <utility>

#include "batch/row_output.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::cli {
namespace {

using batch::InvalidRow;
using batch::RowError;

RowError WrongType(std::string_view field, std::string_view wanted, const Json& value) {
  return InvalidRow(fmt::format("{} must be {} (found {})", field, wanted, value.TypeName()),
                    std::string(field));
}

std::optional<RowError> TakeDialect(const Json& value, ToolCallRow* row) {
  if (!value.is_string()) return WrongType("dialect", "a string", value);
  const std::optional<ToolDialect> dialect = FindToolDialect(value.as_string());
  if (!dialect) {
    return InvalidRow(fmt::format("dialect must be one of {} (found \"{}\")", ListToolDialects(),
                                  Visible(value.as_string())),
                      "dialect");
  }
  row->dialect = *dialect;
  return std::nullopt;
}

std::optional<RowError> TakeTools(Json value, ToolCallRow* row) {
  if (!value.is_array() && !value.is_null()) return WrongType("tools", "an array", value);
  if (value.is_array()) {
    for (const Json& tool : value.as_array()) {
      if (!tool.is_object()) return WrongType("tools", "an array of objects", tool);
    }
  }
  row->tools = std::move(value);
  return std::nullopt;
}

std::optional<RowError> TakeMember(const std::string& key, Json value, ToolCallRow* row) {
  if (key == "id") {
    if (value.is_array() || value.is_object() || value.is_bool()) {
      return WrongType("id", "a string or a number", value);
    }
    row->id = value.Dump();
    return std::nullopt;
  }
  if (key == "dialect") return TakeDialect(value, row);
  if (key == "tools") return TakeTools(std::move(value), row);
  if (key == "text") {
    if (!value.is_string()) return WrongType("text", "a string", value);
    row->text = std::move(value.as_string());
    return std::nullopt;
  }
  return InvalidRow(
      fmt::format("unknown field \"{}\"; rows have id, dialect, tools and text", Visible(key)),
      key);
}

}  // namespace

std::optional<RowError> ParseToolCallRow(const std::string& line, ToolDialect dialect,
                                         ToolCallRow* row) {
  Result<Json> parsed = ParseJson(line);
  if (!parsed.ok()) return InvalidRow(parsed.status().message());
  if (!parsed->is_object()) {
    return InvalidRow(fmt::format("a row must be an object (found {})", parsed->TypeName()));
  }
  row->dialect = dialect;
  const bool has_text = parsed->Find("text") != nullptr;
  std::optional<RowError> first_error;
  for (auto& [key, value] : parsed->as_object()) {
    std::optional<RowError> error = TakeMember(key, std::move(value), row);
    if (!first_error) first_error = std::move(error);
  }
  if (first_error) return first_error;
  if (!has_text) return InvalidRow("text is missing; give an answer of a model", "text");
  if (row->dialect == ToolDialect::kNone) {
    return InvalidRow(
        fmt::format("dialect is missing; give one of {}, or --tool-dialect", ListToolDialects()),
        "dialect");
  }
  return std::nullopt;
}

std::string AnswerToolCallRow(const ToolCallRow& row) {
  ToolCallPiece read = ReadSpelledToolCalls(row.dialect, row.tools, row.text);
  Json::Array calls;
  for (ToolCall& call : read.calls) {
    Json shown;
    shown.Set("name", std::move(call.name)).Set("arguments", std::move(call.arguments));
    if (!call.id.empty()) shown.Set("id", std::move(call.id));
    calls.push_back(std::move(shown));
  }
  const bool has_content = !read.content.empty() || calls.empty();
  const bool has_reasoning = !read.reasoning.empty();
  Json out;
  out.Set("id", Json::Raw(row.id));
  out.Set("content", has_content ? Json(std::move(read.content)) : Json());
  out.Set("reasoning", has_reasoning ? Json(std::move(read.reasoning)) : Json());
  out.Set("tool_calls", Json(std::move(calls)));
  return out.Dump() + "\n";
}

std::string FormatToolCallError(const ToolCallRow& row, int64_t line, const RowError& error) {
  batch::Row place;
  place.line = line;
  Json out;
  out.Set("id", Json::Raw(row.id)).Set("error", batch::ErrorJson(place, error));
  return out.Dump() + "\n";
}

}  // namespace minisgl::cli
