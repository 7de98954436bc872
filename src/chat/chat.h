// `minisgl chat`: a conversation at a terminal, or line by line through a pipe.
//
// Answers go to standard output, everything else to standard error. Chat turns a typed message into
// a turn of the session. At a terminal or with --commands, a line that begins with "/" is a command
// of chat_commands.cc. Used by one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "batch/image_reader.h"
#include "chat/chat_alternatives.h"
#include "chat/chat_batch.h"
#include "chat/chat_branch_list.h"
#include "chat/chat_completion.h"
#include "chat/chat_file.h"
#include "chat/chat_input.h"
#include "chat/chat_settings.h"
#include "chat/chat_statistics.h"
#include "chat/chat_tree.h"
#include "chat/chat_turn.h"
#include "chat/kept_conversations.h"
#include "chat/line_editor.h"
#include "load/image_options.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "load/user_tools.h"
#include "minisgl/runtime/session.h"
#include "minisgl/text/answer_start.h"
#include "minisgl/text/encode_prompt.h"
#include "minisgl/text/prepared_pictures.h"
#include "minisgl/text/reasoning.h"
#include "minisgl/text/tool_calls.h"
#include "report/reports.h"
#include "term/answer_view.h"
#include "term/output.h"

namespace minisgl::chat {

// What a turn does for which the context has no room left.
enum class ContextOverflow : uint8_t { kDropTurns, kError };  // kDropTurns: the oldest
inline constexpr load::Choice<ContextOverflow> kContextOverflowChoices[] = {
    {"drop-turns", ContextOverflow::kDropTurns}, {"error", ContextOverflow::kError}};

struct ChatOptions {
  load::ModelOptions model;
  load::EngineOptions engine;
  load::SamplingOptions sampling;
  load::ReportOptions reports;
  bool force = false;               // replace report files that are not empty
  std::string prompt;               // the first message, or @FILE
  std::vector<std::string> images;  // files of pictures, of the first message
  load::ImageOptions image_options;
  load::ToolOptions tools;
  load::UserTools user_tools;  // that `tools` names, as RunChat has read them
  std::string system;          // text or @FILE
  std::string load;
  bool goes_on = false;   // with the conversation that was kept last
  bool no_save = false;   // keep none
  bool commands = false;  // also if standard input is not a terminal
  ContextOverflow on_overflow = ContextOverflow::kDropTurns;
  bool hide_thinking = false;
  bool plain = false;  // answers are shown as they are
};

class Chat {
 public:
  // All must outlive the chat. `model` must have a template, and /model replaces it; `output` is
  // standard output.
  Chat(load::LoadedModel* model, const ChatOptions& options, term::Output* output,
       report::ReportFiles* reports);
  Chat(const Chat&) = delete;
  Chat& operator=(const Chat&) = delete;

  // Runs the whole conversation and writes the reports; returns the exit status.
  int Run();

 private:
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
  // Records a sample for the summary; unless `always`, only if it is due and something is running.
  void RecordSample(bool always);
  void Greet() const;
  // Sends a message, after what waits for it (/read, /image).
  Next Message(std::string text, std::vector<ConversationImage> images = {});
  // True if `text` is the name of a command alone, such as "exit", typed for the first time: then
  // a note says how the command is typed, and the text is not sent.
  bool IsCommandInWords(const std::string& text);
  // With the files that it names by @FILE.
  Next MessageWithFiles(const std::string& text);
  // Sends the message and shows the answer. If there is no answer, restores `before` and returns
  // false.
  bool Send(std::string text, std::vector<ConversationImage> images, ChatTurns before);
  Next HandleInterrupt(bool was_empty);
  // After Ctrl-C has stopped an answer: what was typed during it is not sent.
  void DropTypeAhead(PromptReader* reader);
  // True if the chat may end: false the first time while a batch is running.
  bool MayLeave();
  // Waits for the end of the batch. A signal stops it, a second signal stops it at once; but if
  // `may_cease`, Ctrl-C ends the waiting alone.
  void WaitForBatch(bool may_cease);
  void ReportBatchEnd();  // if it ended and this was not reported yet
  // Explains once that a message which begins with "/" is not a command.
  void HintAtCommands(const std::string& message);
  void WarnOfReplacedBytes(const PromptReader& reader);
  // Answers the conversation, whose last message is the user's, `count` times in parallel. The
  // first answer worth keeping is added to the conversation. *answers (may be null) receives all
  // answers, with nullopt for those not worth keeping. `variant`: number of earlier answers to this
  // message. Returns false if no answer is worth keeping; turns may have been dropped then, and the
  // caller restores them.
  bool Reply(uint64_t variant, size_t count = 1, ChatAlternatives::Answers* answers = nullptr);
  // The same, without the beginning of the answer (/prefill) in the conversation yet.
  bool ReplyTo(uint64_t variant, size_t count, ChatAlternatives::Answers* answers);
  // The message of an answer, with the beginning that it continues.
  SessionMessage MessageOf(const ChatAnswer& answer) const;
  bool NoteOutputStatus(const Status& status);
  ChatTurns CopyTurns() const;
  void RestoreTurns(ChatTurns turns);
  Result<Prompt> MakePrompt();
  Result<EncodedPrompt> FitPrompt(ReasoningTags* tags);
  // The conversation as it stands, and *tags of an answer that begins as `start` says.
  Result<EncodedPrompt> EncodeConversation(AnswerStart start, ReasoningTags* tags) const;
  std::string HowToLengthenContext() const;
  void Report(const ChatAnswer& answer, size_t count) const;
  int ExitStatus() const;

