// `minisgl chat`: a conversation at a terminal, or line by line through a pipe.
//
// Answers go to standard output and everything else to standard error. Chat turns a typed message
// into a turn of the session, and a line that begins with "/" into a command of chat_commands.cc.
// Used by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/chat_input.h"
#include "cli/chat_settings.h"
#include "cli/chat_turn.h"
#include "cli/line_editor.h"
#include "cli/model_loader.h"
#include "cli/options.h"
#include "cli/reports.h"
#include "minisgl/runtime/session.h"

namespace minisgl {

struct ChatOptions {
  ModelOptions model;
  EngineOptions engine;
  SamplingOptions sampling;
  ReportOptions reports;
  bool force = false;  // report files that are not empty are replaced
  std::string prompt;  // the first turn
  std::string system;  // the text, or @FILE
  std::string load;
  std::string on_overflow = "drop-turns";
};

class Chat {
 public:
  // All outlive the chat. `model` has a template.
  Chat(const LoadedModel* model, const ChatOptions& options, ReportFiles* reports);
  ~Chat();
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  // The whole conversation and its reports; gives the exit status.
  int Run();

 private:
  struct Command;
  static const std::vector<Command>& Commands();
  enum class Next { kGoOn, kLeave };

  // chat.cc
  Status Prepare();
  void Converse();
  int WriteReports();
  void Greet() const;
  Next Message(std::string text);
  Next HandleInterrupt(bool was_empty);
  void WarnOfReplacedBytes(const PromptReader& reader);
  // Answers the conversation as it stands (its last message is the user's); `variant` counts
  // /regen. False where there is nothing to keep: then turns may have been dropped for nothing, and
  // the caller puts back what there was.
  bool Reply(uint64_t variant);
  struct Turns {
    std::vector<SessionMessage> messages, dropped;
  };
  Turns CopyTurns() const;
  void PutTurns(Turns turns);
  Result<Prompt> MakePrompt(uint64_t variant);
  Result<std::vector<TokenId>> FitPrompt();
  std::string HowToLengthenContext() const;
  void Report(const ChatAnswer& answer) const;
  int ExitStatus() const;

  // What is said to the person, on standard error: always, or unless --quiet.
  void Say(const std::string& text) const;
  void SayFailure(const Status& status) const;
  void Note(const std::string& text) const;

  // chat_commands.cc
  Next RunCommand(const std::string& line);
  void Help(const std::string& arguments);
  void Reset(const std::string& arguments);
  void System(const std::string& arguments);
  void Regenerate(const std::string& arguments);
  void Undo(const std::string& arguments);
  void Save(const std::string& arguments);
  void Load(const std::string& arguments);
  void Set(const std::string& arguments);
  void Parameters(const std::string& arguments);
  void Stats(const std::string& arguments);
  void Tokens(const std::string& arguments);
  void Context(const std::string& arguments);
  void Model(const std::string& arguments);

  void SetSystem(const std::string& text);
  Status LoadFrom(const std::string& path);
  void ForgetAnswer();  // of the last turn
  int64_t ContextLimit() const;
  std::vector<SessionMessage> AllMessages() const;

  const LoadedModel& model_;
  const ChatOptions& options_;
  ReportFiles& reports_;
  const SessionId runtime_session_;  // keeps the prefix of the turns cached between them
  SignalWatch signals_;
  Session session_;
  ChatSettings settings_;
  AnswerPrinter printer_;
  const bool interactive_;
  std::vector<SessionMessage> dropped_;  // turns that no longer fit, for /save
  std::string file_;                     // that /save or /load used last: it may be written again
  uint64_t regenerations_ = 0;           // of the last turn
  bool offered_to_leave_ = false;        // Ctrl-C at an empty prompt, once
  bool interrupted_ = false;             // the end of it all
  bool warned_of_bytes_ = false;         // that are no UTF-8
  bool failed_ = false;                  // some turn has no answer

  std::optional<ChatAnswer> last_answer_;
  int64_t num_answers_ = 0;
  int64_t num_failures_ = 0;  // of those, without an answer
  Usage total_usage_;
  double total_s_ = 0;
};

}  // namespace minisgl
