#include "load/user_tools.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "load/options.h"
#include "minisgl/base/child_process.h"
#include "minisgl/base/utf8.h"
#include "term/read_input.h"

namespace minisgl::load {
namespace {

constexpr size_t kToolFileBytesMax = size_t{16} << 20;
constexpr uint64_t kToolValuesMax = uint64_t{1} << 18;
constexpr size_t kToolNameMax = 64;
constexpr size_t kShownCallMax = 2000;  // bytes
constexpr std::string_view kToolBlanks = " \t";

bool IsToolName(std::string_view name) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return !name.empty() && name.size() <= kToolNameMax &&
         name.find_first_not_of(kLetters) == std::string_view::npos;
}

std::vector<std::string> SplitAtBlanks(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = text.find_first_not_of(kToolBlanks); begin != std::string_view::npos;
       begin = text.find_first_not_of(kToolBlanks, begin)) {
    const size_t end = std::min(text.find_first_of(kToolBlanks, begin), text.size());
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

// The words of a member `command`; none if it has another form.
std::vector<std::string> WordsOfCommand(const Json& command) {
  if (command.is_string()) return SplitAtBlanks(command.as_string());
  std::vector<std::string> words;
  if (!command.is_array()) return words;
  for (const Json& word : command.as_array()) {
    if (!word.is_string()) return {};
    words.push_back(word.as_string());
  }
  if (!words.empty() && words[0].empty()) words.clear();
  return words;
}

// A command would end at a byte of 0.
bool HasZeroByte(const std::vector<std::string>& words) {
  return std::any_of(words.begin(), words.end(),
                     [](const std::string& word) { return word.find('\0') != std::string::npos; });
}

Result<UserTool> ToolOfElement(const Json& element) {
  const Json* const type = element.Find("type");
  if (type != nullptr && *type != Json("function")) {
    return BadInput("its type must be \"function\" (found {})", Visible(type->Dump()));
  }
  const Json* const function = element.Find("function");
  const Json* const name = function == nullptr ? nullptr : function->Find("name");
  if (name == nullptr || !name->is_string() || !IsToolName(name->as_string())) {
    return BadInput(
        "its function needs a name of at most {} letters, digits, \"_\", \"-\" and \".\"",
        kToolNameMax);
  }
  const Json* const command = element.Find("command");
  UserTool tool;
  tool.name = name->as_string();
  if (command != nullptr) tool.command = WordsOfCommand(*command);
  if (tool.command.empty() || HasZeroByte(tool.command)) {
    return BadInput(
        "its command must be the program and its arguments: a string, which is split at spaces, or "
        "an array of strings (found {})",
        command == nullptr ? "none" : Visible(command->Dump()));
  }
  const Json* const parameters = function->Find("parameters");
  if (parameters != nullptr && !parameters->is_object() && !parameters->is_null()) {
    return BadInput("its parameters must be a JSON schema (found {})", parameters->TypeName());
  }
  const Json* const description = function->Find("description");
  if (description != nullptr && description->is_string()) {
    tool.description = description->as_string();
  }
  return tool;
}

Json AnyObject() {
  Json schema;
  schema.Set("type", "object").Set("properties", Json(Json::Object()));
  return schema;
}

std::string ErrorText(std::string error, const ChildResult* result = nullptr) {
  Json json;
  json.Set("error", std::move(error));
  if (result != nullptr && !result->output.empty()) {
    json.Set("output", ReplaceInvalidUtf8(result->output));
  }
  if (result != nullptr && !result->errors.empty()) {
    json.Set("stderr", ReplaceInvalidUtf8(result->errors));
  }
  return json.Dump();
}

std::string TextOfResult(const UserTool& tool, const ChildResult& result, double timeout_s,
                         size_t output_max) {
  using End = ChildResult::End;
  switch (result.end) {
    case End::kNotStarted:
      return ErrorText(
          fmt::format("the tool {} cannot be run ({})", tool.name, std::strerror(result.code)));
    case End::kTimedOut:
      return ErrorText(
          fmt::format("the tool {} was stopped after {} seconds", tool.name, timeout_s), &result);
    case End::kStopped:
      return ErrorText("the user stopped the tool " + tool.name);
    case End::kSignalled:
      return ErrorText(fmt::format("the tool {} was ended by signal {}", tool.name, result.code),
                       &result);
    case End::kExited:
      break;
  }
  if (result.code != 0) {
    return ErrorText(
        fmt::format("the tool {} failed with the exit status {}", tool.name, result.code), &result);
  }
  std::string text = ReplaceInvalidUtf8(result.output);
  if (result.output_cut) text += fmt::format("\n[cut after {} bytes]", output_max);
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

void AddToolOptions(OptionTable* app, ToolOptions* options) {
  const std::string group = "Tools";
  app->Add("--tool", &options->tools,
           "Let the model call NAME: COMMAND, split at spaces, is run with the arguments as JSON "
           "on its standard input, without a shell (repeatable)")
      ->OneValueEach()
      ->TypeName("NAME=COMMAND")
      ->Group(group);
  app->Add("--tools", &options->file,
           "Let the model call the tools in FILE: a JSON array of OpenAI's tools, each with its "
           "\"command\"")
      ->Check(CheckNotEmpty)
      ->TypeName("FILE")
      ->Group(group);
  app->AddFlag("--yes-tools", &options->runs_unasked, "Run calls of tools without asking")
      ->Group(group);
  app->Add("--tool-timeout", &options->timeout_s,
           "Stop a tool that runs longer than S seconds (default 30)")
      ->Check(NumberIn(0, 86400, true))
      ->TypeName("S")
      ->Group(group)
      ->Advanced();
  app->Add("--tool-turns", &options->turns_max,
           "Run the calls of at most N answers to one message (default 8)")
      ->Check(IntegerIn(1, 1000))
      ->TypeName("N")
      ->Group(group)
      ->Advanced();
}

void AddToolJobs(OptionTable* app, ToolOptions* options) {
  app->Add("--tool-jobs", &options->at_once,
           "Run the calls of at most N rows of a file at the same time (default 8)")
      ->Check(IntegerIn(1, 1000))
      ->TypeName("N")
      ->Group("Tools")
      ->Advanced();
}

Status UserTools::Add(UserTool tool, Json function) {
  if (Find(tool.name) != nullptr) {
    return UsageError("the tool {} is named twice; leave one out", tool.name);
  }
  Json definition;
  definition.Set("type", "function").Set("function", std::move(function));
  definitions_.Append(std::move(definition));
  tools_.push_back(std::move(tool));
  return Status();
}

const UserTool* UserTools::Find(std::string_view name) const {
  const auto found = std::find_if(tools_.begin(), tools_.end(),
                                  [name](const UserTool& tool) { return tool.name == name; });
  return found == tools_.end() ? nullptr : &*found;
}

Result<UserTools> UserTools::Take(const ToolOptions& options) {
  UserTools tools;
  for (const std::string& given : options.tools) {
    const size_t equals = std::min(given.find('='), given.size());
    UserTool tool;
    tool.name = given.substr(0, equals);
    if (equals < given.size()) tool.command = SplitAtBlanks(given.substr(equals + 1));
    if (!IsToolName(tool.name) || tool.command.empty()) {
      return UsageError(
          "--tool must be NAME=COMMAND, with at most {} letters, digits, \"_\", \"-\" and \".\" as "
          "the name (found \"{}\")",
          kToolNameMax, Visible(given));
    }
    Json function;
    function.Set("name", tool.name).Set("parameters", AnyObject());
    MINISGL_RETURN_IF_ERROR(tools.Add(std::move(tool), std::move(function)).WithPrefix("--tool"));
  }
  if (options.file.empty()) return tools;
  const std::string name = Visible(options.file, 400);
  MINISGL_ASSIGN_OR_RETURN(const std::string text,
                           term::ReadFileOrPipe(options.file, kToolFileBytesMax));
  const Result<Json> list = ParseJson(text, {.values_max = kToolValuesMax});
  if (!list.ok()) return list.status().WithPrefix(name);
  if (!list->is_array()) {
    return BadInput("{}: must be an array of tools (found {})", name, list->TypeName());
  }
  for (size_t i = 0; i < list->as_array().size(); ++i) {
    const Json& element = list->as_array()[i];
    const std::string place = fmt::format("{}: tool {}", name, i + 1);
    Result<UserTool> tool = ToolOfElement(element);
    if (!tool.ok()) return tool.status().WithPrefix(place);
    Json function = *element.Find("function");
    if (function.Find("parameters") == nullptr) function.Set("parameters", AnyObject());
    MINISGL_RETURN_IF_ERROR(
        tools.Add(std::move(tool).value(), std::move(function)).WithPrefix(place));
  }
  return tools;
}

Status CheckTakesTools(const TextModel& text) {
  if (text.chat_template == nullptr || !text.chat_template->Reads("tools")) {
    return UsageError("--tool: the chat template does not read tools; leave them out");
  }
  if (ToolDialectOf(text) != ToolDialect::kNone) return Status();
  return UsageError(
      "--tool: it is not known how the model writes calls of tools; --tool-dialect names it");
}

std::string RunUserTool(const UserTools& tools, const ToolOptions& options, const ToolCall& call,
                        const std::function<bool()>& stops) {
  const UserTool* const tool = tools.Find(call.name);
  if (tool == nullptr) {
    std::string names;
    for (const UserTool& known : tools.tools()) names += (names.empty() ? "" : ", ") + known.name;
    return ErrorText(
        fmt::format("there is no tool {}; there are: {}", Visible(call.name, 100), names));
  }
  const Result<Json> arguments = ParseJson(call.arguments);
  if (!arguments.ok() || !arguments->is_object()) {
    return ErrorText("the arguments are not a JSON object");
  }
  ChildLimits limits;
  limits.time = std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(options.timeout_s));
  const ChildResult result = RunChild(tool->command, call.arguments, limits, stops);
  return TextOfResult(*tool, result, options.timeout_s, limits.output_max);
}

Json ToolMessage(const ToolCall& call, const std::string& text) {
  Json message;
  message.Set("role", "tool").Set("tool_call_id", call.id).Set("name", call.name);
  return message.Set("content", text);
}

std::string ShownCall(const ToolCall& call) {
  return Visible(call.name + " " + call.arguments, kShownCallMax);
}

}  // namespace minisgl::load
