#include "batch/row_tools.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "minisgl/base/utf8.h"

namespace minisgl::batch {
namespace {

bool IsText(const Json* value, std::string_view text) {
  return value != nullptr && value->is_string() && value->as_string() == text;
}

// Clients of Mistral and Anthropic call "any" what others call "required".
std::optional<ToolUse> UseOf(const Json* value) {
  if (IsText(value, "auto")) return ToolUse::kAuto;
  if (IsText(value, "none")) return ToolUse::kNone;
  if (IsText(value, "required") || IsText(value, "any")) return ToolUse::kRequired;
  return std::nullopt;
}

// The name in {"function": {"name": ...}} or in {"name": ...}; null if there is none.
const Json* NameIn(const Json& choice) {
  const Json* const function = choice.Find("function");
  const Json* const name = (function != nullptr ? *function : choice).Find("name");
  return name != nullptr && name->is_string() && !name->as_string().empty() ? name : nullptr;
}

// {"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}, of which the inner
// members may stand beside the type, too.
bool TakeAllowedTools(const Json& choice, ToolSettings* settings) {
  const Json* const nested = choice.Find("allowed_tools");
  const Json& allowed = nested != nullptr ? *nested : choice;
  const std::optional<ToolUse> use = UseOf(allowed.Find("mode"));
  const Json* const tools = allowed.Find("tools");
  if (!use || *use == ToolUse::kNone || tools == nullptr || !tools->is_array() ||
      tools->as_array().empty()) {
    return false;
  }
  settings->use = *use;
  for (const Json& tool : tools->as_array()) {
    const Json* const name = NameIn(tool);
    if (name == nullptr) return false;
    settings->allowed.push_back(name->as_string());
  }
  return true;
}

bool TakeChoiceObject(const Json& choice, ToolSettings* settings) {
  const Json* const type = choice.Find("type");
  if (IsText(type, "allowed_tools")) return TakeAllowedTools(choice, settings);
  if (const std::optional<ToolUse> use = UseOf(type)) {
    settings->use = *use;
    const Json* const one = choice.Find("disable_parallel_tool_use");
    if (one != nullptr && *one == Json(true)) settings->parallel = false;
    return one == nullptr || one->is_bool();
  }
  if (type != nullptr && !IsText(type, "function") && !IsText(type, "tool")) return false;
  const Json* const name = NameIn(choice);
  if (name == nullptr) return false;
  settings->use = ToolUse::kRequired;
  settings->is_named = true;
  settings->allowed = {name->as_string()};
  return true;
}

}  // namespace

bool TakeToolChoice(Json& value, RowDraft* draft) {
  ToolSettings& settings = draft->row.tool_settings;
  if (value.is_object()) return TakeChoiceObject(value, &settings);
  const std::optional<ToolUse> use = UseOf(&value);
  if (use) settings.use = *use;
  return use.has_value();
}

bool TakeParallelCalls(Json& value, RowDraft* draft) {
  draft->row.tool_settings.parallel = draft->row.tool_settings.parallel && value.as_bool();
  return true;
}

bool TakeParseCalls(Json& value, RowDraft* draft) {
  draft->row.tool_settings.reads_calls = value.as_bool();
  return true;
}

const Json* FunctionOf(const Json& tool) {
  const Json* const nested = tool.Find("function");
  const Json& function = nested != nullptr ? *nested : tool;
  const Json* const name = function.Find("name");
  const bool is_named = name != nullptr && name->is_string() && !name->as_string().empty();
  return is_named ? &function : nullptr;
}

bool HasTools(const Row& row) {
  return row.tools.is_array() && !row.tools.as_array().empty() &&
         row.tool_settings.use != ToolUse::kNone;
}

std::vector<std::string> ToolNames(const Row& row) {
  std::vector<std::string> names;
  if (!HasTools(row)) return names;
  for (const Json& tool : row.tools.as_array()) {
    const Json* const function = FunctionOf(tool);
    if (function != nullptr) names.push_back(function->Find("name")->as_string());
  }
  return names;
}

void FreeCalls(Row* row) {
  if (row->tool_settings.use != ToolUse::kRequired) return;
  row->forced = row->tool_settings;
  row->tool_settings.use = ToolUse::kAuto;
  if (std::exchange(row->tool_settings.is_named, false)) row->tool_settings.allowed.clear();
  row->grammar.reset();
  row->has_call_settings = false;
}

void ForceCalls(Row* row) {
  if (!row->forced) return;
  row->tool_settings = *std::exchange(row->forced, std::nullopt);
  row->grammar.reset();
  row->has_call_settings = false;
}

std::optional<RowError> CheckTools(Row* row) {
  constexpr const char* kField = "tool_choice";
  const ToolSettings& settings = row->tool_settings;
  if (settings.use == ToolUse::kNone) {
    row->tools = Json();
    return std::nullopt;
  }
  if (settings.use == ToolUse::kRequired && !HasTools(*row)) {
    return InvalidRow("tool_choice asks for a call, but the row has no tools", kField);
  }
  if (settings.use != ToolUse::kRequired && settings.allowed.empty()) return std::nullopt;
  const std::vector<std::string> names = ToolNames(*row);
  for (const std::string& name : settings.allowed) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    return InvalidRow(
        fmt::format("tool_choice names the function {}, which is not one of the tools",
                    Visible(name, 100)),
        kField);
  }
  if (!names.empty()) return std::nullopt;
  return InvalidRow("tool_choice asks for a call, but no tool is a function with a name", kField);
}

}  // namespace minisgl::batch
