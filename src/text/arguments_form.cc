#include "text/arguments_form.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minisgl::text {
namespace {

// Words that no template writes by itself.
constexpr std::string_view kKey = "key4180273956";
constexpr std::string_view kValue = "value5609372814";
// Upper bound on the memory of the objects made of texts, all in a conversation together: further
// texts stay texts.
constexpr uint64_t kObjectsMemoryMax = uint64_t{48} << 20;

// A conversation with a tool call. Templates may insist on a result behind a call, or on content of
// a certain kind beside it, and some read the members of a call without the object `function`.
struct Trial {
  bool has_result = true;
  bool is_bare = false;
  Json content;
};

std::vector<Trial> Trials() {
  std::vector<Trial> trials;
  for (const bool is_bare : {false, true}) {
    for (const Json& content : {Json(""), Json(), Json("a")}) {
      for (const bool has_result : {true, false}) trials.push_back({has_result, is_bare, content});
    }
  }
  return trials;
}

Json Message(const char* role, Json content) {
  Json message;
  message.Set("role", role).Set("content", std::move(content));
  return message;
}

Json Tools() {
  Json parameters, function, tool;
  parameters.Set("type", "object").Set("properties", Json(Json::Object{}));
  function.Set("name", "f").Set("description", "a").Set("parameters", std::move(parameters));
  tool.Set("type", "function").Set("function", std::move(function));
  return Json(Json::Array{std::move(tool)});
}

Json Call(bool is_bare, Json arguments) {
  Json call, function;
  function.Set("name", "f").Set("arguments", std::move(arguments));
  call.Set("id", "call00001").Set("type", "function");  // some templates want nine characters
  if (is_bare) {
    call.SetAll(std::move(function));
  } else {
    call.Set("function", std::move(function));
  }
  return call;
}

// What a template writes of a call with these arguments; "" if it fails.
std::string Rendered(const ChatTemplate& chat, bool with_tools, const Trial& trial,
                     Json arguments) {
  ChatInput input;
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now = 0;
  if (with_tools) input.tools = Tools();
  Json called = Message("assistant", trial.content);
  called.Set("tool_calls", Json(Json::Array{Call(trial.is_bare, std::move(arguments))}));
  input.messages = Json(Json::Array{Message("user", "a"), std::move(called)});
  if (trial.has_result) {
    Json result = Message("tool", "a");
    result.Set("name", "f").Set("tool_call_id", "call00001");
    input.messages.Append(std::move(result));
  }
  const Result<std::vector<TextPiece>> pieces = chat.Render(input);
  std::string text;
  for (size_t i = 0; pieces.ok() && i < pieces->size(); ++i) text += (*pieces)[i].text;
  return text;
}

bool Has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool HasBoth(const std::string& text) { return Has(text, kKey) && Has(text, kValue); }

Json* ArgumentsOf(Json* call) {
  if (!call->is_object()) return nullptr;
  Json* const function = call->Find("function");
  const bool has_function = function != nullptr && function->is_object();
  Json* const holder = has_function ? function : call;
  if (Json* const arguments = holder->Find("arguments")) return arguments;
  if (!has_function) return nullptr;
  holder->Set("arguments", Json());
  return holder->Find("arguments");
}

bool IsBlank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
}

// Memory of the values in `json`, not counting the characters of strings.
uint64_t MemoryOf(const Json& json) {
  uint64_t bytes = sizeof(Json);
  if (json.is_array()) {
    for (const Json& item : json.as_array()) bytes += MemoryOf(item);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.as_object()) bytes += sizeof(key) + MemoryOf(value);
  }
  return bytes;
}

void MakeObject(Json* arguments, uint64_t* memory) {
  if (arguments->is_null() || (arguments->is_string() && IsBlank(arguments->as_string()))) {
    *arguments = Json(Json::Object{});
    return;
  }
  if (!arguments->is_string() || *memory >= kObjectsMemoryMax) return;
  JsonLimits limits;
  limits.memory_max = kObjectsMemoryMax - *memory;
  limits.keeps_last = true;
  Result<Json> parsed = ParseJson(arguments->as_string(), limits);
  if (!parsed.ok() || !parsed->is_object()) return;
  *memory += MemoryOf(*parsed);
  *arguments = std::move(parsed).value();
}

void MakeText(Json* arguments) {
  if (arguments->is_null()) {
    *arguments = Json("{}");
  } else if (arguments->is_object() || arguments->is_array()) {
    *arguments = Json(arguments->Dump());
  }
}

}  // namespace

ArgumentsForm FindArgumentsForm(const ChatTemplate& chat, bool with_tools) {
  Json object;
  object.Set(std::string(kKey), kValue);
  const std::string as_text = object.Dump();
  const std::string in_python = "'" + std::string(kKey) + "': '" + std::string(kValue) + "'";
  for (const Trial& trial : Trials()) {
    const std::string of_object = Rendered(chat, with_tools, trial, object);
    if (HasBoth(of_object) && !Has(of_object, in_python)) return ArgumentsForm::kObject;
    const std::string of_text = Rendered(chat, with_tools, trial, Json(as_text));
    if (HasBoth(of_object)) {
      return Has(of_text, as_text) ? ArgumentsForm::kText : ArgumentsForm::kObject;
    }
    if (HasBoth(of_text)) return ArgumentsForm::kText;
  }
  return ArgumentsForm::kObject;
}

bool HasCalls(const Json& messages) {
  if (!messages.is_array()) return false;
  for (const Json& message : messages.as_array()) {
    const Json* const calls = message.Find("tool_calls");
    if (calls != nullptr && calls->is_array() && !calls->as_array().empty()) return true;
  }
  return false;
}

void ShapeArguments(ArgumentsForm form, Json* messages) {
  if (!messages->is_array()) return;
  uint64_t memory = 0;
  for (Json& message : messages->as_array()) {
    Json* const calls = message.Find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (Json& call : calls->as_array()) {
      Json* const arguments = ArgumentsOf(&call);
      if (arguments == nullptr) continue;
      form == ArgumentsForm::kObject ? MakeObject(arguments, &memory) : MakeText(arguments);
    }
  }
}

}  // namespace minisgl::text
