// minisgl plan: estimates what running a prompt file takes: tokens, shared prefixes, memory,
// concurrency, and, given the figures of an earlier run, time. Reads only headers of the model, no
// weights.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/grammar_texts.h"
#include "batch/image_reader.h"
#include "batch/row_conversation.h"
#include "batch/row_prompt.h"
#include "batch/row_source.h"
#include "batch/row_template.h"
#include "batch/run_options.h"
#include "batch/session_rows.h"
#include "cli/commands.h"
#include "cli/fetch_picture.h"
#include "cli/plan_text.h"
#include "cli/vector_setup.h"
#include "load/image_options.h"
#include "load/model_loader.h"
#include "load/sampling.h"
#include "minisgl/base/checked_math.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "report/run_estimate.h"
#include "report/run_figures.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/progress.h"
#include "term/wrapped_text.h"

namespace minisgl::cli {
namespace {

constexpr int kExitSomeBad = 1;
constexpr std::chrono::milliseconds kSayInterval(200);

constexpr load::Choice<std::optional<batch::RowPurpose>> kCommandChoices[] = {
    {"classify", batch::RowPurpose::kClassify},
    {"embed", batch::RowPurpose::kEmbed},
    {"rerank", batch::RowPurpose::kRerank},
    {"run", batch::RowPurpose::kAnswer}};

struct PlanOptions {
  load::ModelOptions model;
  load::EngineOptions engine;
  load::SamplingOptions sampling;
  std::string file;
  std::string from;  // "" means no earlier run
  bool json = false;
  bool lenient = false;
  bool raw = false;
  bool chat = false;
  batch::TemplateOptions rows;
  std::optional<std::string> system;
  std::optional<batch::RowPurpose> command;  // unset: what the model is for
  std::optional<std::string> query;          // of documents to rank
  load::ImageOptions images;
  load::PromptOverflow on_overflow = load::PromptOverflow::kError;
};

// Progress line on the terminal while a long file is read.
class ReadingProgress {
 public:
  explicit ReadingProgress(bool enabled) : enabled_(enabled && term::StderrIsTerminal()) {}
  ~ReadingProgress() {
    if (enabled_) term::ShowProgressLine("");
  }
  void Say(int64_t rows) {
    const auto now = std::chrono::steady_clock::now();
    if (!enabled_ || now < next_) return;
    next_ = now + kSayInterval;
    term::ShowProgressLine(fmt::format("reading prompts: {} rows", term::FormatCount(rows)));
  }

