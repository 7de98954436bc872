// Tools of the user's machine that a model may call: programs that the user has named, each run
// without a shell, with the call's arguments as JSON on its standard input.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "load/option_table.h"
#include "minisgl/base/json.h"
#include "minisgl/base/status.h"
#include "minisgl/text/text_model.h"
#include "minisgl/text/tool_calls.h"

namespace minisgl::load {

struct ToolOptions {
  std::vector<std::string> tools;  // NAME=COMMAND
  std::string file;                // "": none
  bool runs_unasked = false;       // calls are not confirmed
  double timeout_s = 30;           // of one call
  int64_t turns_max = 8;           // answers to one message whose calls are run
  int64_t at_once = 8;             // rows of a file whose calls are run at the same time

  bool any() const { return !tools.empty() || !file.empty(); }
};

// Adds --tool, --tools, --yes-tools, --tool-timeout and --tool-turns.
void AddToolOptions(OptionTable* app, ToolOptions* options);
// Adds --tool-jobs, for commands that read rows.
void AddToolJobs(OptionTable* app, ToolOptions* options);

struct UserTool {
  std::string name;
  std::string description;           // "": none
  std::vector<std::string> command;  // the program and its arguments; not empty
};

// The tools that the options name. Immutable, and thus thread-safe.
class UserTools {
 public:
  UserTools() = default;
  // Reads them: kUsage for --tool; kBadInput for the file, with its name and the place of the tool.
  static Result<UserTools> Take(const ToolOptions& options);

  bool empty() const { return tools_.empty(); }
  const std::vector<UserTool>& tools() const { return tools_; }
  // Null if no tool has this name.
  const UserTool* Find(std::string_view name) const;
  // What a chat template gets: an array of {"type": "function", "function": {...}}; null if there
  // are none.
  const Json& definitions() const { return definitions_; }

 private:
  Status Add(UserTool tool, Json function);

  std::vector<UserTool> tools_;
  Json definitions_;
};

// kUsage if the model of `text` cannot be told of tools, or if it is not known how it calls them.
Status CheckTakesTools(const TextModel& text);

// Runs the tool that `call` names and waits for its end. Returns the text of the message that
// answers the call: the tool's output, or a JSON object with the member "error". `stops` as in
// RunChild.
std::string RunUserTool(const UserTools& tools, const ToolOptions& options, const ToolCall& call,
                        const std::function<bool()>& stops);

// The message {"role": "tool", ...} with this text.
Json ToolMessage(const ToolCall& call, const std::string& text);

// The call in one line for people: its name and its arguments, without control characters.
std::string ShownCall(const ToolCall& call);

}  // namespace minisgl::load
