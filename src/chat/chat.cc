// The main loop of a chat and its turns.
//
// If a turn gets no answer at all (refused, failed, or stopped before the first token), the
// conversation stays as it was, because most templates reject two user messages in a row. Text
// generated before Ctrl-C is kept.
#include "chat/chat.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "batch/row_prompt.h"
#include "batch/run_input.h"
#include "chat/chat_attachments.h"
#include "chat/turn_progress.h"
#include "load/prefix_cache.h"
#include "load/sampling.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/random.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/render_prompt.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/terminal.h"
#include "term/terminal_filter.h"
#include "term/text_layout.h"

namespace minisgl::chat {
namespace {

// Room for an answer of unlimited length, made by dropping turns; at most a quarter of the context.
constexpr int64_t kAnswerRoom = 256;

// Load the tokenizer and template first: that is fast, and their errors are reported before files
// are created and weights are read.
Result<load::LoadedModel> LoadChatModel(const ChatOptions& options, const term::Output& answers,
                                        report::ReportFiles* reports) {
  MINISGL_ASSIGN_OR_RETURN(TextModel text, load::LoadTextModel(options.model));
  MINISGL_RETURN_IF_ERROR(load::CheckGivesAnswers(text));
  MINISGL_RETURN_IF_ERROR(load::CheckHasTemplate(text));
  MINISGL_RETURN_IF_ERROR(load::CheckImageOptions(options.image_options, text));
  MINISGL_RETURN_IF_ERROR(load::CheckImageFiles(options.images, text));
  if (options.tools.any()) MINISGL_RETURN_IF_ERROR(load::CheckTakesTools(text));
  MINISGL_RETURN_IF_ERROR(reports->Open(options.reports, options.force, STDIN_FILENO, answers));
  return load::LoadModel(std::move(text), options.engine, reports->Sinks());
}

}  // namespace

Chat::Chat(load::LoadedModel* model, const ChatOptions& options, term::Output* output,
           report::ReportFiles* reports)
    : model_(*model),
      model_options_(options.model),
      options_(options),
      reports_(*reports),
      drawn_seed_(load::DrawSeed()),
      output_(*output),
      view_(output, term::ReasoningMode(options.hide_thinking, options.model.quiet)),
      interactive_(term::IsTerminal(STDIN_FILENO)),
      image_reader_(options.image_options, /*folder=*/""),
      kept_(interactive_ && !options.no_save ? KeptConversations::DefaultFolder() : ""),
      branches_(model->runtime.get()) {
  BeginWithModel();
  kept_.SwitchTo(branches_.current().name, {});
}

void Chat::Say(const std::string& text) const { term::PrintMessage(text); }

// As an answer is laid out: blocks of code and tables are not wrapped.
void Chat::SayText(const std::string& text, term::TextStyle style) const {
  if (!term::IsTerminal(STDERR_FILENO)) return term::PrintStderr(text);
  term::TextLayout layout([] { return term::TerminalColumns(STDERR_FILENO); });
  const bool shows_marks = options_.plain || !term::AllowsColour(STDERR_FILENO);
  layout.Begin(shows_marks ? term::TextStyle::kWrapped : style);
  std::string rows = layout.Push(term::FilterForTerminal(text));
  term::PrintStderrShown(rows + layout.Finish());
}

void Chat::SayFailure(const Status& status) const {
  Say("minisgl: " + Visible(status.message(), 4000));
}

void Chat::Note(const std::string& text) const {
  if (!options_.model.quiet) Say(text);
}

Status Chat::Prepare() {
  if (!options_.load.empty()) MINISGL_RETURN_IF_ERROR(LoadFrom(options_.load));
  if (options_.goes_on) {
    const auto list = KeptConversations(KeptConversations::DefaultFolder()).List();
    if (list.empty()) {
      return MakeStatus(StatusCode::kNoInput, "--continue: no conversation is kept");
    }
    MINISGL_RETURN_IF_ERROR(GoOnWith(list.front()));
  }
  if (!options_.system.empty()) {
    MINISGL_ASSIGN_OR_RETURN(const std::string system,
                             batch::SystemText(options_.system, /*strip_line_breaks=*/true));
    SetSystem(system);
  }
  MINISGL_ASSIGN_OR_RETURN(first_prompt_,
                           batch::PromptOptionText(options_.prompt, /*is_raw=*/false));
  for (const std::string& file : options_.images) {
    MINISGL_ASSIGN_OR_RETURN(ConversationImage image, ReadPicture(file));
    waiting_images_.push_back(std::move(image));
  }
  return Status();
}

void Chat::Greet() const {
  if (!interactive_) return;
  Note(fmt::format("{} on {}, {} tokens of context. /help lists commands, Ctrl-D leaves.",
                   Visible(model_.text.dir, 400), model_.device, ContextLimit()));
}

int Chat::Run() {
  if (const Status status = Prepare(); !status.ok()) return term::Fail(status);
  Greet();
  if (interactive_ && options_.goes_on) ShowWhereItStands(kept_.current_path());
  if (interactive_ && !options_.load.empty()) ShowWhereItStands(options_.load);
  Converse();
  if (model_.runtime != nullptr) load::FinishPrefixCache(model_.runtime.get(), kSaveGrace);
  const int report_exit = WriteReports();
  const int exit_status = ExitStatus();
  return exit_status <= 1 && report_exit != 0 ? report_exit : exit_status;
}

void Chat::Converse() {
  Next next = options_.prompt.empty() ? Next::kGoOn : Message(first_prompt_);
  const std::unique_ptr<PromptReader> reader =
      MakePromptReader(&signals_, HistoryPath(), !options_.no_save);
  reader->set_status([this] {
    RecordSample(false);
    return reported_batch_end_ ? "" : batch_->Short();
  });
  reader->set_completer([this](std::string_view line) { return Complete(line); });
  const bool takes_commands = interactive_ || options_.commands;
  while (next == Next::kGoOn && output_status_.ok() && signals_.Terminated() == 0 &&
         !device_lost_ && model_status_.ok()) {
    ReportBatchEnd();
    Keep();
    ChatInputLine line =
        takes_commands ? ReadChatInput(reader.get()) : ReadChatMessage(reader.get());
    if (!takes_commands) HintAtCommands(line.text);
    WarnOfReplacedBytes(*reader);
    if (line.kind != ChatInputLine::Kind::kInterrupted) offered_to_leave_ = false;
    switch (line.kind) {
      case ChatInputLine::Kind::kMessage:
        if (interactive_ && IsCommandInWords(line.text)) break;
        next = takes_commands ? MessageWithFiles(line.text) : Message(std::move(line.text));
        break;
      case ChatInputLine::Kind::kCommand:
        next = RunCommand(line.text);
        break;
      case ChatInputLine::Kind::kInterrupted:
        next = HandleInterrupt(line.was_empty);
        break;
      case ChatInputLine::Kind::kEnd:
      case ChatInputLine::Kind::kTerminated:
        next = Next::kLeave;
        break;
    }
    if (std::exchange(stopped_answer_, false)) DropTypeAhead(reader.get());
    if (next == Next::kLeave && !MayLeave()) next = Next::kGoOn;
  }
  Keep();
  if (batch_) {
    if (interactive_ || interrupted_ || signals_.Terminated() != 0) batch_->Stop(false);
    WaitForBatch(/*may_cease=*/false);
  }
}

void Chat::Keep() {
  const Status status = kept_.Keep(AllMessages());
  if (!status.ok()) Say("minisgl: this conversation is not kept: " + status.message());
}

bool Chat::MayLeave() {
  const bool asks = batch_ && !batch_->ended() && interactive_ && !offered_to_stop_batch_ &&
                    signals_.Terminated() == 0;
  if (!asks) return true;
  offered_to_stop_batch_ = true;
  interrupted_ = false;
  Say(fmt::format(
      "A batch is running, with {} rows to go: leave again to stop it, or wait with /batch wait.",
      batch_->rows_left()));
  return false;
}

void Chat::WaitForBatch(bool may_cease) {
  // Polling interval for the end of the batch and for signals.
  constexpr std::chrono::milliseconds kWait(20);
  bool terminated = signals_.Terminated() != 0;
  while (batch_ && !batch_->ended()) {
    const bool terminates = !terminated && signals_.Terminated() != 0;
    terminated = terminated || terminates;
    const bool interrupted = signals_.TakeInterrupt();
    if (interrupted && may_cease) return Note("(the batch goes on; /batch stop ends it)");
    if (interrupted || terminates) batch_->Stop(batch_->stopping());
    RecordSample(false);
    std::this_thread::sleep_for(kWait);
  }
  RecordSample(false);
  ReportBatchEnd();
}

void Chat::ReportBatchEnd() {
  if (reported_batch_end_ || !batch_->ended()) return;
  reported_batch_end_ = true;
  if (batch_->succeeded()) return Note(batch_->Long());
  Say("minisgl: " + batch_->Long());
  failed_ = true;
}

void Chat::RecordSample(bool always) {
  if (!always && !statistics_.IsSampleDue(IsBusy())) return;
  const SchedulerStats stats = model_.runtime->Stats().scheduler;
  statistics_.RecordSample(stats, IsBusy());
}

// Returns the exit status for failures of the reports.
int Chat::WriteReports() {
  if (model_.runtime == nullptr) return 0;
  report::RunSummary summary;
  summary.stats = model_.runtime->Stats();
  summary.about = report::AboutRun(model_, options_.engine);
  statistics_.End(&summary);
  if (options_.reports.stats) {
    Stats("");
    term::PrintStderr(report::FormatStats(summary.stats));
  }
  const Status status = reports_.WriteSummary(summary);
  return status.ok() ? 0 : term::Fail(status);
}

int Chat::ExitStatus() const {
  // If the terminal is gone, output fails, but the signal (SIGHUP) may arrive a moment later.
  constexpr int kHangUpWait_ms = 100;
  if (!output_status_.ok() && interactive_) {
    pollfd wait = {signals_.fd(), POLLIN, 0};
    poll(&wait, 1, kHangUpWait_ms);
  }
  if (signals_.Terminated() != 0) return term::kExitSignalBase + signals_.Terminated();
  if (output_.pipe_closed()) return term::kExitPipeClosed;
  if (!output_status_.ok()) return term::Fail(output_status_);
  if (device_lost_) return ExitCode(StatusCode::kUnavailable);
  if (!model_status_.ok()) return ExitCode(model_status_.code());
  if (interrupted_) return term::kExitSignalBase + SIGINT;
  return failed_ && !interactive_ ? term::kExitSomeFailed : 0;
}

void Chat::WarnOfReplacedBytes(const PromptReader& reader) {
  if (warned_of_bytes_ || !reader.replaced_bytes()) return;
  warned_of_bytes_ = true;
  Say("minisgl: a line of input is not UTF-8 (its other bytes were read as U+FFFD); send UTF-8");
}

void Chat::HintAtCommands(const std::string& message) {
  if (hinted_at_commands_ || !message.starts_with('/')) return;
  hinted_at_commands_ = true;
  Note(
      "minisgl: a line that begins with \"/\" was sent as a message; --commands takes such lines "
      "as commands");
}

Chat::Next Chat::HandleInterrupt(bool was_empty) {
  if (!interactive_ || (was_empty && offered_to_leave_)) {
    interrupted_ = true;
    return Next::kLeave;
  }
  if (was_empty) Note("(Ctrl-C again, or Ctrl-D, leaves)");
  offered_to_leave_ = was_empty;
  return Next::kGoOn;
}

void Chat::DropTypeAhead(PromptReader* reader) {
  const size_t num_lines = reader->DropTypeAhead();
  if (num_lines == 0 || signals_.Terminated() != 0) return;
  Note(num_lines == 1 ? "(a line that was typed ahead is dropped)"
                      : fmt::format("({} lines that were typed ahead are dropped)", num_lines));
}

bool Chat::IsCommandInWords(const std::string& text) {
  constexpr std::string_view kWords[] = {"exit", "quit", "bye", "help", "clear"};
  std::string word = Trimmed(text);
  for (char& byte : word) byte = static_cast<char>(std::tolower(static_cast<unsigned char>(byte)));
  if (std::find(std::begin(kWords), std::end(kWords), word) == std::end(kWords) ||
      std::exchange(hinted_word_, word) == word) {
    hinted_word_.clear();
    return false;
  }
  const std::string_view what = word == "help"    ? "lists the commands"
                                : word == "clear" ? "forgets the conversation"
                                                  : "leaves";
  Say(fmt::format("(/{} {}; type {} once more to send it to the model)", word, what, word));
  return true;
}

Chat::Next Chat::MessageWithFiles(const std::string& text) {
  if (const std::string picture = PastedPicture(text); !picture.empty()) {
    failed_ = !AttachPicture(picture) || failed_;
    return Next::kGoOn;
  }
  Result<AttachedMessage> whole = AttachFiles(text);
  Status status = whole.status();
  std::vector<ConversationImage> images;
  for (size_t i = 0; status.ok() && i < whole->pictures.size(); ++i) {
    Result<ConversationImage> image = ReadPicture(whole->pictures[i]);
    status = image.status();
    if (status.ok()) images.push_back(std::move(image).value());
  }
  if (status.ok()) return Message(std::move(whole->text), std::move(images));
  SayFailure(status);
  Note("(nothing is sent)");
  failed_ = true;
  return Next::kGoOn;
}

Chat::Next Chat::Message(std::string text, std::vector<ConversationImage> images) {
  offered_to_delete_all_ = false;
  if (!waiting_text_.empty()) text = waiting_text_ + '\n' + text;
  images.insert(images.begin(), waiting_images_.begin(), waiting_images_.end());
  if (Send(std::move(text), std::move(images), CopyTurns())) {
    waiting_text_.clear();
    waiting_images_.clear();
  } else {
    failed_ = true;
  }
  return interrupted_ ? Next::kLeave : Next::kGoOn;
}

bool Chat::Send(std::string text, std::vector<ConversationImage> images, ChatTurns before) {
  SessionMessage message = {"user", std::move(text), {}};
  message.images = std::move(images);
  session_->messages().push_back(std::move(message));
  const bool answered = ReplyWithTools(0);
  if (answered) {
    TurnsChanged();
  } else {
    RestoreTurns(std::move(before));
  }
  return answered;
}

ChatTurns Chat::CopyTurns() const { return {session_ ? session_->messages() : held_, dropped_}; }

void Chat::RestoreTurns(ChatTurns turns) {
  session_->messages() = std::move(turns.messages);
  dropped_ = std::move(turns.dropped);
}

void Chat::TurnsChanged() {
  branches_.current().regenerations = 0;
  alternatives_.Clear();
}

int64_t Chat::ContextLimit() const { return batch::ContextCapacity(model_.runtime->limits()); }

// Ends an advice with the option that limits the context, unless the model itself does.
std::string Chat::HowToLengthenContext() const {
  const MemoryPlan& plan = model_.facts.engine.plan;
  if (plan.limits.max_seq_len >= model_.facts.config.max_seq_len) return "";
  if (plan.max_seq_len_reason != "what fits") return ", or raise --max-seq-len";
  return options_.engine.num_pages > 0 ? ", or raise --num-pages" : ", or raise --memory-ratio";
}

// The prompt is encoded to its end: what does not fit is said with its length.
Result<EncodedPrompt> Chat::EncodeConversation(AnswerStart start, ReasoningTags* tags) const {
  Conversation conversation = session_->ToConversation();
  conversation.start = start;
  if (tool_dialect_ != ToolDialect::kNone) {
    conversation.tools = options_.user_tools.definitions();
  }
  MINISGL_ASSIGN_OR_RETURN(RenderedPrompt rendered,
                           RenderPrompt(model_.text, std::move(conversation)));
  *tags = rendered.reasoning;
  MINISGL_ASSIGN_OR_RETURN(EncodedPrompt encoded, EncodePrompt(model_.text, std::move(rendered)));
  if (encoded.ids.empty()) {
    return BadInput("the chat template renders nothing for this conversation");
  }
  return encoded;
}

// Returns the conversation as ids, after dropping the oldest turns if they leave no room for an
// answer; *tags: those of the answer.
Result<EncodedPrompt> Chat::FitPrompt(ReasoningTags* tags) {
  const AnswerStart start = prefill_.empty() ? AnswerStart::kNewMessage : AnswerStart::kContinue;
  const int64_t limit = ContextLimit();
  const int64_t wanted = settings_.max_tokens < 0 ? kAnswerRoom : settings_.max_tokens;
  const bool drops = options_.on_overflow == ContextOverflow::kDropTurns;
  const int64_t room = drops ? std::clamp<int64_t>(wanted, 1, std::max<int64_t>(limit / 4, 1)) : 1;
  int64_t num_dropped = 0;
  while (true) {
    MINISGL_ASSIGN_OR_RETURN(EncodedPrompt encoded, EncodeConversation(start, tags));
    const auto length = static_cast<int64_t>(encoded.ids.size());
    if (drops && length + room > limit) {
      std::vector<SessionMessage> turn = session_->TakeOldestTurn();
      if (!turn.empty()) {
        std::move(turn.begin(), turn.end(), std::back_inserter(dropped_));
        ++num_dropped;
        continue;
      }
    }
    if (length + 1 > limit) {
      return BadInput("the conversation does not fit the context ({} of {} tokens); {}", length,
                      limit,
                      drops ? "send shorter messages" + HowToLengthenContext()
                            : "use /reset or /undo, or --on-overflow drop-turns");
    }
    if (num_dropped > 0) {
      Say(fmt::format(
          "minisgl: the context is full ({} tokens): the oldest {} dropped", limit,
          num_dropped == 1 ? std::string("turn was") : fmt::format("{} turns were", num_dropped)));
    }
    return encoded;
  }
}

Result<Prompt> Chat::MakePrompt() {
  const int32_t min_tokens = settings_.sampling.min_tokens;
  if (settings_.max_tokens >= 0 && min_tokens > settings_.max_tokens) {
    return UsageError(
        "min_tokens is more than max_tokens (found {} and {}); change one of them with /set",
        min_tokens, settings_.max_tokens);
  }
  Prompt prompt;
  MINISGL_ASSIGN_OR_RETURN(EncodedPrompt encoded, FitPrompt(&prompt.reasoning));
  MINISGL_ASSIGN_OR_RETURN(PromptImages images,
                           MakePromptImages(model_.text, encoded, prepared_.get()));
  prompt.ids = std::move(encoded.ids);
  prompt.extras = std::move(images.extras);
  prompt.marks = std::move(images.marks);
  SetAdapter(&prompt);
  const auto turn = static_cast<uint64_t>(CountTurns(AllMessages()));
  load::SetAnswerSettings(settings_, &prompt);
  prompt.sampling.seed = DeriveSeed(settings_.sampling.seed, turn);
  prompt.priority = kChatPriority;
  prompt.session = branches_.current().session;
  prompt.kept_special_ids = session_->kept_special_ids();
  KeepCallMarks(&prompt);
  load::SetEndTokens(model_.eos_ids, &prompt);
  return prompt;
}

bool Chat::Reply(uint64_t variant, size_t count, ChatAlternatives::Answers* answers) {
  if (prefill_.empty()) return ReplyTo(variant, count, answers);
  session_->messages().push_back({"assistant", prefill_, {}});
  const bool replied = ReplyTo(variant, count, answers);
  if (replied) {
    prefill_.clear();
  } else {
    session_->messages().pop_back();
  }
  return replied;
}

SessionMessage Chat::MessageOf(const ChatAnswer& answer) const {
  if (prefill_.empty()) {
    if (auto calling = CallsOf(answer, answer.text, answer.parts)) return *std::move(calling);
    return session_->AnswerMessage(answer.text, answer.parts, answer.token_ids);
  }
  // Its ids do not spell the beginning.
  TextParts parts = PartsOfText(session_->reasoning_tags(), prefill_);
  for (const TextPart& part : answer.parts) AddPart(part.kind, part.size, &parts);
  if (auto calling = CallsOf(answer, prefill_ + answer.text, parts)) return *std::move(calling);
  return session_->AnswerMessage(prefill_ + answer.text, parts, {});
}

bool Chat::ReplyTo(uint64_t variant, size_t count, ChatAlternatives::Answers* answers) {
  Result<Prompt> prompt = MakePrompt();
  if (!prompt.ok()) {
    SayFailure(prompt.status());
    return false;
  }
  std::vector<Prompt> prompts(count, *prompt);
  for (size_t i = 0; i < count; ++i) {
    prompts[i].sampling.seed = AnswerSeed(prompt->sampling.seed, variant + i);
    if (i > 0) prompts[i].session = 0;  // the turns of a session must be sequential
  }
  const bool shows_progress = !options_.model.quiet && term::StderrIsTerminal();
  prompts[0].wants_progress = shows_progress;
  auto begin_answer = [&, next = size_t{0}](size_t answer) mutable {
    if (answer < next) return;
    ++next;
    const bool as_it_is = options_.plain || settings_.grammar.text != nullptr;
    view_.Begin(as_it_is ? term::TextStyle::kPlain : term::TextStyle::kMarkdown);
    call_reader_.reset();
    if (RunsCalls()) call_reader_.emplace(tool_dialect_, options_.user_tools.definitions());
    if (count > 1) Note(fmt::format("[{}/{}]", next, count));
    if (prefill_.empty()) return;
    const TextParts parts = PartsOfText(session_->reasoning_tags(), prefill_);
    ShowText(prefill_, parts);
  };
  const TurnProgress progress(prompt->ids.size());
  const AnswerListener listener = {
      [&, begin = std::ref(begin_answer)](size_t answer, std::string_view text,
                                          const TextParts& parts) {
        begin(answer);
        return ShowText(text, parts);
      },
      [&, begin = std::ref(begin_answer)](size_t answer, const ChatAnswer& whole) {
        begin(answer);
        ShowEnd(whole);
        Report(whole, count);
      },
      [&](int64_t num_tokens, int64_t read_tokens) {
        RecordSample(false);
        NoteOutputStatus(view_.Pause());
        const bool is_hidden = options_.hide_thinking && !view_.has_text();
        if (shows_progress) view_.ShowWaiting(progress.Line(read_tokens, num_tokens, is_hidden));
      }};
  RecordSample(true);  // marks the end of the idle time before this turn
  answering_ = true;
  std::vector<ChatAnswer> whole =
      RunTurn(model_.runtime.get(), std::move(prompts), &signals_, listener);
  answering_ = false;
  RecordSample(true);
  size_t num_kept = 0;
  for (ChatAnswer& answer : whole) {
    (interactive_ ? stopped_answer_ : interrupted_) |= answer.interrupted;
    const bool kept = answer.finish_reason != FinishReason::kError &&
                      (!answer.interrupted || !answer.text.empty());
    device_lost_ = device_lost_ || answer.error_code == "device_unavailable";
    const SessionMessage message = MessageOf(answer);
    if (kept && ++num_kept == 1) {
      if (!prefill_.empty()) session_->messages().pop_back();
      session_->messages().push_back(message);
    }
    if (answers != nullptr) answers->push_back(kept ? std::optional(message) : std::nullopt);
    statistics_.Add(std::move(answer), kept);
  }
  return num_kept > 0;
}

// Records the result of a write; the first failure ends the chat. Returns true if all was written.
bool Chat::NoteOutputStatus(const Status& status) {
  if (output_status_.ok()) output_status_ = status;
  return output_status_.ok();
}

// Reports how an answer, one of `count`, ended, unless it ended normally.
void Chat::Report(const ChatAnswer& answer, size_t count) const {
  if (answer.finish_reason == FinishReason::kError) {
    Say("minisgl: " + Visible(answer.error_message, 4000));
  } else if (answer.interrupted && output_status_.ok()) {
    Note(answer.text.empty() && count == 1
             ? "[stopped before the answer began; the message is taken back]"
             : "[stopped]");
  } else if (answer.finish_reason == FinishReason::kLength) {
    const bool full = answer.usage.prompt_tokens + answer.usage.completion_tokens >= ContextLimit();
    const char* const advice = full                      ? ": the context is full"
                               : answer.ended_in_thought ? ", all reasoning; see /think and /set "
                                                           "max_tokens"
                                                         : "; see /set max_tokens";
    Note(fmt::format("[cut after {} tokens{}]", answer.usage.completion_tokens, advice));
  }
  if (answer.cut_in_grammar && !answer.interrupted) {
    Note("[the grammar allows no end there: the answer is not a whole text of it]");
  }
}

int RunChat(const ChatOptions& given, report::ReportFiles* reports) {
  ChatOptions options = given;
  if (const Status status = load::TakeGrammar(&options.sampling); !status.ok()) {
    return term::Fail(status);
  }
  Result<load::UserTools> tools = load::UserTools::Take(options.tools);
  if (!tools.ok()) return term::Fail(tools.status());
  options.user_tools = std::move(tools).value();
  const Result<std::unique_ptr<term::Output>> output = term::Output::Open("", false, -1);
  if (!output.ok()) return term::Fail(output.status());
  Result<load::LoadedModel> model = LoadChatModel(options, **output, reports);
  if (!model.ok()) return term::Fail(model.status());
  load::WarnOfThoughtBudget(options.sampling, model->text);
  load::SetMissingModelHandler(nullptr);  // the chat reads the terminal from here on
  return Chat(&model.value(), options, output->get(), reports).Run();
}

}  // namespace minisgl::chat