 private:
  const bool enabled_;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kSayInterval;
};

// What rows of --template are.
batch::RowTemplate::Use UseOf(const PlanOptions& options) {
  using Use = batch::RowTemplate::Use;
  switch (*options.command) {
    case batch::RowPurpose::kEmbed:
      return Use::kEmbedded;
    case batch::RowPurpose::kClassify:
      return Use::kClassified;
    case batch::RowPurpose::kRerank:
      return Use::kRanked;
    default:
      return options.raw ? Use::kPrompt : Use::kQuestion;
  }
}

// The command whose run is planned, and the texts of a table for it.
Status TakeCommand(const ModelConfig& config, PlanOptions* options) {
  if (!options->command) {
    options->command = config.is_encoder ? batch::RowPurpose::kEmbed : batch::RowPurpose::kAnswer;
  }
  if (options->query && *options->command != batch::RowPurpose::kRerank) {
    return UsageError("--query is what documents are ranked for; give --command rerank");
  }
  if (*options->command == batch::RowPurpose::kAnswer) return Status();
  if (options->raw || options->chat) {
    return UsageError("--{} is for prompts that are answered (--command run)",
                      options->raw ? "raw" : "chat");
  }
  if (!options->rows.prompt && batch::SeparatorOf(options->rows.format, options->file)) {
    options->rows.prompt = "{{ text }}";
  }
  return Status();
}

// A pooled prompt shares what stands before its end, if only its last state counts.
bool SharesPrefixes(const VectorSetup& vectors, const ModelConfig& config) {
  return !config.attends_both_ways && NeedsLastTokenOnly(vectors.pipeline.pooling);
}

Result<report::RunEstimate> ReadRows(const PlanOptions& options,
                                     const batch::PromptBuilder& builder, batch::LineReader* reader,
                                     PlanSubject* subject) {
  report::RunEstimator estimator(subject->facts.engine.plan.limits, subject->keeps_prefixes,
                                 subject->speed);
  batch::FileRowSource source(reader, options.lenient, /*check_ids=*/true, *options.command);
  std::unique_ptr<batch::RowTemplate> row_template;
  if (options.rows.prompt) {
    MINISGL_ASSIGN_OR_RETURN(
        row_template, batch::RowTemplate::Make(options.rows, options.system, UseOf(options)));
    source.UseTemplate(row_template.get());
    if (const auto separator = batch::SeparatorOf(options.rows.format, options.file)) {
      reader->ReadTable(*separator);
    }
    MINISGL_RETURN_IF_ERROR(batch::CheckNamesColumns(options.rows, reader));
  }
  ReadingProgress line(!options.model.quiet);
  batch::ParsedRow parsed;
  batch::GrammarCheck grammars;
  batch::UnaskedRows unasked(&builder);
  std::vector<Prompt> prompts;
  int64_t rows = 0;
  for (batch::RowSource::Outcome outcome = source.Next(batch::kRowWait_ms, &parsed);
       outcome != batch::RowSource::Outcome::kEnd;
       outcome = source.Next(batch::kRowWait_ms, &parsed)) {
    line.Say(rows);
    if (outcome == batch::RowSource::Outcome::kFailed) return source.status();
    if (outcome == batch::RowSource::Outcome::kNotYet) continue;
    ++rows;
    if (!parsed.error && batch::IsRawPrompt(parsed.row)) ++subject->raw_prompts;
    parsed.error = unasked.Build(&parsed, &prompts);
    if (!parsed.error) parsed.error = grammars.Check(parsed.row, prompts, nullptr);
    if (!parsed.error) {
      estimator.Add(prompts);
      continue;
    }
    estimator.AddBad();
    if (!subject->first_bad.empty()) continue;
    subject->first_bad = fmt::format("{}:{}: {}: {}", reader->name(), parsed.row.line,
                                     parsed.error->code, Visible(parsed.error->message, 1000));
  }
  subject->answers_missing = unasked.any_missing();
  return estimator.Finish();
}

Result<int> Plan(PlanOptions options) {
  MINISGL_RETURN_IF_ERROR(load::CheckSamplingOptions(options.sampling));
  MINISGL_RETURN_IF_ERROR(load::TakeGrammar(&options.sampling));
  MINISGL_RETURN_IF_ERROR(load::CheckDeviceUsable(options.engine.device));
  if (options.raw && options.chat) return UsageError("--raw and --chat exclude each other");
  if (options.system && !options.chat && !options.rows.prompt) {
    return UsageError("--system requires --chat: it goes before the prompts of rows");
  }
  MINISGL_RETURN_IF_ERROR(
      batch::CheckTemplateOptions(options.rows, options.raw, options.system.has_value()));
  MINISGL_RETURN_IF_ERROR(batch::ReadTemplates(&options.rows));
  MINISGL_RETURN_IF_ERROR(load::ResolveModelDir(options.model.model).status());
  MINISGL_ASSIGN_OR_RETURN(batch::LineReader reader, batch::LineReader::Open(options.file));
  PlanSubject subject;
  subject.file = reader.name();
  subject.keeps_prefixes = options.engine.cache == CacheKind::kRadix;
  if (!options.from.empty()) {
    MINISGL_ASSIGN_OR_RETURN(const Json json, report::ReadJsonFile(options.from));
    MINISGL_ASSIGN_OR_RETURN(subject.speed,
                             report::ParseRunSpeed(json, Visible(options.from, 400)));
  }
  MINISGL_ASSIGN_OR_RETURN(const TextModel text, load::LoadTextModel(options.model));
  MINISGL_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(text.dir));
  MINISGL_RETURN_IF_ERROR(TakeCommand(config, &options));
  subject.of_texts = *options.command != batch::RowPurpose::kAnswer;
  if (!subject.of_texts) MINISGL_RETURN_IF_ERROR(load::CheckGivesAnswers(text));
  if (options.chat) MINISGL_RETURN_IF_ERROR(load::CheckHasTemplate(text));
  MINISGL_RETURN_IF_ERROR(load::CheckImageOptions(options.images, text));
  MINISGL_ASSIGN_OR_RETURN(subject.facts, load::LoadModelFacts(text, options.engine));
  batch::PromptBuilderOptions builder_options;
  builder_options.defaults =
      load::ResolveSamplingDefaults(options.sampling, subject.facts.generation);
  builder_options.chat = options.chat;
  if (options.system) {
    MINISGL_ASSIGN_OR_RETURN(options.system, batch::SystemText(*options.system));
    builder_options.system = options.system;
  }
  batch::RunOptions run;
  run.purpose = *options.command;
  run.scoring.query = options.query;
  MINISGL_ASSIGN_OR_RETURN(const VectorSetup vectors, VectorsFor(run, text, subject.facts));
  if (subject.of_texts) {
    MINISGL_ASSIGN_OR_RETURN(builder_options.embedding,
                             EmbeddingFor(run, text, subject.facts, vectors));
    subject.keeps_prefixes = subject.keeps_prefixes && SharesPrefixes(vectors, config);
  }
  builder_options.images = options.images;
  builder_options.image_folder = batch::FolderOfRows(options.file);
  builder_options.counts_only = true;
  builder_options.truncate_left = options.on_overflow == load::PromptOverflow::kTruncateLeft;
  const batch::PromptBuilder builder(&text, subject.facts.engine.plan.limits,
                                     std::move(builder_options));
  MINISGL_ASSIGN_OR_RETURN(const report::RunEstimate estimate,
                           ReadRows(options, builder, &reader, &subject));
  MINISGL_ASSIGN_OR_RETURN(const auto output, term::Output::Open("", false, -1));
  const int exit_status = output->ExitAfter(
      output->Write(options.json ? PlanJson(estimate, subject).Dump(2) + "\n"
                                 : term::TableFor(*output, PlanText(estimate, subject))));
  if (exit_status != 0) return exit_status;
  if (estimate.rows == 0) Log(LogLevel::kWarning, batch::NoRows(reader));
  if (subject.raw_prompts > 0 && text.chat_template != nullptr && !options.chat && !options.raw) {
    Log(LogLevel::kWarning, batch::RawPromptsWarning(subject.file, subject.raw_prompts));
  }
  if (estimate.bad_rows == 0) return 0;
  Log(LogLevel::kWarning,
      fmt::format("{}{}", subject.first_bad,
                  estimate.bad_rows == 1 ? "" : "; run --check names bad rows"));
  return kExitSomeBad;
}

}  // namespace

