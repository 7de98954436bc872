// Tools in a chat: a call that the model makes is shown, confirmed, run and answered, and the model
// goes on. If the user stops that, the message is taken back: templates insist on a result behind
// each call.
#include "chat/chat_tools.h"

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "batch/row.h"
#include "batch/row_calls.h"
#include "chat/chat.h"
#include "minisgl/base/file_io.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

// A member of an object that is a string; "" if it is none.
std::string TextIn(const Json& object, std::string_view name) {
  const Json* const member = object.Find(name);
  return member != nullptr && member->is_string() ? member->as_string() : "";
}

}  // namespace

std::vector<ToolCall> CallsIn(const SessionMessage& message) {
  std::vector<ToolCall> calls;
  const Json* const list = message.given.Find("tool_calls");
  if (message.role != "assistant" || list == nullptr || !list->is_array()) return calls;
  for (const Json& json : list->as_array()) {
    const Json* const function = json.Find("function");
    if (function == nullptr) continue;
    ToolCall call;
    call.name = TextIn(*function, "name");
    const Json* const arguments = function->Find("arguments");
    if (arguments != nullptr) {
      call.arguments = arguments->is_string() ? arguments->as_string() : arguments->Dump();
    }
    call.id = TextIn(json, "id");
    calls.push_back(std::move(call));
  }
  return calls;
}

void Chat::Tools(const std::string&) {
  const load::UserTools& tools = options_.user_tools;
  if (tools.empty()) return Say("There are no tools; --tool NAME=COMMAND gives one.");
  for (const load::UserTool& tool : tools.tools()) {
    std::string command;
    for (const std::string& word : tool.command) command += (command.empty() ? "" : " ") + word;
    std::string line = fmt::format("  {}: {}", tool.name, Visible(command, 400));
    if (!tool.description.empty()) line += fmt::format(" ({})", Visible(tool.description, 200));
    Say(line);
  }
  if (tool_dialect_ == ToolDialect::kNone) {
    Say("The model does not call them: " + load::CheckTakesTools(model_.text).message());
  }
}

void Chat::BeginTools() {
  tool_dialect_ = ToolDialect::kNone;
  if (options_.user_tools.empty()) return;
  const Status status = load::CheckTakesTools(model_.text);
  if (status.ok()) {
    tool_dialect_ = ToolDialectOf(model_.text);
  } else {
    SayFailure(status);
  }
}

void Chat::KeepCallMarks(Prompt* prompt) const {
  if (tool_dialect_ == ToolDialect::kNone) return;
  const std::vector<TokenId> marks = ToolCallTokens(tool_dialect_, *model_.text.tokenizer);
  prompt->kept_special_ids.insert(prompt->kept_special_ids.end(), marks.begin(), marks.end());
}

bool Chat::ReplyWithTools(uint64_t variant, size_t count, ChatAlternatives::Answers* answers) {
  if (tool_dialect_ == ToolDialect::kNone || count > 1) return Reply(variant, count, answers);
  tool_turns_left_ = options_.tools.turns_max;
  bool replied = Reply(variant, count, answers);
  bool has_called = false;
  while (replied && !CallsIn(session_->messages().back()).empty()) {
    has_called = true;
    --tool_turns_left_;
    replied = AnswerCalls() && Reply(variant);
  }
  tool_turns_left_ = 0;
  if (replied && has_called && answers != nullptr) answers->back() = session_->messages().back();
  return replied;
}

bool Chat::ShowText(std::string_view text, const TextParts& parts) {
  if (!call_reader_) return NoteOutputStatus(view_.Show(text, parts));
  return ShowPiece(call_reader_->Push(text, parts));
}

bool Chat::ShowPiece(const ToolCallPiece& piece) {
  TextParts parts;
  AddPart(PartKind::kThought, piece.reasoning.size(), &parts);
  AddPart(PartKind::kText, piece.content.size(), &parts);
  if (parts.empty()) return output_status_.ok();
  return NoteOutputStatus(view_.Show(piece.reasoning + piece.content, parts));
}

