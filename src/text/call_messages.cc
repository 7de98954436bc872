#include "minisgl/text/call_messages.h"

#include <utility>

#include "minisgl/text/text_model.h"

namespace minisgl {

ToolDialect ToolDialectOf(const TextModel& text) {
  if (text.tool_dialect) return *text.tool_dialect;
  if (text.chat_template == nullptr) return ToolDialect::kNone;
  return DetectToolDialect(*text.chat_template, *text.tokenizer);
}

Json CallsJson(std::span<const ToolCall> calls) {
  Json list = Json(Json::Array());
  for (const ToolCall& call : calls) {
    Json function, json;
    function.Set("name", call.name).Set("arguments", call.arguments);
    json.Set("id", call.id).Set("type", "function").Set("function", std::move(function));
    list.Append(std::move(json));
  }
  return list;
}

}  // namespace minisgl
