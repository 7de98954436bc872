// minisgl run: answers the rows of a prompt file, or one prompt as plain text. minisgl score: the
// log-probabilities of the texts of a file's rows, in the same way.
//
// Order of work: check the command line, then input, output and the model's files, then load the
// weights, so that mistakes are found before minutes are spent. An existing output file is emptied
// only after that.

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include "batch/answer_writer.h"
#include "batch/array_output.h"
#include "batch/grammar_texts.h"
#include "batch/id_table.h"
#include "batch/image_reader.h"
#include "batch/input_kind.h"
#include "batch/row_conversation.h"
#include "batch/row_prompt.h"
#include "batch/row_source.h"
#include "batch/run_input.h"
#include "batch/run_journal.h"
#include "batch/run_loop.h"
#include "batch/run_options.h"
#include "batch/run_output.h"
#include "batch/session_rows.h"
#include "batch/shard.h"
#include "batch/table_output.h"
#include "batch/tool_turns.h"
#include "cli/bad_rows.h"
#include "cli/commands.h"
#include "cli/fetch_picture.h"
#include "cli/one_prompt.h"
#include "cli/run_end.h"
#include "cli/tool_setup.h"
#include "cli/vector_setup.h"
#include "load/image_options.h"
#include "load/model_loader.h"
#include "load/prefix_cache.h"
#include "load/sampling.h"
#include "minisgl/base/log.h"
#include "minisgl/base/mapped_file.h"
#include "minisgl/base/utf8.h"
#include "report/reports.h"
#include "report/summary.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"
#include "term/signals.h"

