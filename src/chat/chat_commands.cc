// The commands of a chat, in one table of names, help lines and functions.
#include <algorithm>
#include <utility>

#include "chat/chat.h"
#include "chat/chat_attachments.h"
#include "chat/chat_editor.h"
#include "chat/chat_help.h"
#include "chat/chat_tools.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"
#include "minisgl/sampling_fields.h"
#include "report/summary.h"
#include "term/clipboard.h"
#include "term/messages.h"
#include "term/terminal.h"
#include "term/wrapped_text.h"

namespace minisgl::chat {
struct Chat::Command {
  std::string_view name;
  std::string_view arguments;                        // as shown by /help
  std::string_view help;                             // "" for an alias, which /help does not list
  void (Chat::*body)(const std::string& arguments);  // null leaves
  ArgumentKind argument = ArgumentKind::kNone;
  std::string_view group = "";  // of this command and those after it
};

const std::vector<Chat::Command>& Chat::Commands() {
  using Kind = ArgumentKind;
  static const std::vector<Command> kCommands = {
      {"regen", "[N]", "answer the last message again, N times at once (also /retry)",
       &Chat::Regenerate, Kind::kText, "The last message"},
      {"retry", "", "", &Chat::Regenerate, Kind::kText},
      {"pick", "[K]", "continue with answer K of /regen; alone: list them", &Chat::Pick,
       Kind::kText},
      {"edit", "[new]", "edit the last message in $EDITOR, or a new one", &Chat::Edit, Kind::kText},
      {"undo", "", "take back the last message and its answer", &Chat::Undo},
      {"read", "FILE", "put the text of FILE before the next message", &Chat::Read, Kind::kFile},
      {"image", "FILE", "show the picture in FILE with the next message (\"\": none of them)",
       &Chat::Image, Kind::kFile},
      {"prefill", "[TEXT]", "begin the next answer with TEXT (\"\" takes it back)", &Chat::Prefill,
       Kind::kText},
      {"show", "[N]", "show the last N turns, or all", &Chat::Show, Kind::kText,
       "The conversation"},
      {"copy", "[N]", "copy the last answer, or the N-th from the end, to the clipboard",
       &Chat::Copy, Kind::kText},
      {"reset", "", "forget what was said; the system message stays (also /clear)", &Chat::Reset},
      {"clear", "", "", &Chat::Reset},
      {"system", "[TEXT]", "show or set the system message (\"\" removes it)", &Chat::System,
       Kind::kText},
      {"save", "[-f] FILE", "write the conversation to FILE (-f: over another)", &Chat::Save,
       Kind::kFile},
      {"load", "FILE", "continue the conversation in FILE", &Chat::Load, Kind::kFile},
      {"sessions", "[N] [-d N|all]", "list the kept conversations, continue one, delete",
       &Chat::Sessions, Kind::kText},
      {"branch", "[NAME] [TURN]", "fork the conversation here, or after TURN (-d NAME: delete one)",
       &Chat::NewBranch, Kind::kBranch, "Branches"},
      {"switch", "NAME", "continue in another branch", &Chat::SwitchBranch, Kind::kBranch},
      {"tree", "", "show the branches and their turns", &Chat::Tree},
      {"batch", "[-f|-r] FILE [OUT]",
       "answer a prompt file beside the chat; alone: progress (also wait, stop)", &Chat::Batch,
       Kind::kTwoFiles, "Beside the conversation"},
      {"set", "NAME VALUE", "change a sampling parameter, or what answers must be", &Chat::Set,
       Kind::kParameter, "Settings and figures"},
      {"think", "[on|off|auto|N|none]", "reason before answers; at most N tokens, none: no limit",
       &Chat::Think, Kind::kText},
      {"params", "", "show the sampling parameters", &Chat::Parameters},
      {"stats", "", "tokens and speed of the last answer and of all", &Chat::Stats},
      {"cache", "[reset]", "the prefix cache: what it holds; empty it", &Chat::Cache, Kind::kText},
      {"tools", "", "list the tools that the model may call", &Chat::Tools},
      {"tokens", "", "count the tokens of each message", &Chat::Tokens},
      {"context", "", "how much of the context is used", &Chat::Context},
      {"model", "[PATH]", "show the model; PATH or OWNER/NAME: go on with another", &Chat::Model,
       Kind::kFile},
      {"adapter", "[NAME|none]", "show the adapters; NAME: go on with another, none: with none",
       &Chat::SwitchAdapter, Kind::kText},
      {"help", "[COMMAND]", "list the commands (also /?)", &Chat::Help, Kind::kCommand, "Others"},
      {"?", "", "", &Chat::Help, Kind::kCommand},
      {"exit", "", "leave (also /bye, /quit)", nullptr},
      {"bye", "", "", nullptr},
      {"quit", "", "", nullptr},
  };
  return kCommands;
}

// Returns all names that may be typed, or only those listed by /help.
std::vector<std::string> Chat::CommandNames(bool listed) {
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    if (!listed || !command.help.empty()) names.emplace_back(command.name);
  }
  return names;
}

