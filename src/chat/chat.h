// `minisgl chat`: a conversation at a terminal, or line by line through a pipe.
//
// Answers go to standard output and everything else to standard error. Chat turns a typed message
// into a turn of the session, and at a terminal, or with --commands, a line that begins with "/"
// into a command of chat_commands.cc.
// Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_batch.h"
#include "chat/chat_completion.h"
#include "chat/chat_input.h"
#include "chat/chat_settings.h"
#include "chat/chat_tree.h"
#include "chat/chat_turn.h"
#include "chat/line_editor.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/runtime/session.h"
#include "minisgl/text/reasoning.h"
#include "report/reports.h"
#include "term/answer_view.h"
#include "term/output.h"
#include "term/run_history.h"

namespace minisgl::chat {

struct ChatOptions {
  load::ModelOptions model;
  load::EngineOptions engine;
  load::SamplingOptions sampling;
  load::ReportOptions reports;
  bool force = false;  // report files that are not empty are replaced
  std::string prompt;  // the first turn
  std::string system;  // the text, or @FILE
  std::string load;
  bool commands = false;  // also where standard input is no terminal
  std::string on_overflow = "drop-turns";
  bool hide_thinking = false;
};

class Chat {
 public:
  // All outlive the chat. `model` has a template.
  // `output` is standard output.
  Chat(const load::LoadedModel* model, const ChatOptions& options, term::Output* output,
       report::ReportFiles* reports);
  ~Chat();
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  // The whole conversation and its reports; gives the exit status.
  int Run();

 private:
  using Clock = std::chrono::steady_clock;
  struct Command;
  static const std::vector<Command>& Commands();
  static std::vector<std::string> CommandNames(bool listed);
  static const Command* FindCommand(std::string_view name);
  enum class Next { kGoOn, kLeave };

  // chat.cc
  Status Prepare();
  void Converse();
  int WriteReports();
  bool IsBusy() const { return answering_ || (batch_ && !batch_->ended()); }
  term::RunSample SampleNow() const;
  // Notes how it goes, for the summary; where not `always`, only if it is time and something runs.
  void Look(bool always);
  void Greet() const;
  Next Message(std::string text);
  // Says `text` and answers it; where there is no answer, puts `before` back and gives false.
  bool Send(std::string text, ChatTurns before);
  Next HandleInterrupt(bool was_empty);
  // Whether the chat may end: not, the first time, while a batch runs.
  bool MayLeave();
  // Waits for the end of the batch. A signal stops it; one that comes while it stops does so at
  // once.
  void WaitForBatch();
  void SayBatchEnded();  // if it did, and that was not said
  // Says once that a message which begins with "/" is no command.
  void HintAtCommands(const std::string& message);
  void WarnOfReplacedBytes(const PromptReader& reader);
  // Answers the conversation as it stands (its last message is the user's), `count` times at once;
  // the first answer that is worth keeping goes into the conversation, and all into *answers (may
  // be null), nothing in the place of one that is not. `variant` counts the answers to this message
  // that there were before. False where there is nothing to keep: then turns may have been dropped
  // for nothing, and the caller puts back what there was.
  using Answers = std::vector<std::optional<SessionMessage>>;
  bool Reply(uint64_t variant, size_t count = 1, Answers* answers = nullptr);
  ReasoningTags PromptTags() const;
  bool TakeOutput(const Status& status);
  void CountAnswer(const ChatAnswer& answer, bool kept);
  ChatTurns CopyTurns() const;
  void PutTurns(ChatTurns turns);
  Result<Prompt> MakePrompt();
  Result<std::vector<TokenId>> FitPrompt();
  std::string HowToLengthenContext() const;
  void Report(const ChatAnswer& answer, size_t count) const;
  int ExitStatus() const;

  // What is said to the person, on standard error: always, or unless --quiet.
  void Say(const std::string& text) const;
  void SayFailure(const Status& status) const;
  void Note(const std::string& text) const;