namespace minisgl::cli {
namespace {

constexpr const char* kChangedInputAdvice =
    "; written answers belong to the file as it was: --resume runs the rest after it is restored; "
    "otherwise write to another output";

// State of one run. It is not moved, because its parts point to each other.
struct Job {
  std::unique_ptr<batch::LineReader> reader;  // null for a prompt of the command line
  batch::Shard shard;
  batch::RowSelection asked;                         // of a file
  std::unique_ptr<batch::RowTemplate> row_template;  // null: the file has rows
  load::UserTools tools;                             // of rows of a file
  std::unique_ptr<batch::ToolTurns> tool_turns;      // of a prompt; null: no calls are run
  std::unique_ptr<batch::RowSource> source;
  std::unique_ptr<batch::RunOutput> output;
  batch::FileCheck check;             // of a regular file
  std::optional<int64_t> rows_total;  // number of rows to run, if known
  bool one_prompt = false;
};

// The rows of the input are made by --template.
Status UseTemplate(const batch::RunOptions& options, Job* job) {
  using Use = batch::RowTemplate::Use;
  using Purpose = batch::RowPurpose;
  const Use use = options.purpose == Purpose::kScore      ? Use::kScored
                  : options.purpose == Purpose::kEmbed    ? Use::kEmbedded
                  : options.purpose == Purpose::kClassify ? Use::kClassified
                  : options.purpose == Purpose::kRerank   ? Use::kRanked
                  : options.raw                           ? Use::kPrompt
                                                          : Use::kQuestion;
  MINISGL_ASSIGN_OR_RETURN(job->row_template,
                           batch::RowTemplate::Make(options.rows, options.system, use));
  if (const auto separator = batch::SeparatorOf(options.rows.format, *options.file)) {
    job->reader->ReadTable(*separator);
    if (job->reader->regular()) MINISGL_RETURN_IF_ERROR(job->reader->ReadHeader());
  }
  return batch::CheckNamesColumns(options.rows, job->reader.get());
}

Status OpenInput(const batch::RunOptions& options, Job* job) {
  if (!options.file) {
    batch::Row row;
    if (options.of_texts()) {
      row.format = batch::FormatFor(options.purpose);
      row.texts.push_back({*options.prompt, {}});
      row.is_one_text = true;
    } else {
      MINISGL_ASSIGN_OR_RETURN(row, OnePromptRow(options));
    }
    job->one_prompt = true;
    if (options.tools.any()) {
      MINISGL_ASSIGN_OR_RETURN(job->tool_turns, ToolTurnsOf(options, std::move(row)));
      job->source = std::make_unique<batch::ToolRowSource>(job->tool_turns.get());
      return Status();
    }
    job->rows_total = 1;
    job->source = std::make_unique<batch::SingleRowSource>(std::move(row));
    return Status();
  }
  // Opening a FIFO waits for a program that writes it.
  struct stat info {};
  if (*options.file != "-" && stat(options.file->c_str(), &info) == 0 && S_ISFIFO(info.st_mode)) {
    MINISGL_RETURN_IF_ERROR(batch::CheckReadsOnce(options, Visible(*options.file, 400)));
  }
  MINISGL_ASSIGN_OR_RETURN(batch::LineReader reader, batch::LineReader::Open(*options.file));
  job->reader = std::make_unique<batch::LineReader>(std::move(reader));
  if (!job->reader->regular()) {
    MINISGL_RETURN_IF_ERROR(batch::CheckReadsOnce(options, job->reader->name()));
  }
  if (options.rows.prompt) MINISGL_RETURN_IF_ERROR(UseTemplate(options, job));
  MINISGL_ASSIGN_OR_RETURN(job->tools, load::UserTools::Take(options.tools));
  auto source = std::make_unique<batch::FileRowSource>(job->reader.get(), options.lenient,
                                                       &job->asked, &job->check, options.purpose);
  if (!options.check) source->TakeControls();
  source->UseTemplate(job->row_template.get());
  job->source = std::move(source);
  return Status();
}

Status OpenOutputs(const batch::RunOptions& options, const std::string& model_dir,
                   const batch::IdTable& ids, Job* job, report::ReportFiles* reports) {
  const batch::RunInput input{job->reader.get(), &job->check, &ids, job->shard, model_dir};
  MINISGL_ASSIGN_OR_RETURN(job->output, batch::RunOutput::Open(options, input, &job->asked));
  if (job->rows_total && !job->one_prompt) job->rows_total = job->asked.Count(job->check.rows);
  // With --resume, reports of the earlier run are replaced.
  const int input_fd = job->reader ? job->reader->fd() : -1;
  batch::ErrorFile* const errors = job->output->errors();
  return reports->Open(options.reports, options.force || options.resume, input_fd,
                       *job->output->output(), errors == nullptr ? nullptr : errors->output());
}

// Reads a regular file once before anything runs.
Status CheckFile(const batch::RunOptions& options, batch::IdTable* ids, Job* job) {
  if (job->reader == nullptr || !job->reader->regular()) return Status();
  MINISGL_ASSIGN_OR_RETURN(
      job->check, batch::CheckRows(job->reader.get(), options.lenient, ids, options.purpose,
                                   options.strict, job->row_template.get()));
  job->rows_total = job->check.rows;
  if (job->row_template != nullptr && !options.check) {
    MINISGL_RETURN_IF_ERROR(batch::CheckSomeRowIsGood(*job->reader, job->check));
  }
  if (options.strict && job->check.bad_rows > 0) return BadInput("{}", job->check.first_bad);
  if (job->check.rows > 0 && job->check.no_json_rows == job->check.rows) {
    Log(LogLevel::kWarning, fmt::format("{}: no line of it is JSON; {}", job->reader->name(),
                                        batch::TextAdvice(job->reader->name())));
  }
  if (job->check.rows == 0) {
    if (options.strict) return Status(StatusCode::kBadInput, batch::NoRows(*job->reader));
    Log(LogLevel::kWarning, batch::NoRows(*job->reader));
  }
  return Status();
}

// With --strict: rows have no switches, tools or documents that the template lacks.
Status CheckSwitches(const TextModel& text, const Job& job) {
  const struct {
    int64_t line;
    const char* field;
  } used[] = {{job.check.effort_line, "reasoning_effort"},
              {job.check.verbosity_line, "verbosity"},
              {job.check.tools_line, "tools"},
              {job.check.documents_line, "documents"}};
  for (const auto& [line, field] : used) {
    const std::string missing = line == 0 ? "" : batch::MissingSwitch(text, field);
    if (!missing.empty()) {
      return BadInput("{}:{}: {}; leave it out", job.reader->name(), line, missing);
    }
  }
  return Status();
}

// Checks the model's text side before rows are read.
Status CheckText(const batch::RunOptions& options, const TextModel& text, Job* job) {
  MINISGL_RETURN_IF_ERROR(load::CheckImageOptions(options.image_options, text));
  MINISGL_RETURN_IF_ERROR(CheckPictures(options, text));
  if (options.tools.any()) MINISGL_RETURN_IF_ERROR(load::CheckTakesTools(text));
  if (!options.of_texts()) MINISGL_RETURN_IF_ERROR(load::CheckGivesAnswers(text));
  if (options.purpose != batch::RowPurpose::kAnswer) return Status();
  if (options.strict) MINISGL_RETURN_IF_ERROR(CheckSwitches(text, *job));
  const bool fills_messages = options.rows.prompt && !options.raw;
  if (options.chat || fills_messages) return load::CheckHasTemplate(text);
  const bool warns = text.chat_template != nullptr && job->reader != nullptr && !options.raw;
  if (!warns) return Status();
  const std::string name = job->reader->name();
  if (job->reader->regular()) {
    if (job->check.raw_prompts == 0) return Status();
    Log(LogLevel::kWarning, batch::RawPromptsWarning(name, job->check.raw_prompts));
    return Status();
  }
  job->source = std::make_unique<batch::WatchedRowSource>(
      std::move(job->source), [name, said = false](const batch::Row& row) mutable {
        if (said || !batch::IsRawPrompt(row)) return;
        said = true;
        Log(LogLevel::kWarning, batch::RawPromptsWarning(name, std::nullopt));
      });
  return Status();
}

// Says once which settings of generation_config.json answers have, if there are such answers. With
// --verbose that was said for the run as a whole.
void WatchDefaults(const batch::RunOptions& options, const GenerationConfig& generation, Job* job) {
  const load::SamplingDefaults defaults =
      load::ResolveSamplingDefaults(options.sampling, generation);
  if (options.model.verbose || load::NoteForAnswer(defaults, {}).empty()) return;
  job->source = std::make_unique<batch::WatchedRowSource>(
      std::move(job->source), [defaults, said = false](const batch::Row& row) mutable {
        const std::string note = said ? "" : load::NoteForAnswer(defaults, row);
        if (note.empty()) return;
        said = true;
        Log(LogLevel::kInfo, note);
      });
}

batch::PromptBuilder MakePromptBuilder(const batch::RunOptions& options, const TextModel& text,
                                       const load::ModelFacts& facts, std::vector<TokenId> eos_ids,
                                       const batch::EmbeddingOptions& embedding,
                                       const load::UserTools& tools) {
  batch::PromptBuilderOptions builder;
  if (!tools.empty()) builder.tools = &tools;
  builder.embedding = embedding;
  builder.defaults = load::ResolveSamplingDefaults(options.sampling, facts.generation);
  builder.eos_ids = std::move(eos_ids);
  builder.chat = options.chat;
  builder.system = options.system;
  builder.prefill = options.prefill;
  builder.hide_reasoning = options.hide_thinking;
  builder.row_metrics = options.row_metrics;
  builder.timeout_s = options.timeout_s;
  builder.images = options.image_options;
  builder.image_folder = batch::FolderOfRows(options.file.value_or("-"));
  builder.counts_only = options.check;
  builder.truncate_left = options.on_overflow == load::PromptOverflow::kTruncateLeft;
  load::WarnOfThoughtBudget(options.sampling, text);
  if (!builder.defaults.note.empty()) Log(LogLevel::kVerbose, builder.defaults.note);
  return batch::PromptBuilder(&text, facts.engine.plan.limits, std::move(builder));
}

// --check: checks rows as far as possible without weights.
Result<int> CheckOnly(const batch::RunOptions& options, Job* job) {
  MINISGL_ASSIGN_OR_RETURN(const TextModel text, load::LoadTextModel(options.model));
  MINISGL_ASSIGN_OR_RETURN(const load::ModelFacts facts,
                           load::LoadModelFacts(text, options.engine));
  MINISGL_RETURN_IF_ERROR(CheckText(options, text, job));
  MINISGL_ASSIGN_OR_RETURN(const VectorSetup vectors, VectorsFor(options, text, facts));
  MINISGL_ASSIGN_OR_RETURN(const batch::EmbeddingOptions embedding,
                           EmbeddingFor(options, text, facts, vectors));
  const batch::PromptBuilder builder =
      MakePromptBuilder(options, text, facts, {}, embedding, job->tools);
  batch::GrammarCheck grammars;
  batch::UnaskedRows unasked(&builder);
  int64_t rows = 0, tokens = 0;
  const std::string name = job->reader ? job->reader->name() : "the prompt";
  BadRows bad_rows(name, options.model.verbose);
  batch::ParsedRow parsed;
  batch::RowSource::Outcome outcome = batch::RowSource::Outcome::kEnd;
  while ((outcome = job->source->Next(1000, &parsed)) != batch::RowSource::Outcome::kEnd) {
    if (outcome == batch::RowSource::Outcome::kFailed) return job->source->status();
    if (outcome == batch::RowSource::Outcome::kNotYet) continue;
    ++rows;
    std::vector<Prompt> prompts;
    std::vector<std::string> warnings;
    parsed.error = unasked.Build(&parsed, &prompts);
    if (!parsed.error) parsed.error = grammars.Check(parsed.row, prompts, &warnings);
    for (const std::string& warning : warnings) {
      Log(LogLevel::kWarning,
          fmt::format("{}:{}: {}", name, parsed.row.line, Visible(warning, 1000)));
    }
    if (!parsed.error) {
      // As in plan and in a run: the prompt of several answers counts for each.
      for (const Prompt& prompt : prompts) tokens += std::ssize(prompt.ids);
      continue;
    }
    bad_rows.Add(parsed.row.line, *parsed.error);
  }
  bad_rows.End();
  if (rows == 0 && !job->reader->regular()) Log(LogLevel::kWarning, batch::NoRows(*job->reader));
  Log(LogLevel::kInfo,
      fmt::format("{}: {} rows, {} bad, {} prompt tokens", name, rows, bad_rows.count(), tokens));
  return bad_rows.count() == 0 ? 0 : ExitCode(StatusCode::kBadInput);
}

int ExitStatus(const batch::RunLoop& loop, const Job& job) {
  if (loop.stop_reason() != 0) return term::kExitSignalBase + loop.stop_reason();
  // For the single prompt of the command line, an error in the template is the model's, not the
  // row's; and a picture is a file that was named.
  const std::string code = job.one_prompt ? loop.failures().last_code() : "";
  if (code == "template_error" || code == "bad_image") {
    return ExitCode(StatusCode::kBadInput);
  }
  return loop.rows_failed() + job.output->failed_before() > 0 ? term::kExitSomeFailed : 0;
}

// An output that already has all answers needs no model.
Result<int> FinishWithoutRows(const batch::RunOptions& options, Job* job,
                              report::ReportFiles* reports) {
  MINISGL_RETURN_IF_ERROR(job->output->Begin());
  MINISGL_RETURN_IF_ERROR(job->output->Finish(true));
  report::RunSummary nothing;
  nothing.failures = batch::Failures();
  if (options.purpose == batch::RowPurpose::kScore) {
    nothing.scores = job->output->scores_before();
    SaySummary(options, nothing, /*one_prompt=*/false);
  }
  ReportFailures(options, batch::Failures(), *job->output);
  MINISGL_RETURN_IF_ERROR(reports->WriteSummary(nothing));
  MINISGL_ASSIGN_OR_RETURN(const int status, FinishFiles(options, job->reader.get(), job->asked,
                                                         *job->output, /*all_written=*/true));
  return job->output->failed_before() > 0 ? term::kExitSomeFailed : status;
}

// Adds advice to a failure of the output or the device, if there is any.
Status WithAdvice(const Status& status, const batch::RunOutput& output,
                  const batch::LineReader* reader) {
  if (status.ok() || !output.can_resume()) return status;
  const bool changed = reader != nullptr && reader->changed();
  return Status(status.code(), status.message() + (changed ? kChangedInputAdvice
                                                           : "; written answers are kept, and "
                                                             "--resume continues from there"));
}

// `totals`: null, except for scores.
std::unique_ptr<batch::AnswerWriter> MakeWriter(const batch::RunOptions& options, bool as_text,
                                                const Tokenizer& tokenizer,
                                                const VectorSetup& vectors, batch::RunOutput* files,
                                                batch::ScoreTotals* totals) {
  term::Output* const output = files->output();
  const bool as_done = options.unordered || options.stream;
  // The rows beside a table or an array are sorted at the end.
  const bool ordered =
      !as_done && options.finished_file().empty() && (options.ordered || output->is_stdout());
  if (options.of_texts()) return MakeVectorWriter(options, ordered, tokenizer, vectors, files);
  if (totals != nullptr) {
    return std::make_unique<batch::ScoreWriter>(output, &tokenizer, ordered, files->errors(),
                                                totals);
  }
  if (!as_text) {
    return std::make_unique<batch::JsonAnswerWriter>(output, &tokenizer, ordered, options.stream,
                                                     files->errors());
  }
  // Neither a text that goes on nor one of a given form is Markdown.
  const bool as_it_is = options.plain || options.raw || options.sampling.grammar.text != nullptr;
  return std::make_unique<batch::TextAnswerWriter>(
      output, term::ReasoningMode(options.hide_thinking, options.model.quiet),
      as_it_is ? term::TextStyle::kPlain : term::TextStyle::kMarkdown);
}

batch::RunLoopOptions LoopOptions(const batch::RunOptions& options, const Job& job, bool as_text) {
  batch::RunLoopOptions loop_options;
  loop_options.has_answers = !options.of_texts();
  loop_options.answers_ahead_max =
      batch::kSubmittedPerRunningRequest * options.engine.max_running_requests;
  loop_options.open_sessions_max = options.engine.max_running_requests;
  loop_options.tools = RowToolsOf(options.tools, job.tools);
  loop_options.rows_total = job.rows_total;
  loop_options.rows_before = job.output->rows_before();
  loop_options.failures_max = options.max_failures;
  loop_options.timeout_retries = options.retry_timeouts;
  loop_options.retried_answers_max = options.engine.max_running_requests;
  // Without a prefix cache, or with order of arrival, there is no choice of rows.
  if (options.engine.cache == CacheKind::kNaive || options.engine.policy == QueuePolicy::kFcfs) {
    loop_options.window_answers_max = 1;
  }
  loop_options.grace = std::chrono::milliseconds(static_cast<int64_t>(options.grace_s * 1000));
  // A program that writes rows into a pipe, or reads parts of answers, waits for a line for each
  // row. With a file, --resume knows the rows that are left.
  loop_options.writes_cancelled = options.stream || job.reader == nullptr || !job.reader->regular();
  // A streamed answer stops at the first signal: its text is already on the screen.
  if (as_text) loop_options.grace = std::chrono::milliseconds(0);
  return loop_options;
}

// The options of the engine: without a tower if it is known that no row has a picture. A file of
// packed weights has all of a model.
load::EngineOptions EngineFor(const batch::RunOptions& options, const Job& job) {
  load::EngineOptions engine = options.engine;
  const bool is_known = job.one_prompt || (job.reader != nullptr && job.reader->regular());
  const bool has_images = job.one_prompt ? !options.images.empty() : job.check.has_images;
  engine.no_images |= is_known && !has_images && engine.pack_cache.empty();
  return engine;
}

Result<int> RunRows(const batch::RunOptions& options, Job* job, report::ReportFiles* reports) {
  const bool as_text = job->one_prompt && !options.json;
  MINISGL_ASSIGN_OR_RETURN(TextModel text, load::LoadTextModel(options.model));
  MINISGL_RETURN_IF_ERROR(CheckText(options, text, job));
  if (as_text && !options.raw) MINISGL_RETURN_IF_ERROR(load::CheckHasTemplate(text));
  MINISGL_ASSIGN_OR_RETURN(
      const load::LoadedModel model,
      load::LoadModel(std::move(text), EngineFor(options, *job), reports->Sinks()));
  MINISGL_ASSIGN_OR_RETURN(const VectorSetup vectors, VectorsFor(options, model.text, model.facts));
  MINISGL_ASSIGN_OR_RETURN(const batch::EmbeddingOptions embedding,
                           EmbeddingFor(options, model.text, model.facts, vectors));
  const batch::PromptBuilder builder =
      MakePromptBuilder(options, model.text, model.facts, model.eos_ids, embedding, job->tools);
  const Tokenizer& tokenizer = *model.text.tokenizer;
  term::Output& output = *job->output->output();
  std::optional<batch::ScoreTotals> totals;
  if (options.purpose == batch::RowPurpose::kScore) totals = job->output->scores_before();
  std::unique_ptr<batch::AnswerWriter> writer = MakeWriter(
      options, as_text, tokenizer, vectors, job->output.get(), totals ? &*totals : nullptr);
  if (job->tool_turns != nullptr) {
    writer = std::make_unique<batch::ToolAnswerWriter>(std::move(writer), job->tool_turns.get(),
                                                       as_text);
  }
  WatchDefaults(options, model.facts.generation, job);
  term::InstallStopSignals();
  MINISGL_RETURN_IF_ERROR(job->output->Begin());
  term::Progress progress(ProgressOf(options, as_text, output), term::StderrIsTerminal());
  const auto begin = std::chrono::steady_clock::now();
  batch::RunLoop loop(model.runtime.get(), &builder, job->source.get(), writer.get(), &progress,
                      LoopOptions(options, *job, as_text));
  Status status = loop.Run();
  progress.Finish();
  EndProgress(loop, *model.runtime, &progress);
  if (job->output->pipe_closed()) return term::kExitPipeClosed;
  const bool was_empty =
      status.ok() && !loop.ended_early() && loop.rows_done() + loop.rows_failed() == 0;
  if (was_empty && !job->rows_total) Log(LogLevel::kWarning, batch::NoRows(*job->reader));
  // Also after a failure, so that rows already written are kept.
  const bool all_written = status.ok() && !loop.ended_early();
  const Status finished = job->output->Finish(all_written);
  if (status.ok()) status = finished;
  report::RunSummary summary = {.rows_done = loop.rows_done(), .rows_failed = loop.rows_failed()};
  summary.failures = loop.failures();
  summary.scores = totals;
  summary.of_texts = options.of_texts();
  summary.reasoning_tokens = loop.reasoning_tokens();
  summary.answers_in_thought = loop.answers_in_thought();
  if (options.purpose == batch::RowPurpose::kAnswer) {
    summary.finish_reasons = loop.finish_reasons();
  }
  summary.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  load::FinishPrefixCache(model.runtime.get(), loop.grace_left());
  summary.stats = model.runtime->Stats();
  summary.about = report::AboutRun(model, options.engine);
  summary.time_series =
      progress.EndHistory(summary.stats.scheduler, summary.rows_done + summary.rows_failed)
          .ToJson();
  SaySummary(options, summary, job->one_prompt);
  SayCutAnswers(options, model.facts.generation, loop.answers_cut_by_model());
  SayTimeouts(loop, options);
  if (!job->one_prompt) ReportFailures(options, loop.failures(), *job->output);
  MINISGL_RETURN_IF_ERROR(WithAdvice(status, *job->output, job->reader.get()));
  SayRowsLeft(loop.failures().cancelled(), *job->output);
  MINISGL_RETURN_IF_ERROR(reports->WriteSummary(summary));
  MINISGL_ASSIGN_OR_RETURN(const int of_tables, FinishFiles(options, job->reader.get(), job->asked,
                                                            *job->output, all_written));
  const int of_rows = ExitStatus(loop, *job);
  return of_rows == 0 ? of_tables : of_rows;
}

// Determines the shard and inserts its name into file names.
Status TakeShard(batch::RunOptions* options, Job* job) {
  if (options->shard.empty()) return Status();
  MINISGL_ASSIGN_OR_RETURN(job->shard, batch::ParseShard(options->shard, [](const char* name) {
                             return static_cast<const char*>(std::getenv(name));
                           }));
  for (std::string* path : {&options->output, &options->errors, &options->reports.summary,
                            &options->reports.trace, &options->reports.events}) {
    *path = batch::WithShardName(*path, job->shard);
  }
  return Status();
}

// Rows come from standard input if no file is given, except from a terminal.
Status TakeRowsFromPipe(batch::RunOptions* options) {
  if (options->file) return Status();
  if (isatty(STDIN_FILENO) != 0) {
    return UsageError("no rows; give --file F, or rows of JSON Lines on standard input");
  }
  options->file = "-";
  return Status();
}

// Draws the seed for --seed -1.
void TakeSeed(batch::RunOptions* options) {
  const uint64_t seed = batch::DrawSeedOfRun(options->output, options->resume);
  options->sampling.seed = seed;
  Log(LogLevel::kInfo, fmt::format("seed {} (--seed {} gives the same answers)", seed, seed));
}

Result<int> RunCommand(batch::RunOptions options, report::ReportFiles* reports) {
  if (options.purpose != batch::RowPurpose::kAnswer && !options.prompt) {
    MINISGL_RETURN_IF_ERROR(TakeRowsFromPipe(&options));
  }
  if (options.of_texts() && !options.rows.prompt && options.file &&
      batch::SeparatorOf(options.rows.format, *options.file)) {
    options.rows.prompt = "{{ text }}";
  }
  MINISGL_RETURN_IF_ERROR(batch::CheckRunOptions(options));
  MINISGL_RETURN_IF_ERROR(load::TakeGrammar(&options.sampling));
  if (options.system) {
    MINISGL_ASSIGN_OR_RETURN(options.system, batch::SystemText(*options.system));
  }
  if (options.prefill) {
    options.prefill = term::Utf8OrWarn(std::move(*options.prefill), "--prefill");
  }
  MINISGL_RETURN_IF_ERROR(batch::ReadTemplates(&options.rows));
  // Resolve the model before waiting for standard input: if it is missing, no prompt is needed.
  MINISGL_ASSIGN_OR_RETURN(const std::string model_dir, load::ResolveModelDir(options.model.model));
  Job job;
  MINISGL_RETURN_IF_ERROR(TakeShard(&options, &job));
  if (!options.check) {
    MINISGL_RETURN_IF_ERROR(batch::TakeTableOutput(&options));
    MINISGL_RETURN_IF_ERROR(batch::TakeArrayOutput(&options));
  }
  if (options.sampling.draws_seed && !options.check) TakeSeed(&options);
  MINISGL_RETURN_IF_ERROR(OpenInput(options, &job));
  {
    // Check before files are created: a run that is refused leaves none behind.
    batch::IdTable ids;
    MINISGL_RETURN_IF_ERROR(CheckFile(options, &ids, &job));
    if (options.check) return CheckOnly(options, &job);
    if (job.shard.count > 1) {
      const batch::RowRange range = batch::RowsOfShard(job.shard, job.check.rows);
      job.asked = batch::SelectShard(range.first, range.end, job.check);
    }
    MINISGL_RETURN_IF_ERROR(OpenOutputs(options, model_dir, ids, &job, reports));
  }
  if (options.resume && job.rows_total == 0) return FinishWithoutRows(options, &job, reports);
  return RunRows(options, &job, reports);
}

CommandBody MakeBody(std::shared_ptr<const batch::RunOptions> options) {
  return [options = std::move(options)] {
    term::InstallNotes({options->model.quiet, options->model.verbose});
    report::ReportFiles reports;
    const Result<int> result = RunCommand(*options, &reports);
    return reports.End(result.ok() ? *result : term::Fail(result.status()));
  };
}

}  // namespace

CommandBody AddRunCommand(load::OptionTable* app) {
  const auto options = std::make_shared<batch::RunOptions>();
  batch::AddRunOptions(app, options.get());
  options->image_options.fetch = FetchPicture;
  return MakeBody(options);
}

CommandBody AddEmbedCommand(load::OptionTable* app) {
  const auto options = std::make_shared<batch::RunOptions>();
  batch::AddEmbedOptions(app, options.get());
  return MakeBody(options);
}

CommandBody AddClassifyCommand(load::OptionTable* app) {
  const auto options = std::make_shared<batch::RunOptions>();
  batch::AddClassifyOptions(app, options.get());
  return MakeBody(options);
}

CommandBody AddRerankCommand(load::OptionTable* app) {
  const auto options = std::make_shared<batch::RunOptions>();
  batch::AddRerankOptions(app, options.get());
  return MakeBody(options);
}

CommandBody AddScoreCommand(load::OptionTable* app) {
  const auto options = std::make_shared<batch::RunOptions>();
  batch::AddScoreOptions(app, options.get());
  options->image_options.fetch = FetchPicture;
  return MakeBody(options);
}

}  // namespace minisgl::cli