const Chat::Command* Chat::FindCommand(std::string_view name) {
  for (const Command& command : Commands()) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

Completion Chat::Complete(std::string_view line) const {
  CompletionWords words;
  words.commands = CommandNames(true);
  words.argument = [](std::string_view name) {
    const Command* command = FindCommand(name);
    return command == nullptr ? ArgumentKind::kNone : command->argument;
  };
  words.branches = branches_.Names();
  words.parameters = ParameterNames();
  words.file_parameters = FileParameterNames();
  return CompleteChatLine(line, words);
}

Chat::Next Chat::RunCommand(const std::string& line) {
  const size_t name_end = std::min(line.find_first_of(" \t"), line.size());
  const std::string name = line.substr(0, name_end);
  const size_t begin = std::min(line.find_first_not_of(" \t", name_end), line.size());
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    if (const std::string picture = PastedPicture("/" + line); !picture.empty()) {
      Image(picture);
      return Next::kGoOn;
    }
    ReportUnknownCommand(name);
    return Next::kGoOn;
  }
  const std::string arguments = Trimmed(line.substr(begin));
  if (command->body != &Chat::Sessions) offered_to_delete_all_ = false;
  if (command->argument == ArgumentKind::kNone && !arguments.empty()) {
    Say(fmt::format("/{} takes no words after it (found {}); nothing is done", name,
                    Visible(arguments, 200)));
    failed_ = true;
    return Next::kGoOn;
  }
  if (command->body == nullptr) return Next::kLeave;
  (this->*command->body)(line.substr(begin));
  return interrupted_ ? Next::kLeave : Next::kGoOn;
}

void Chat::ReportUnknownCommand(const std::string& name) const {
  const std::string nearest = NearestWord(name, CommandNames(true));
  const std::string advice = nearest.empty() ? "" : fmt::format("did you mean /{}? ", nearest);
  Say(fmt::format("unknown command /{}; {}/help lists commands, // begins a message with /",
                  Visible(name), advice));
}

void Chat::Help(const std::string& arguments) {
  constexpr size_t kTextColumn = 29;  // behind the longest name with its arguments
  constexpr int kColumnsOfPipe = 100;
  const bool on_terminal = term::IsTerminal(STDERR_FILENO);
  const int columns = on_terminal ? term::TerminalColumns(STDERR_FILENO) : kColumnsOfPipe;
  const auto line = [&](const Command& command) {
    const std::string name = command.arguments.empty()
                                 ? fmt::format("/{}", command.name)
                                 : fmt::format("/{} {}", command.name, command.arguments);
    return term::WrapEntry(name, command.help, kTextColumn, columns);
  };
  if (!arguments.empty()) {
    const std::string name = arguments.substr(arguments.starts_with('/') ? 1 : 0);
    const Command* named = FindCommand(name);
    if (named == nullptr) return ReportUnknownCommand(name);
    // The help of an alias is that of the preceding command with the same function.
    while (named->help.empty() && named > Commands().data() && (named - 1)->body == named->body) {
      --named;
    }
    const std::string more = MoreHelp(named->name);
    return Say(line(*named) + (more.empty() ? "" : '\n' + term::WrapLines(more, columns)));
  }
  std::string text;
  for (const Command& command : Commands()) {
    if (!command.group.empty()) text += fmt::format("{}:\n", command.group);
    if (!command.help.empty()) text += line(command) + '\n';
  }
  Say(text + term::WrapLines(HelpOnInput(), columns));
}

