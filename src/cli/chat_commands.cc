// The commands of a chat: one table of names, help lines and bodies.
#include <algorithm>
#include <utility>

#include "cli/chat.h"
#include "cli/chat_file.h"
#include "cli/messages.h"
#include "minisgl/base/utf8.h"

namespace minisgl {

struct Chat::Command {
  std::string_view name;
  std::string_view arguments;                        // as /help shows them
  std::string_view help;                             // "": a second name, which /help does not list
  void (Chat::*body)(const std::string& arguments);  // null: leaves
};

const std::vector<Chat::Command>& Chat::Commands() {
  static const std::vector<Command> kCommands = {
      {"help", "", "list the commands", &Chat::Help},
      {"?", "", "", &Chat::Help},
      {"reset", "", "forget what was said; the system message stays", &Chat::Reset},
      {"system", "[TEXT]", "show or set the system message (\"\" removes it)", &Chat::System},
      {"regen", "", "answer the last message again (also /retry)", &Chat::Regenerate},
      {"retry", "", "", &Chat::Regenerate},
      {"undo", "", "take back the last message and its answer", &Chat::Undo},
      {"save", "[-f] FILE", "write the conversation to FILE (-f: over another)", &Chat::Save},
      {"load", "FILE", "go on with the conversation in FILE", &Chat::Load},
      {"set", "NAME VALUE", "change a sampling parameter", &Chat::Set},
      {"params", "", "show the sampling parameters", &Chat::Parameters},
      {"stats", "", "tokens and speed of the last answer and of all", &Chat::Stats},
      {"tokens", "", "count the tokens of each message", &Chat::Tokens},
      {"context", "", "how much of the context is used", &Chat::Context},
      {"model", "", "show the model", &Chat::Model},
      {"exit", "", "leave (also /bye, /quit)", nullptr},
      {"bye", "", "", nullptr},
      {"quit", "", "", nullptr},
  };
  return kCommands;
}

Chat::Next Chat::RunCommand(const std::string& line) {
  const size_t name_end = std::min(line.find_first_of(" \t"), line.size());
  const std::string name = line.substr(0, name_end);
  const size_t begin = std::min(line.find_first_not_of(" \t", name_end), line.size());
  for (const Command& command : Commands()) {
    if (command.name != name) continue;
    if (command.body == nullptr) return Next::kLeave;
    (this->*command.body)(line.substr(begin));
    return interrupted_ ? Next::kLeave : Next::kGoOn;
  }
  Say(fmt::format("unknown command /{}; /help lists commands, // begins a message with /",
                  Visible(name)));
  return Next::kGoOn;
}

void Chat::Help(const std::string&) {
  std::string text;
  for (const Command& command : Commands()) {
    if (command.help.empty()) continue;
    text += fmt::format("  {:<20} {}\n", fmt::format("/{} {}", command.name, command.arguments),
                        command.help);
  }
  text +=
      "A message of several lines stands between \"\"\" and \"\"\"; \\ at the end of a line goes "
      "on "
      "with the next.\n"
      "// begins a message with /. Ctrl-C stops an answer, Ctrl-D leaves.";
  Say(text);
}

void Chat::Reset(const std::string&) {
  auto& messages = session_.messages();
  messages.erase(std::remove_if(messages.begin(), messages.end(),
                                [](const SessionMessage& m) { return m.role != "system"; }),
                 messages.end());
  dropped_.clear();
  regenerations_ = 0;
  Note("The conversation starts anew.");
}

void Chat::SetSystem(const std::string& text) {
  auto& messages = session_.messages();
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
    const auto& messages = session_.messages();
    const bool has_one = !messages.empty() && messages.front().role == "system";
    Say(has_one ? messages.front().content : "There is no system message.");
    return;
  }
  SetSystem(arguments == "\"\"" ? "" : arguments);
  Note(arguments == "\"\"" ? "The system message is removed." : "The system message is set.");
}

void Chat::ForgetAnswer() {
  auto& messages = session_.messages();
  while (!messages.empty() && messages.back().role == "assistant") messages.pop_back();
}

void Chat::Regenerate(const std::string& arguments) {
  if (!arguments.empty()) {
    Say("/regen takes no argument");
    return;
  }
  Turns before = CopyTurns();
  ForgetAnswer();
  if (session_.messages().empty() || session_.messages().back().role != "user") {
    PutTurns(std::move(before));
    Say("There is no message to answer again.");
    return;
  }
  if (settings_.sampling.temperature == 0) {
    Note("(the temperature is 0: the answer will be the same; see /set temperature)");
  }
  if (!Reply(++regenerations_)) PutTurns(std::move(before));
}

void Chat::Undo(const std::string&) {
  auto& messages = session_.messages();
  const auto is_user = [](const SessionMessage& m) { return m.role == "user"; };
  const auto last = std::find_if(messages.rbegin(), messages.rend(), is_user);
  if (last == messages.rend()) {
    Say("There is nothing to take back.");
    return;
  }
  Note(fmt::format("Taken back: {}", Visible(last->content, 60)));
  messages.erase(last.base() - 1, messages.end());
  regenerations_ = 0;
}