CommandBody AddPlanCommand(load::OptionTable* app) {
  const auto options = std::make_shared<PlanOptions>();
  const std::string group = "Input and output";
  app->Add("-f,--file,file", &options->file,
           "Rows to plan for, as run reads them; - is standard input")
      ->Required()
      ->TypeName("FILE")
      ->Group(group);
  app->Add("--from", &options->from,
           "Estimate the time from FILE: the summary of a run, or the JSON of a benchmark")
      ->TypeName("FILE")
      ->Group(group);
  app->AddFlag("--json", &options->json, "Print the plan as one JSON object")->Group(group);
  app->AddFlag("--lenient", &options->lenient, "Ignore unknown fields of a row")
      ->Group(group)
      ->Advanced();
  app->AddFlag("--raw", &options->raw,
               "Send prompts of rows as they are, without the chat template")
      ->Group(group)
      ->Advanced();
  batch::AddTemplateOptions(app, &options->rows, group);
  app->AddFlag("--chat", &options->chat, "Put prompts of rows through the chat template")
      ->Group(group);
  app->Add("--system", &options->system, "System message for the prompts of rows, with --chat")
      ->TypeName("TEXT|@FILE")
      ->Group(group);
  app->AddChoice("--command", &options->command, kCommandChoices,
                 "Plan for this command: run, embed, classify or rerank (default run; of encoders "
                 "embed)")
      ->TypeName("NAME")
      ->Group(group);
  app->Add("--query", &options->query, "What documents are ranked for, if a row has none")
      ->TypeName("TEXT")
      ->Group(group)
      ->Advanced();
  app->AddChoice("--on-overflow", &options->on_overflow, load::kPromptOverflowChoices,
                 "If a prompt is too long: error or truncate-left (default error)")
      ->TypeName("WHAT")
      ->Group(group)
      ->Advanced();
  load::AddSamplingOptions(app, &options->sampling);
  load::AddImageOptions(app, &options->images, /*reads_rows=*/true);
  options->images.fetch = FetchPicture;
  load::AddModelOptions(app, &options->model);
  load::AddEngineOptions(app, &options->engine);
  return [options] {
    term::InstallNotes({options->model.quiet, options->model.verbose});
    const Result<int> result = Plan(*options);
    return result.ok() ? *result : term::Fail(result.status());
  };
}

}  // namespace minisgl::cli
