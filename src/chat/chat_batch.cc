#include "chat/chat_batch.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "batch/answer_writer.h"
#include "batch/image_reader.h"
#include "batch/row_conversation.h"
#include "batch/run_journal.h"
#include "chat/chat_completion.h"
#include "load/sampling.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"

namespace minisgl::chat {
namespace {

std::string Rows(int64_t count) { return fmt::format("{} row{}", count, count == 1 ? "" : "s"); }

}  // namespace

std::string DefaultAnswersPath(const std::string& input) {
  constexpr std::string_view kEnding = ".jsonl";
  const bool has_ending = input.ends_with(kEnding) && input.size() > kEnding.size();
  return input.substr(0, input.size() - (has_ending ? kEnding.size() : 0)) + ".answers.jsonl";
}

ChatBatchOptions ParseBatchArguments(std::string arguments) {
  ChatBatchOptions options;
  const struct {
    std::string_view name;
    bool ChatBatchOptions::*set;
  } flags[] = {{"-f ", &ChatBatchOptions::force},
               {"--force ", &ChatBatchOptions::force},
               {"-r ", &ChatBatchOptions::resume},
               {"--resume ", &ChatBatchOptions::resume}};
  for (bool found = true; found;) {
    found = false;
    for (const auto& flag : flags) {
      if (!arguments.starts_with(flag.name)) continue;
      options.*flag.set = found = true;
      arguments.erase(0, arguments.find_first_not_of(' ', flag.name.size()));
    }
  }
  options.input = std::move(arguments);
  // Two names, unless the whole text names an existing file.
  const size_t space = options.input.find_last_of(" \t");
  if (space != std::string::npos && access(ExpandHome(options.input).c_str(), F_OK) != 0) {
    options.output = ExpandHome(options.input.substr(space + 1));
    options.input.resize(options.input.find_last_not_of(" \t", space) + 1);
  }
  options.input = ExpandHome(options.input);
  if (options.output.empty()) options.output = DefaultAnswersPath(options.input);
  return options;
}

Result<std::unique_ptr<ChatBatch>> ChatBatch::Start(const load::LoadedModel* model,
                                                    ChatBatchOptions options) {
  if (options.input == "-") return UsageError("standard input is the conversation; name a file");
  if (options.output == "-") return UsageError("standard output is the conversation; name a file");
  struct stat info {};
  if (!options.force && !options.resume && stat(options.output.c_str(), &info) == 0 &&
      S_ISREG(info.st_mode) && info.st_size > 0) {
    return MakeStatus(
        StatusCode::kCannotCreate,
        "{}: exists and is not empty; give another name after FILE, or use /batch -f FILE to "
        "replace it, -r to continue it",
        Visible(options.output, 400));
  }
  if (options.sampling.draws_seed) {
    options.sampling.seed = batch::DrawSeedOfRun(options.output, options.resume);
  }
  std::unique_ptr<ChatBatch> batch(new ChatBatch);
  batch->runtime_ = model->runtime.get();
  batch->input_ = Visible(options.input, 400);
  batch->output_name_ = Visible(options.output, 400);
  MINISGL_RETURN_IF_ERROR(batch->OpenFiles(*model, options));
  batch->source_ = std::make_unique<batch::FileRowSource>(batch->reader_.get(), false,
                                                          &batch->asked_, &batch->check_);
  batch::PromptBuilderOptions builder;
  builder.defaults = load::ResolveSamplingDefaults(options.sampling, model->facts.generation);
  builder.eos_ids = model->eos_ids;
  builder.hide_reasoning = options.hide_reasoning;
  builder.images = options.images;
  builder.image_folder = batch::FolderOfRows(options.input);
  batch->prompts_ = std::make_unique<batch::PromptBuilder>(
      &model->text, model->facts.engine.plan.limits, std::move(builder));
  batch->writer_ = std::make_unique<batch::JsonAnswerWriter>(batch->output_->output(),
                                                             model->text.tokenizer.get(), false);
  MINISGL_RETURN_IF_ERROR(batch->output_->Begin());
  batch->loop_options_.rows_total = batch->numbers_.total;
  batch->loop_options_.answers_ahead_max =
      batch::kSubmittedPerRunningRequest * options.engine.max_running_requests;
  batch->begin_ = std::chrono::steady_clock::now();
  batch->thread_ = std::thread([pointer = batch.get()] { pointer->Run(); });
  return batch;
}

Status ChatBatch::OpenFiles(const load::LoadedModel& model, const ChatBatchOptions& options) {
  MINISGL_ASSIGN_OR_RETURN(batch::LineReader reader, batch::LineReader::Open(options.input));
  reader_ = std::make_unique<batch::LineReader>(std::move(reader));
  if (!reader_->regular()) {
    return UsageError("{}: is not a regular file, so it cannot be read during the conversation",
                      input_);
  }
  batch::IdTable ids;
  MINISGL_ASSIGN_OR_RETURN(check_, batch::CheckRows(reader_.get(), false, &ids));
  if (check_.raw_prompts > 0) {
    Log(LogLevel::kWarning, batch::RawPromptsWarning(input_, check_.raw_prompts));
  }
  // The options of an equivalent `minisgl run`.
  batch::RunOptions run;
  run.model = options.model;
  run.engine = options.engine;
  run.sampling = options.sampling;
  run.hide_thinking = options.hide_reasoning;
  run.image_options = options.images;
  run.output = options.output;
  run.force = options.force;
  run.resume = options.resume;
  const batch::RunInput input{reader_.get(), &check_, &ids, batch::Shard(), model.text.dir};
  MINISGL_ASSIGN_OR_RETURN(output_, batch::RunOutput::Open(run, input, &asked_));
  numbers_.total = asked_.Count(check_.rows);
  failed_before_ = output_->failed_before();
  return Status();
}

ChatBatch::~ChatBatch() {
  Stop(true);
  if (thread_.joinable()) thread_.join();
}

void ChatBatch::Stop(bool at_once) {
  if (at_once) stop_at_once_ = true;
  stop_ = true;
}

void ChatBatch::Run() {
  // Signals are handled by the chat's thread.
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  const Status status = RunRows();
  writer_.reset();
  output_.reset();  // so that another batch may continue the file
  {
    const std::lock_guard lock(mutex_);
    status_ = status;
    end_ = std::chrono::steady_clock::now();
  }
  ended_ = true;
}

Status ChatBatch::RunRows() {
  loop_options_.stop = [this] { return term::StopRequest{stop_ ? SIGINT : 0, stop_at_once_}; };
  loop_options_.stop_again = "Ctrl-C";
  loop_options_.on_numbers = [this](const term::Progress::Numbers& numbers) {
    const std::lock_guard lock(mutex_);
    numbers_ = numbers;
  };
  batch::RunLoop loop(runtime_, prompts_.get(), source_.get(), writer_.get(), nullptr,
                      loop_options_);
  const Status status = loop.Run();
  {
    const std::lock_guard lock(mutex_);
    failures_ = loop.failures();
  }
  // Also after a failure, so that rows already written are kept.
  const Status finished = output_->Finish(status.ok() && loop.stop_reason() == 0);
  if (reader_->changed()) {
    return BadInput(
        "{}; written answers belong to the file as it was: /batch -r runs the rest after it is "
        "restored; otherwise name another output",
        status.message());
  }
  return status.ok() ? finished : status;
}

int64_t ChatBatch::rows_left() const {
  const std::lock_guard lock(mutex_);
  return numbers_.total.value_or(0) - numbers_.done - numbers_.failed;
}

bool ChatBatch::succeeded() const {
  const std::lock_guard lock(mutex_);
  return status_.ok() && numbers_.failed + failed_before_ == 0;
}

std::string ChatBatch::Short() const {
  if (ended_) return "[batch done]";
  const std::lock_guard lock(mutex_);
  return fmt::format("[batch {}/{}]", numbers_.done + numbers_.failed, numbers_.total.value_or(0));
}

std::string ChatBatch::Long() const {
  const bool ended = ended_;
  const std::lock_guard lock(mutex_);
  const auto end = ended ? end_ : std::chrono::steady_clock::now();
  const double seconds = std::chrono::duration<double>(end - begin_).count();
  std::string failed =
      numbers_.failed == 0 ? "" : fmt::format(", {} without an answer", numbers_.failed);
  if (const std::string why = failures_.Counts(); !why.empty()) failed += " (" + why + ")";
  if (ended && !status_.ok()) {
    return fmt::format("batch {}: {} done{}, then: {}", input_, Rows(numbers_.done), failed,
                       Visible(status_.message(), 1000));
  }
  const std::string how = !ended ? ":" : stop_ ? " stopped:" : " done:";
  return fmt::format("batch {}{} {} of {}{}, {} tokens, {:.1f} s; answers in {}", input_, how,
                     numbers_.done, Rows(numbers_.total.value_or(0)), failed, numbers_.tokens,
                     seconds, output_name_);
}

}  // namespace minisgl::chat