  // Messages to the user on standard error: Say and SayFailure always, Note unless --quiet. On a
  // terminal Say breaks lines at blanks, SayText lays out a message of the conversation.
  void Say(const std::string& text) const;
  void SayText(const std::string& text, term::TextStyle style = term::TextStyle::kWrapped) const;
  void SayFailure(const Status& status) const;
  void Note(const std::string& text) const;

  // chat_commands.cc
  Next RunCommand(const std::string& line);
  Completion Complete(std::string_view line) const;
  void ReportUnknownCommand(const std::string& name) const;
  void Help(const std::string& arguments);
  void Show(const std::string& arguments);
  void ShowAnswer(const SessionMessage& message) const;
  // The reasoning of an answer, in its text or stored separately, and the rest.
  ReasoningPiece PartsOf(const SessionMessage& message) const;
  void Copy(const std::string& arguments);
  void Reset(const std::string& arguments);
  void System(const std::string& arguments);
  void Prefill(const std::string& arguments);
  void Edit(const std::string& arguments);
  void Read(const std::string& arguments);
  void Undo(const std::string& arguments);
  void Set(const std::string& arguments);
  void Parameters(const std::string& arguments);
  void Stats(const std::string& arguments);
  void Cache(const std::string& arguments);
  void Tokens(const std::string& arguments);
  void Context(const std::string& arguments);
  void Batch(const std::string& arguments);

  void SetSystem(const std::string& text);
  // Keeps the conversation, if it has changed; says so once if that fails.
  void Keep();
  int64_t ContextLimit() const;
  std::vector<SessionMessage> AllMessages() const;

  // chat_tools.cc
  void Tools(const std::string& arguments);
  // Whether the model of now calls them, and how.
  void BeginTools();
  // The prompt keeps the marks of calls.
  void KeepCallMarks(Prompt* prompt) const;
  // Reply; the calls in one answer are run and answered, which is done again for the next answer,
  // at most as often as the options allow. Returns false if there is no last answer.
  bool ReplyWithTools(uint64_t variant, size_t count = 1,
                      ChatAlternatives::Answers* answers = nullptr);
  // True if calls are read in the answers of now, since they will be run.
  bool RunsCalls() const { return tool_turns_left_ > 0; }
  // Shows more of an answer; its calls of tools are left out.
  bool ShowText(std::string_view text, const TextParts& parts);
  bool ShowPiece(const ToolCallPiece& piece);
  // Shows the end of an answer.
  void ShowEnd(const ChatAnswer& whole);
  // The message of a complete answer with calls; nullopt if it has none.
  std::optional<SessionMessage> CallsOf(const ChatAnswer& answer, const std::string& text,
                                        const TextParts& parts) const;
  // Confirms, runs and answers the calls of the last message; false if the user stops that.
  bool AnswerCalls();
  std::optional<std::string> AnswerCall(const ToolCall& call);
  // Whether to run the call that was shown; nullopt: Ctrl-C, or a signal ends the chat.
  std::optional<bool> AskToRun();

  // chat_pictures.cc
  void Image(const std::string& arguments);
  // The picture in the file that the user names.
  Result<ConversationImage> ReadPicture(const std::string& path) const;
  // Adds it to those of the next message, and says so. Shows an error, and returns false then.
  bool AttachPicture(const std::string& path);
  // The tokens of the prompt that the picture takes; 0 if they are not known.
  int64_t TokensOf(const ConversationImage& image) const;
  // Takes the pictures of a conversation in a file of `folder`.
  PictureTaker TakerOf(const std::string& folder) const;