// Answers go to standard output like the original ones, with the speaker before each message.
void Chat::Show(const std::string& arguments) {
  const std::vector<SessionMessage> all = AllMessages();
  if (all.empty()) return Say("Nothing was said yet.");
  int64_t wanted = CountTurns(all);
  if (!arguments.empty()) {
    wanted = ParseNumber<int64_t>(arguments).value_or(0);
    if (wanted < 1) return Say("/show takes the number of turns to show");
  }
  int64_t to_skip = CountTurns(all) - wanted;
  for (const SessionMessage& message : all) {
    if (message.role == "user") --to_skip;
    if (to_skip >= 0 && wanted < CountTurns(all)) continue;
    if (message.role == "assistant") {
      ShowAnswer(message);
    } else {
      SayText(fmt::format("[{}]\n{}", message.role, ShownContent(message)));
    }
  }
}

ReasoningPiece Chat::PartsOf(const SessionMessage& message) const {
  if (!message.reasoning.empty()) return {Trimmed(message.reasoning), Trimmed(message.content)};
  return SplitReasoning(session_->reasoning_tags(), message.content);
}

void Chat::ShowAnswer(const SessionMessage& message) const {
  const ReasoningPiece parts = PartsOf(message);
  if (!options_.hide_thinking && !parts.reasoning.empty()) {
    SayText("[reasoning]\n" + parts.reasoning);
  }
  const std::vector<ToolCall> calls = CallsIn(message);
  if (calls.empty()) return SayText("[assistant]\n" + parts.text, term::TextStyle::kMarkdown);
  const Json* const content = message.given.Find("content");
  const bool has_text = content != nullptr && content->is_string();
  SayText("[assistant]\n" + (has_text ? content->as_string() : ""), term::TextStyle::kMarkdown);
  for (const ToolCall& call : calls) Say("[call] " + load::ShownCall(call));
}

void Chat::Copy(const std::string& arguments) {
  const int64_t wanted = arguments.empty() ? 1 : ParseNumber<int64_t>(arguments).value_or(0);
  if (wanted < 1) return Say("/copy takes the number of an answer, counted from the last");
  int64_t left = wanted;
  const std::vector<SessionMessage> all = AllMessages();
  const auto found = std::find_if(all.rbegin(), all.rend(), [&](const SessionMessage& message) {
    return message.role == "assistant" && --left == 0;
  });
  if (found == all.rend()) {
    return Say(wanted == 1 ? "There is no answer to copy." : "There are fewer answers.");
  }
  const std::string text = PartsOf(*found).text;
  const Status status = term::CopyToClipboard(text);
  if (!status.ok()) return SayFailure(status);
  Note(fmt::format("Copied {} bytes, if the terminal lets programs set its clipboard (OSC 52).",
                   text.size()));
}

void Chat::Reset(const std::string&) {
  auto& messages = session_->messages();
  messages.erase(std::remove_if(messages.begin(), messages.end(),
                                [](const SessionMessage& m) { return m.role != "system"; }),
                 messages.end());
  dropped_.clear();
  TurnsChanged();
  kept_.BeginAnother(AllMessages());
  Note("The conversation starts over.");
}

void Chat::SetSystem(const std::string& text) {
  auto& messages = session_->messages();
  const bool has_one = !messages.empty() && messages.front().role == "system";
  if (text.empty()) {
    if (has_one) messages.erase(messages.begin());
  } else if (has_one) {
    messages.front().content = text;
  } else {
    messages.insert(messages.begin(), {"system", text, {}});
  }
}

