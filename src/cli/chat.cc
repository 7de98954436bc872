// The loop of a chat and its turns.
//
// A turn that gets no answer at all (refused, failed, or stopped before a word was said) leaves the
// conversation as it was: most templates refuse two messages of the user in a row. What was said
// before Ctrl-C stays.
#include "cli/chat.h"

#include <CLI/CLI.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/row_prompt.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/random.h"
#include "minisgl/base/utf8.h"

namespace minisgl {
namespace {

constexpr uint64_t kSystemBytesMax = uint64_t{16} << 20;
// Room that turns are dropped for where the length of the answer is open; a quarter of a small
// context.
constexpr int64_t kAnswerRoom = 256;

Result<std::string> ReadSystem(const std::string& text) {
  if (!text.starts_with('@')) return Utf8OrWarn(text, "--system");
  MINISGL_ASSIGN_OR_RETURN(std::string content, ReadFile(text.substr(1), kSystemBytesMax));
  while (content.ends_with('\n') || content.ends_with('\r')) content.pop_back();
  return Utf8OrWarn(std::move(content), text.substr(1));
}

// The text side is quick, and what it lacks is said before files are made and weights are read.
Result<LoadedModel> LoadChatModel(const ChatOptions& options, ReportFiles* reports) {
  MINISGL_ASSIGN_OR_RETURN(TextModel text, LoadTextModel(options.model));
  MINISGL_RETURN_IF_ERROR(CheckHasTemplate(text));
  MINISGL_ASSIGN_OR_RETURN(const std::unique_ptr<Output> answers, Output::Open("", false, -1));
  MINISGL_RETURN_IF_ERROR(reports->Open(options.reports, options.force, STDIN_FILENO, *answers));
  return LoadModel(std::move(text), options.engine, reports->TraceSink());
}

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) >> 1;
}

}  // namespace

Chat::Chat(const LoadedModel* model, const ChatOptions& options, ReportFiles* reports)
    : model_(*model),
      options_(options),
      reports_(*reports),
      runtime_session_(model->runtime->OpenSession()),
      session_(model->text.tokenizer.get(), model->text.chat_template.get()),
      settings_(MakeChatSettings(options.sampling, model->facts.generation, DrawSeed())),
      interactive_(IsTerminal(STDIN_FILENO)) {
  session_.set_parse_special(model->text.parse_special);
}

Chat::~Chat() { model_.runtime->CloseSession(runtime_session_); }

void Chat::Say(const std::string& text) const {
  PrintStderr(IsTerminal(STDERR_FILENO) ? FilterForTerminal(text) : text);
}

void Chat::SayFailure(const Status& status) const {
  Say("minisgl: " + Visible(status.message(), 4000));
}

void Chat::Note(const std::string& text) const {
  if (!options_.model.quiet) Say(text);
}

Status Chat::Prepare() {
  if (!options_.load.empty()) MINISGL_RETURN_IF_ERROR(LoadFrom(options_.load));
  if (!options_.system.empty()) {
    MINISGL_ASSIGN_OR_RETURN(const std::string system, ReadSystem(options_.system));
    SetSystem(system);
  }
  return Status();
}

void Chat::Greet() const {
  if (!interactive_) return;
  Note(fmt::format("{} on {}, {} tokens of context. /help lists commands, Ctrl-D leaves.",
                   Visible(model_.text.dir, 400), model_.device, ContextLimit()));
}

int Chat::Run() {
  if (const Status status = Prepare(); !status.ok()) return Fail(status);
  Greet();
  Converse();
  const int report_exit = WriteReports();
  const int exit_status = ExitStatus();
  return exit_status <= 1 && report_exit != 0 ? report_exit : exit_status;
}