  // chat_sessions.cc
  void Save(const std::string& arguments);
  void Load(const std::string& arguments);
  void Sessions(const std::string& arguments);
  Status LoadFrom(const std::string& path);
  // Loads a kept conversation, which goes on in its own file.
  Status GoOnWith(const KeptConversation& conversation);
  // Shows which conversation it is: its first line, its last turn and the age of `path`.
  void ShowWhereItStands(const std::string& path) const;
  void DeleteKept(const std::string& which, const std::vector<KeptConversation>& list);

  // chat_branches.cc
  void NewBranch(const std::string& arguments);
  void DeleteBranch(const std::string& name);
  void SwitchBranch(const std::string& arguments);
  void Tree(const std::string& arguments);
  void Regenerate(const std::string& arguments);
  void Pick(const std::string& arguments);

  // chat_model.cc
  void Model(const std::string& arguments);
  void ShowModel() const;
  // Whether the model reasons, and at most how much.
  void Think(const std::string& arguments);
  void ShowThinking() const;
  Status SwitchThinking(load::Thinking think);
  // Frees the model and continues the conversation with the model `name`. After an error the old
  // one is loaded again, unless the files of the new one have an error that is found before.
  Status SwitchModel(const std::string& name);
  // chat_adapter.cc
  void SwitchAdapter(const std::string& arguments);
  void ShowAdapters() const;
  void SetAdapter(Prompt* prompt) const;

  // Frees the model, except for its tokenizer and template, which are returned.
  TextModel FreeModel();
  // Loads the model of `text`, and takes the conversation up with it.
  Status StartModel(TextModel text);
  // A session, settings and sessions of branches for the model that is loaded.
  void BeginWithModel();
  // Leaves of the conversations what another model can read.
  void ForgetModel(const ReasoningTags& tags);

  // Leaves the current branch and enters another.
  void EnterBranch(size_t index);
  void ForgetAnswer();  // of the last turn
  void TurnsChanged();  // other than by an answer

  // For prefixes that are not saved yet when a model is freed or a signal ends the chat.
  static constexpr std::chrono::milliseconds kSaveGrace{2000};

  load::LoadedModel& model_;
  Status model_status_;               // why no model is loaded; the chat ends
  load::ModelOptions model_options_;  // of the model that is loaded
  const ChatOptions& options_;
  report::ReportFiles& reports_;
  term::SignalWatch signals_;
  std::optional<Session> session_;    // null while no model is loaded
  std::vector<SessionMessage> held_;  // its messages, meanwhile
  const uint64_t drawn_seed_;
  load::AnswerSettings settings_;
  std::vector<std::pair<std::string, std::string>> set_;  // names and values of /set, in order
  term::Output& output_;
  Status output_status_;  // the first error
  term::AnswerView view_;
  const bool interactive_;
  std::vector<SessionMessage> dropped_;  // turns that no longer fit; for /save
  std::unique_ptr<ChatBatch> batch_;     // the last batch
  bool reported_batch_end_ = true;
  bool offered_to_stop_batch_ = false;
  bool offered_to_delete_all_ = false;             // the kept conversations, by the last command
  std::string first_prompt_;                       // of the options
  std::string waiting_text_;                       // from /read, for the next message
  std::vector<ConversationImage> waiting_images_;  // from /image; the same
  const batch::ImageReader image_reader_;
  std::unique_ptr<PreparedPictures> prepared_;  // for the model that is loaded
  std::string adapter_;                         // of the next turns; "": none
  std::string prefill_;                         // from /prefill: the beginning of the next answer
  std::string file_;  // last used by /save or /load: it may be overwritten
  KeptConversations kept_;
  ChatBranchList branches_;
  ChatAlternatives alternatives_;
  bool offered_to_leave_ = false;  // Ctrl-C at an empty prompt was answered by a hint
  bool interrupted_ = false;       // by a signal; the chat ends
  bool stopped_answer_ = false;    // by Ctrl-C, since the last line was read
  bool warned_of_bytes_ = false;   // about input that is not UTF-8
  bool hinted_at_commands_ = false;
  std::string hinted_word_;   // by IsCommandInWords, for the last message
  bool failed_ = false;       // a turn had no answer
  bool device_lost_ = false;  // permanently; the chat ends
  ChatStatistics statistics_;
  bool answering_ = false;
  ToolDialect tool_dialect_ = ToolDialect::kNone;  // kNone: the model gets no tools
  int64_t tool_turns_left_ = 0;                    // answers to this message whose calls are run
  std::optional<ToolCallReader> call_reader_;      // of the answer that is shown
};

// Runs `minisgl chat` on the standard streams of this process: loads the model, opens the files of
// `reports`, and returns the exit status.
int RunChat(const ChatOptions& options, report::ReportFiles* reports);

}  // namespace minisgl::chat