  // chat_commands.cc
  Next RunCommand(const std::string& line);
  Completion Complete(std::string_view line) const;
  void SayUnknown(const std::string& name) const;
  void Help(const std::string& arguments);
  void Image(const std::string& arguments);
  void Show(const std::string& arguments);
  void ShowAnswer(const SessionMessage& message) const;
  void Reset(const std::string& arguments);
  void System(const std::string& arguments);
  void Edit(const std::string& arguments);
  void Read(const std::string& arguments);
  void Undo(const std::string& arguments);
  void Save(const std::string& arguments);
  void Load(const std::string& arguments);
  void Set(const std::string& arguments);
  void Parameters(const std::string& arguments);
  void Stats(const std::string& arguments);
  void Tokens(const std::string& arguments);
  void Context(const std::string& arguments);
  void Model(const std::string& arguments);
  void Batch(const std::string& arguments);
  static ChatBatchOptions ParseBatch(std::string arguments);

  void SetSystem(const std::string& text);
  Status LoadFrom(const std::string& path);
  int64_t ContextLimit() const;
  std::vector<SessionMessage> AllMessages() const;

  // chat_branches.cc
  void NewBranch(const std::string& arguments);
  void DeleteBranch(const std::string& name);
  void SwitchBranch(const std::string& arguments);
  void Tree(const std::string& arguments);
  void Regenerate(const std::string& arguments);
  void Pick(const std::string& arguments);

  static constexpr size_t kBranchesMax = 64;  // each holds a copy of what was said
  struct Branch {
    std::string name;
    ChatTurns turns;             // of the branch talked in, session_ and dropped_ have them
    uint64_t regenerations = 0;  // of its last turn
    SessionId session = 0;       // keeps the prefix of the turns cached between them
  };
  std::optional<size_t> FindBranch(std::string_view name) const;
  std::string UnusedBranchName() const;
  void EnterBranch(size_t index);
  Branch& branch() { return branches_[branch_]; }
  void ForgetAnswer();  // of the last turn
  void TurnsChanged();  // other than by an answer

  const load::LoadedModel& model_;
  const ChatOptions& options_;
  report::ReportFiles& reports_;
  term::SignalWatch signals_;
  Session session_;
  ChatSettings settings_;
  term::Output& output_;
  Status output_status_;  // the first failure
  term::AnswerView view_;
  const bool interactive_;
  std::vector<SessionMessage> dropped_;  // turns that no longer fit, for /save
  std::unique_ptr<ChatBatch> batch_;     // the last one
  bool said_batch_ended_ = true;
  bool offered_to_stop_batch_ = false;
  std::string waiting_text_;  // of /read, for the next message
  std::string file_;          // that /save or /load used last: it may be written again
  std::vector<Branch> branches_;
  size_t branch_ = 0;              // the one talked in
  Answers alternatives_;           // to the last message: the one before /regen, then those it gave
  size_t picked_ = 0;              // which of them the conversation goes on from
  bool offered_to_leave_ = false;  // Ctrl-C at an empty prompt, once
  bool interrupted_ = false;       // the end of it all
  bool warned_of_bytes_ = false;   // that are no UTF-8
  bool hinted_at_commands_ = false;
  bool failed_ = false;       // some turn has no answer
  bool device_lost_ = false;  // it will not come back: the chat ends

  std::optional<ChatAnswer> last_answer_;
  int64_t num_answers_ = 0;
  int64_t num_failures_ = 0;  // of those, without an answer
  Usage total_usage_;
  double total_s_ = 0;
  const Clock::time_point begin_ = Clock::now();
  term::RunHistory history_;
  bool answering_ = false;
  bool looked_busy_ = false;  // as it was looked at last
  Clock::time_point next_look_;
};

// The whole of `minisgl chat`, on this process's standard streams: loads the model, opens the files
// of `reports`, and returns the exit status.
int RunChat(const ChatOptions& options, report::ReportFiles* reports);

}  // namespace minisgl::chat