void Chat::Converse() {
  Next next =
      options_.prompt.empty() ? Next::kGoOn : Message(Utf8OrWarn(options_.prompt, "--prompt"));
  const std::unique_ptr<PromptReader> reader = MakePromptReader(&signals_, HistoryPath());
  while (next == Next::kGoOn && printer_.status().ok() && signals_.Terminated() == 0) {
    ChatInputLine line = ReadChatInput(reader.get());
    WarnOfReplacedBytes(*reader);
    if (line.kind != ChatInputLine::Kind::kInterrupted) offered_to_leave_ = false;
    switch (line.kind) {
      case ChatInputLine::Kind::kMessage:
        next = Message(std::move(line.text));
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
  }
}

// Gives the exit status that this alone comes to.
int Chat::WriteReports() {
  RunSummary summary;
  summary.rows_done = num_answers_ - num_failures_;
  summary.rows_failed = num_failures_;
  summary.seconds = total_s_;
  summary.stats = model_.runtime->Stats();
  summary.about = DescribeRun(model_, options_.engine);
  if (options_.reports.stats) {
    Stats("");
    PrintStderr(FormatStats(summary.stats));
  }
  const Status status = reports_.WriteSummary(summary);
  return status.ok() ? 0 : Fail(status);
}

int Chat::ExitStatus() const {
  constexpr int kBySignal = 128;
  if (printer_.pipe_closed()) return kBySignal + SIGPIPE;
  if (!printer_.status().ok()) return Fail(printer_.status());
  if (signals_.Terminated() != 0) return kBySignal + signals_.Terminated();
  if (interrupted_) return kBySignal + SIGINT;
  return failed_ && !interactive_ ? 1 : 0;
}

void Chat::WarnOfReplacedBytes(const PromptReader& reader) {
  if (warned_of_bytes_ || !reader.replaced_bytes()) return;
  warned_of_bytes_ = true;
  Say("minisgl: a line of input is not UTF-8 (its other bytes were read as U+FFFD); send UTF-8");
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

Chat::Next Chat::Message(std::string text) {
  Turns before = CopyTurns();
  session_.messages().push_back({"user", std::move(text), {}});
  if (Reply(0)) {
    regenerations_ = 0;
  } else {
    failed_ = true;
    PutTurns(std::move(before));
  }
  return interrupted_ ? Next::kLeave : Next::kGoOn;
}

Chat::Turns Chat::CopyTurns() const { return {session_.messages(), dropped_}; }

void Chat::PutTurns(Turns turns) {
  session_.messages() = std::move(turns.messages);
  dropped_ = std::move(turns.dropped);
}

int64_t Chat::ContextLimit() const { return ContextCapacity(model_.runtime->limits()); }

// The end of an advice: the option that limits the context, if it is not the model itself.
std::string Chat::HowToLengthenContext() const {
  const MemoryPlan& plan = model_.facts.plan;
  if (plan.limits.max_seq_len >= model_.facts.config.max_seq_len) return "";
  if (plan.max_seq_len_reason != "what fits") return ", or raise --max-seq-len";
  return options_.engine.num_pages > 0 ? ", or raise --num-pages" : ", or raise --memory-ratio";
}

// The conversation's ids, after dropping the oldest turns where they leave no room for an answer.
Result<std::vector<TokenId>> Chat::FitPrompt() {
  const int64_t limit = ContextLimit();
  const int64_t wanted = settings_.max_tokens < 0 ? kAnswerRoom : settings_.max_tokens;
  const bool drops = options_.on_overflow == "drop-turns";
  const int64_t room = drops ? std::clamp<int64_t>(wanted, 1, std::max<int64_t>(limit / 4, 1)) : 1;
  int64_t num_dropped = 0;
  while (true) {
    MINISGL_ASSIGN_OR_RETURN(std::vector<TokenId> ids,
                             session_.PromptIds(model_.text.template_args));
    const auto length = static_cast<int64_t>(ids.size());
    if (drops && length + room > limit) {
      std::vector<SessionMessage> turn = session_.TakeOldestTurn();
      if (!turn.empty()) {
        std::move(turn.begin(), turn.end(), std::back_inserter(dropped_));
        ++num_dropped;
        continue;
      }
    }
    if (length + 1 > limit) {
      return BadInput("the conversation does not fit the context ({} of {} tokens); {}", length,
                      limit,
                      drops ? "say less at once" + HowToLengthenContext()
                            : "use /reset or /undo, or --on-overflow drop-turns");
    }
    if (num_dropped > 0) {
      Say(fmt::format(
          "minisgl: the context is full ({} tokens): the oldest {} dropped", limit,
          num_dropped == 1 ? std::string("turn was") : fmt::format("{} turns were", num_dropped)));
    }
    return ids;
  }
}

Result<Prompt> Chat::MakePrompt(uint64_t variant) {
  Prompt prompt;
  MINISGL_ASSIGN_OR_RETURN(prompt.ids, FitPrompt());
  const std::vector<SessionMessage> all = AllMessages();
  const auto turn = std::count_if(all.begin(), all.end(),
                                  [](const SessionMessage& m) { return m.role == "user"; });
  prompt.sampling = settings_.sampling;
  prompt.sampling.seed = DeriveSeed(settings_.seed, static_cast<uint64_t>(turn)) + variant;
  prompt.max_tokens = settings_.max_tokens;
  prompt.stop = settings_.stop;
  prompt.ignore_eos = settings_.ignore_eos;
  prompt.priority = kChatPriority;
  prompt.session = runtime_session_;
  SetEndTokens(model_.eos_ids, &prompt);
  return prompt;
}

bool Chat::Reply(uint64_t variant) {
  Result<Prompt> prompt = MakePrompt(variant);
  if (!prompt.ok()) {
    SayFailure(prompt.status());
    return false;
  }
  ChatAnswer answer = RunTurn(model_.runtime.get(), std::move(*prompt), &signals_,
                              [this](std::string_view text) { return printer_.Show(text); });
  // A terminal shows where the answer ends, even one of no words.
  if (!answer.text.empty() || (answer.error_message.empty() && !answer.interrupted)) {
    printer_.EndAnswer();
  }
  Report(answer);
  if (answer.interrupted && !interactive_) interrupted_ = true;
  const bool kept =
      answer.finish_reason != FinishReason::kError && (!answer.interrupted || !answer.text.empty());
  if (kept) session_.messages().push_back({"assistant", answer.text, answer.token_ids});
  ++num_answers_;
  num_failures_ += kept ? 0 : 1;
  total_usage_.prompt_tokens += answer.usage.prompt_tokens;
  total_usage_.cached_tokens += answer.usage.cached_tokens;
  total_usage_.completion_tokens += answer.usage.completion_tokens;
  total_s_ += answer.total_s;
  last_answer_ = std::move(answer);
  return kept;
}

// What a person should know of an answer that did not simply end.
void Chat::Report(const ChatAnswer& answer) const {
  if (answer.finish_reason == FinishReason::kError) {
    Say("minisgl: " + Visible(answer.error_message, 4000));
  } else if (answer.interrupted && printer_.status().ok()) {
    Note(answer.text.empty() ? "[stopped before the answer began; the message is taken back]"
                             : "[stopped]");
  } else if (answer.finish_reason == FinishReason::kLength) {
    const bool full = answer.usage.prompt_tokens + answer.usage.completion_tokens >= ContextLimit();
    Note(fmt::format("[cut after {} tokens{}]", answer.usage.completion_tokens,
                     full ? ": the context is full" : "; see /set max_tokens"));
  }
}

namespace {

int RunChat(const ChatOptions& options, ReportFiles* reports) {
  const Result<LoadedModel> model = LoadChatModel(options, reports);
  return model.ok() ? Chat(&model.value(), options, reports).Run() : Fail(model.status());
}

}  // namespace

CommandBody AddChatCommand(CLI::App* app) {
  const auto options = std::make_shared<ChatOptions>();
  const std::string group = "Conversation";
  app->add_option("-p,--prompt", options->prompt, "Say TEXT first")
      ->type_name("TEXT")
      ->group(group);
  app->add_option("--system", options->system, "System message, or @ and a file that holds it")
      ->type_name("TEXT|@FILE")
      ->group(group);
  app->add_option("--load", options->load, "Go on with the conversation in FILE")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--on-overflow", options->on_overflow,
                  "When the context is full: drop-turns (the oldest) or error (default drop-turns)")
      ->check(OneOf({"drop-turns", "error"}))
      ->type_name("WHAT")
      ->group(group);
  AddReportOptions(app, &options->reports);
  app->add_flag("--force", options->force, "Replace a report file that is not empty")
      ->group("Reports");
  AddSamplingOptions(app, &options->sampling);
  AddModelOptions(app, &options->model);
  AddEngineOptions(app, &options->engine);
  return [options] {
    InstallNotes({options->model.quiet, options->model.verbose});
    if (options->sampling.logprobs) {
      return Fail(UsageError("--logprobs has no place in a chat; use minisgl run --json"));
    }
    ReportFiles reports;
    return reports.End(RunChat(*options, &reports));
  };
}

}  // namespace minisgl