// The conversation with the turns that no longer fit: system messages first, as they stand in the
// session.
std::vector<SessionMessage> Chat::AllMessages() const {
  std::vector<SessionMessage> all = session_.messages();
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const SessionMessage& m) { return m.role != "system"; });
  all.insert(first, dropped_.begin(), dropped_.end());
  return all;
}

void Chat::Save(const std::string& arguments) {
  const bool force = arguments.starts_with("-f ");
  const std::string path = force ? arguments.substr(3) : arguments;
  const std::vector<SessionMessage> all = AllMessages();
  if (path.empty() || all.empty()) {
    Say(path.empty() ? "/save needs the name of a file" : "There is nothing to save.");
    return;
  }
  const Status status = SaveConversation(path, all, force || path == file_);
  if (!status.ok()) {
    SayFailure(status);
    failed_ = true;
    return;
  }
  file_ = path;
  Note(fmt::format("Saved {} messages to {}", all.size(), Visible(path, 400)));
}

Status Chat::LoadFrom(const std::string& path) {
  MINISGL_ASSIGN_OR_RETURN(session_.messages(), LoadConversation(path));
  dropped_.clear();
  regenerations_ = 0;
  file_ = path;
  return Status();
}

void Chat::Load(const std::string& arguments) {
  if (arguments.empty()) {
    Say("/load needs the name of a file");
    return;
  }
  if (const Status status = LoadFrom(arguments); !status.ok()) {
    SayFailure(status);
    failed_ = true;
    return;
  }
  const auto& messages = session_.messages();
  Note(fmt::format(
      "Loaded {} messages.{}", messages.size(),
      messages.back().role == "user" ? " The last has no answer; /regen gives it one." : ""));
}

void Chat::Set(const std::string& arguments) {
  const size_t name_end = std::min(arguments.find_first_of(" \t="), arguments.size());
  const size_t begin = std::min(arguments.find_first_not_of(" \t=", name_end), arguments.size());
  const std::string name = arguments.substr(0, name_end);
  if (name.empty()) {
    Say("/set needs a name and a value; /params shows what there is");
    return;
  }
  const Status status = SetParameter(name, std::string_view(arguments).substr(begin), &settings_);
  if (!status.ok()) SayFailure(status);
}

void Chat::Parameters(const std::string&) { Say(ListParameters(settings_)); }

void Chat::Stats(const std::string&) {
  if (!last_answer_) {
    Say("There has been no answer yet.");
    return;
  }
  const ChatAnswer& last = *last_answer_;
  const double decode_s = last.total_s - last.first_token_s;
  const auto tokens = last.usage.completion_tokens;
  const double rate = tokens > 1 && decode_s > 0 ? static_cast<double>(tokens - 1) / decode_s : 0;
  Say(fmt::format("  last answer   {} tokens in {:.2f} s, {:.1f} tokens/s after the first", tokens,
                  last.total_s, rate));
  Say(fmt::format("  first token   after {:.0f} ms", last.first_token_s * 1000));
  Say(fmt::format("  prompt        {} tokens, {} of them cached", last.usage.prompt_tokens,
                  last.usage.cached_tokens));
  Say(fmt::format("  context       {} of {} tokens", last.usage.prompt_tokens + tokens,
                  ContextLimit()));
  Say(fmt::format("  all answers   {}: prompts {} tokens ({} cached), answers {} tokens, {:.2f} s",
                  num_answers_, total_usage_.prompt_tokens, total_usage_.cached_tokens,
                  total_usage_.completion_tokens, total_s_));
}

void Chat::Tokens(const std::string&) {
  const auto& messages = session_.messages();
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
    Say(fmt::format("  {:>7}  {:<9}  {}", count, message.role, Visible(message.content, 50)));
  }
}

void Chat::Context(const std::string&) {
  const Result<std::vector<TokenId>> ids = session_.PromptIds(model_.text.template_args);
  if (!ids.ok()) {
    SayFailure(ids.status());
    return;
  }
  const auto used = static_cast<int64_t>(ids.value().size());
  const int64_t limit = ContextLimit();
  Say(fmt::format("  {} of {} tokens used ({:.0f} %), room for {}", used, limit,
                  100.0 * static_cast<double>(used) / static_cast<double>(limit),
                  std::max<int64_t>(limit - used, 0)));
  if (!dropped_.empty()) {
    Say(fmt::format("  {} older messages were dropped; /save keeps them", dropped_.size()));
  }
}

void Chat::Model(const std::string&) {
  const ModelConfig& config = model_.facts.config;
  Say(fmt::format("  {}: {}, {} layers, width {}, {} weights, on {}", Visible(model_.text.dir, 400),
                  config.architecture, config.num_layers, config.hidden_size,
                  model_.facts.plan.weight_format.Name(), model_.device));
}

}  // namespace minisgl