void Chat::ShowEnd(const ChatAnswer& whole) {
  view_.ShowWaiting("");
  if (call_reader_) ShowPiece(call_reader_->Finish());
  // A terminal shows where the answer ends, even an empty one, but not one of calls alone.
  const bool is_there = !whole.text.empty() || (whole.error_message.empty() && !whole.interrupted);
  const bool is_call_alone = call_reader_ && !whole.text.empty() && !view_.began();
  call_reader_.reset();
  if (is_there && !is_call_alone && output_status_.ok()) {
    NoteOutputStatus(view_.End(term::AnswerView::LineBreak::kAddUnlessThere));
  }
}

// With the marks of calls that are not run, the answer stays text.
std::optional<SessionMessage> Chat::CallsOf(const ChatAnswer& answer, const std::string& text,
                                            const TextParts& parts) const {
  const bool is_complete = answer.finish_reason == FinishReason::kStop && !answer.interrupted;
  if (tool_dialect_ == ToolDialect::kNone || !is_complete) return std::nullopt;
  ToolCallPiece read = ReadToolCalls(tool_dialect_, options_.user_tools.definitions(), text, parts);
  if (read.calls.empty()) return std::nullopt;
  if (!RunsCalls()) {
    Note(fmt::format(
        "[calls of tools are not run in several answers at once, or after {} answers with calls "
        "(--tool-turns)]",
        options_.tools.turns_max));
    return std::nullopt;
  }
  batch::Row place;  // of the answer in the conversation: no other has its ids
  place.index = std::ssize(session_->messages());
  batch::CallIds(place, 0, tool_dialect_).Name(&read.calls);
  // Behind a given beginning the ids do not spell the whole.
  return session_->CallingMessage(
      text, prefill_.empty() ? answer.token_ids : std::vector<TokenId>(), read);
}

bool Chat::AnswerCalls() {
  const std::vector<ToolCall> calls = CallsIn(session_->messages().back());
  for (const ToolCall& call : calls) {
    const std::optional<std::string> text = AnswerCall(call);
    if (!text) {
      (interactive_ ? stopped_answer_ : interrupted_) = true;
      Note("[stopped; the message is taken back]");
      return false;
    }
    SessionMessage message = {"tool", *text, {}};
    message.given = load::ToolMessage(call, *text);
    session_->messages().push_back(std::move(message));
  }
  return true;
}

std::optional<std::string> Chat::AnswerCall(const ToolCall& call) {
  Say("[call] " + load::ShownCall(call));
  const bool is_known = options_.user_tools.Find(call.name) != nullptr;
  if (!options_.tools.runs_unasked && is_known) {
    const std::optional<bool> runs = AskToRun();
    if (!runs) return std::nullopt;
    if (!*runs) return R"({"error": "the user did not allow this call"})";
  }
  bool is_stopped = false;
  std::string text = load::RunUserTool(options_.user_tools, options_.tools, call, [&] {
    is_stopped = is_stopped || signals_.TakeInterrupt() || signals_.Terminated() != 0;
    return is_stopped;
  });
  signals_.Drain();
  if (is_stopped) return std::nullopt;
  constexpr size_t kShownMax = 200;
  Note(fmt::format("[{}] {}", call.name.substr(0, kShownMax), Visible(text, kShownMax)));
  return text;
}

std::optional<bool> Chat::AskToRun() {
  tcflush(STDIN_FILENO, TCIFLUSH);  // what was typed before the question does not answer it
  WriteAll(STDERR_FILENO, "Run it? [y/N] ");
  std::string line;
  while (true) {
    pollfd waits[] = {{STDIN_FILENO, POLLIN, 0}, {signals_.fd(), POLLIN, 0}};
    poll(waits, 2, -1);
    if (waits[1].revents != 0) signals_.Drain();
    if (signals_.TakeInterrupt() || signals_.Terminated() != 0) {
      WriteAll(STDERR_FILENO, "\n");
      return std::nullopt;
    }
    if (waits[0].revents == 0) continue;
    char byte = '\n';
    const ssize_t got = read(STDIN_FILENO, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) WriteAll(STDERR_FILENO, "\n");
    if (got <= 0 || byte == '\n') break;
    line += byte;
  }
  const size_t first = line.find_first_not_of(" \t");
  return first != std::string::npos && (line[first] == 'y' || line[first] == 'Y');
}

}  // namespace minisgl::chat