void Chat::System(const std::string& arguments) {
  if (arguments.empty()) {
    const auto& messages = session_->messages();
    const bool has_one = !messages.empty() && messages.front().role == "system";
    Say(has_one ? messages.front().content : "There is no system message.");
    return;
  }
  SetSystem(arguments == "\"\"" ? "" : arguments);
  Note(arguments == "\"\"" ? "The system message is removed." : "The system message is set.");
}

void Chat::Prefill(const std::string& arguments) {
  constexpr const char* kNone = "The next answer has no given beginning.";
  if (arguments.empty()) return Say(prefill_.empty() ? kNone : prefill_);
  prefill_ = arguments == "\"\"" ? "" : arguments;
  Note(prefill_.empty() ? kNone : "The next answer begins with this text.");
}

void Chat::Edit(const std::string& arguments) {
  if (!interactive_) return Say("/edit needs a terminal for the editor");
  if (!arguments.empty() && arguments != "new") {
    return Say("/edit takes no argument, for the last message, or new");
  }
  ChatTurns before = CopyTurns();
  auto& messages = session_->messages();
  const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                 [](const SessionMessage& m) { return m.role == "user"; });
  const bool has_one = arguments.empty() && last != messages.rend();
  const std::string text = has_one ? last->content : "";
  const Result<std::string> edited = EditText(text, &signals_);
  if (!edited.ok()) {
    SayFailure(edited.status());
    return Note("(nothing is sent)");
  }
  if (*edited == text || edited->find_first_not_of(" \t\r\n") == std::string::npos) {
    return Note(edited->empty() ? "(nothing is sent: the text is empty)"
                                : "(nothing is sent: the text is unchanged)");
  }
  if (has_one) messages.erase(last.base() - 1, messages.end());
  Say(*edited);
  std::vector<ConversationImage> images;
  if (has_one) images = before.messages[messages.size()].images;
  Send(*edited, std::move(images), std::move(before));
}

void Chat::Read(const std::string& arguments) {
  if (arguments.empty()) return Say("/read needs the name of a file");
  const Result<std::string> text = ReadTextFile(arguments);
  if (!text.ok()) {
    SayFailure(text.status());
    failed_ = true;
    return;
  }
  if (!waiting_text_.empty()) waiting_text_ += '\n';
  waiting_text_ += *text;
  Note(fmt::format("{} bytes will be put before the next message.", waiting_text_.size()));
}

void Chat::Undo(const std::string&) {
  auto& messages = session_->messages();
  const auto is_user = [](const SessionMessage& m) { return m.role == "user"; };
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
  if (last == messages.rend()) {
    Say("There is nothing to take back.");
    return;
  }
  Note(fmt::format("Taken back: {}", Visible(ShownContent(*last), 60)));
  messages.erase(last.base() - 1, messages.end());
  TurnsChanged();
}

std::vector<SessionMessage> Chat::AllMessages() const { return WholeConversation(CopyTurns()); }

void Chat::Set(const std::string& arguments) {
  const size_t name_end = std::min(arguments.find_first_of(" \t="), arguments.size());
  const size_t begin = std::min(arguments.find_first_not_of(" \t=", name_end), arguments.size());
  const std::string name = arguments.substr(0, name_end);
  if (name.empty()) {
    Say("/set needs a name and a value; /params lists them");
    return;
  }
  const Status status = SetParameter(name, std::string_view(arguments).substr(begin), &settings_);
  if (status.ok()) {
    set_.emplace_back(name, arguments.substr(begin));
    const std::string note = load::NoteOfTemperature(settings_.sampling.temperature);
    if (name == kTemperature.name && !note.empty()) Note(fmt::format("({})", note));
    return;
  }
  SayFailure(status);
  failed_ = true;  // later answers are not what was asked for
}

void Chat::Parameters(const std::string&) { Say(ListParameters(settings_)); }

