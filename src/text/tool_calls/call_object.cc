#include "text/tool_calls/call_object.h"

#include <string>
#include <utility>

#include "minisgl/base/json_scanner.h"
#include "text/tool_calls/json_span.h"

namespace minisgl::text {
namespace {

using Token = JsonScanner::Token;

// The members of a call, as JSON text; "" for those that are missing.
struct CallMembers {
  std::string_view name, arguments, id, function;
};

bool FindMembers(std::string_view json, CallMembers* members) {
  JsonScanner scanner(json, kJsonDepthMax);
  if (!scanner.Next() || scanner.token() != Token::kBeginObject) return false;
  while (scanner.Next() && scanner.token() == Token::kKey) {
    const std::string key = UnquoteJson(scanner.raw());
    std::string_view value;
    if (!scanner.SkipValue(&value)) return false;
    if (key == "name") members->name = value;
    if (key == "arguments" || key == "parameters") members->arguments = value;
    if (key == "id") members->id = value;
    if (key == "function") members->function = value;
  }
  return scanner.status().ok();
}

bool IsStringText(std::string_view json) { return json.starts_with('"'); }

std::optional<std::string> ArgumentsOf(std::string_view json) {
  if (json.empty() || json == "null") return "{}";
  if (json.starts_with('{')) return std::string(json);
  if (!IsStringText(json)) return std::nullopt;
  const std::string unquoted = UnquoteJson(json);
  const std::string_view text = WithoutSpace(unquoted);
  if (text.empty() || text == "null") return "{}";
  if (!text.starts_with('{') || !IsJson(text)) return std::nullopt;
  return std::string(text);
}

}  // namespace

std::optional<ToolCall> ReadCallObject(std::string_view json, bool needs_arguments) {
  CallMembers members;
  if (!FindMembers(json, &members)) return std::nullopt;
  if (members.name.empty() && members.function.starts_with('{')) {
    const std::string_view id = members.id;
    if (!FindMembers(members.function, &members)) return std::nullopt;
    members.id = id;
  }
  if (!IsStringText(members.name)) return std::nullopt;
  if (needs_arguments && members.arguments.empty()) return std::nullopt;
  std::optional<std::string> arguments = ArgumentsOf(members.arguments);
  ToolCall call;
  call.name = UnquoteJson(members.name);
  if (call.name.empty() || !arguments) return std::nullopt;
  call.arguments = std::move(*arguments);
  if (IsStringText(members.id)) call.id = UnquoteJson(members.id);
  return call;
}

std::optional<std::vector<ToolCall>> ReadCallObjects(std::string_view json, bool needs_arguments) {
  std::vector<ToolCall> calls;
  if (!json.starts_with('[')) {
    std::optional<ToolCall> call = ReadCallObject(json, needs_arguments);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
    return calls;
  }
  JsonScanner scanner(json, kJsonDepthMax);
  scanner.Next();
  while (scanner.Next() && scanner.token() != Token::kEndArray) {
    if (scanner.token() != Token::kBeginObject) return std::nullopt;
    const size_t begin = scanner.begin();
    while (scanner.depth() > 1 && scanner.Next()) continue;
    const std::string_view value = json.substr(begin, scanner.begin() + 1 - begin);
    std::optional<ToolCall> call = ReadCallObject(value, needs_arguments);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace minisgl::text