void Chat::Stats(const std::string&) {
  std::string text = statistics_.Text(ContextLimit());
  const SchedulerStats stats = model_.runtime->Stats().scheduler;
  if (!text.empty() && stats.drafted_tokens > 0) {
    text += "\n  drafts        right: " + report::AcceptanceText(stats);
  }
  Say(text.empty() ? "There has been no answer yet." : text);
}

void Chat::Cache(const std::string& arguments) {
  if (arguments == "reset") {
    model_.runtime->ResetPrefixCache();
    return Note("The prefix cache in memory is emptied, except for what runs.");
  }
  if (!arguments.empty()) return Say("/cache takes no argument, or reset");
  const SchedulerStats stats = model_.runtime->Stats().scheduler;
  Say(CacheText(stats, model_.runtime->limits().page_size));
}

void Chat::Tokens(const std::string&) {
  const auto& messages = session_->messages();
  if (messages.empty()) {
    Say("There are no messages.");
    return;
  }
  for (const SessionMessage& message : messages) {
    size_t count = message.answer_ids.size();
    if (count == 0) {
      const auto ids = model_.text.tokenizer->EncodeText(message.content);
      count = ids.ok() ? ids.value().size() : 0;
    }
    for (const ConversationImage& image : message.images) {
      count += static_cast<size_t>(TokensOf(image));
    }
    Say(fmt::format("  {:>7}  {:<9}  {}", count, message.role, Visible(ShownContent(message), 50)));
  }
}

void Chat::Batch(const std::string& arguments) {
  const bool runs = batch_ && !batch_->ended();
  if (arguments.empty()) {
    return Say(batch_ ? "  " + batch_->Long() : "No batch was started; /batch FILE starts one.");
  }
  if (arguments == "stop" || arguments == "wait") {
    if (!runs) return Say("No batch is running.");
    if (arguments == "stop") batch_->Stop(false);
    const bool may_cease = arguments == "wait" && interactive_;
    if (may_cease) Note("(Ctrl-C ceases to wait)");
    return WaitForBatch(may_cease);
  }
  if (runs) return Say("A batch is already running; /batch shows it, /batch stop ends it.");
  ReportBatchEnd();
  ChatBatchOptions batch_options = ParseBatchArguments(arguments);
  const std::string output = Visible(batch_options.output, 400);
  batch_options.model = model_options_;
  batch_options.engine = options_.engine;
  batch_options.sampling = options_.sampling;
  batch_options.images = options_.image_options;
  batch_options.hide_reasoning = options_.hide_thinking;
  auto batch = ChatBatch::Start(&model_, batch_options);
  if (!batch.ok()) {
    SayFailure(batch.status());
    failed_ = true;
    return;
  }
  batch_ = std::move(batch).value();
  reported_batch_end_ = offered_to_stop_batch_ = false;
  if (batch_->num_rows() == 0) {
    reported_batch_end_ = true;
    return Note(fmt::format("No rows are left to run; the answers are in {}", output));
  }
  Note(fmt::format("Answering {} of {} in the background, into {}; /batch shows the progress.",
                   batch_->num_rows(), Visible(batch_options.input, 400), output));
}

void Chat::Context(const std::string&) {
  ReasoningTags tags;
  const Result<EncodedPrompt> encoded = EncodeConversation(AnswerStart::kNewMessage, &tags);
  if (!encoded.ok()) {
    SayFailure(encoded.status());
    return;
  }
  const auto used = static_cast<int64_t>(encoded->ids.size());
  const int64_t limit = ContextLimit();
  Say(fmt::format("  {} of {} tokens used ({:.0f} %), room for {}", used, limit,
                  100.0 * static_cast<double>(used) / static_cast<double>(limit),
                  std::max<int64_t>(limit - used, 0)));
  if (!dropped_.empty()) {
    Say(fmt::format("  {} older messages were dropped; /save keeps them", dropped_.size()));
  }
}

}  // namespace minisgl::chat
