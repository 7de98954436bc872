#include "batch/run_options.h"

#include <cctype>

#include "load/model_loader.h"
#include "load/prefix_cache.h"
#include "load/sampling.h"
#include "minisgl/base/utf8.h"
#include "minisgl/sampling_fields.h"

namespace minisgl::batch {
namespace {

// One day. No practical grace period is longer.
constexpr double kGraceMax_s = 86400;

constexpr load::Choice<term::ProgressKind> kProgressChoices[] = {
    {"auto", term::ProgressKind::kAuto},
    {"json", term::ProgressKind::kJson},
    {"none", term::ProgressKind::kNone}};

constexpr double kTimeoutMax_s = 1e9;  // as in rows
constexpr int64_t kRetriesMax = 1000;

constexpr int64_t kFailuresMax = int64_t{1} << 53;
constexpr int64_t kDimensionsMax = 65536;  // as in rows

constexpr load::Choice<bool> kEncodingChoices[] = {{"base64", true}, {"float", false}};
constexpr load::Choice<bool> kArrayTypeChoices[] = {{"f16", true}, {"f32", false}};

// The shards of --shard auto must not write the same file.
Status CheckShardNames(const RunOptions& options) {
  if (!options.shard.starts_with("auto")) return Status();
  const struct {
    const std::string& file;
    const char* option;
  } written[] = {{options.output, "-o"}, {options.errors, "--errors"}};
  for (const auto& [file, option] : written) {
    if (file.empty() || file == "-" || file.find("%s") != std::string::npos) continue;
    return UsageError(
        "--shard auto writes one file for each shard; put %s, which becomes its name, into {} "
        "(found {})",
        option, Visible(file, 200));
  }
  return Status();
}

// Refuses names of files whose ending is that of a format in which rows are not written. They are
// not compressed, since each is on disk soon after it ends.
Status CheckOutputNames(const RunOptions& options) {
  const struct {
    const std::string& file;
    const char* option;
  } written[] = {{options.output, "-o"}, {options.errors, "--errors"}};
  for (const auto& [file, option] : written) {
    const std::string name = Visible(file, 200);
    std::string lowered = file;
    for (char& byte : lowered) {
      byte = static_cast<char>(std::tolower(static_cast<unsigned char>(byte)));
    }
    const bool is_table = SeparatorOf(InputFormat::kAuto, file).has_value();
    if (is_table && options.rows.prompt) continue;  // TakeTableOutput
    for (const char* ending : {".gz", ".zst", ".bz2", ".xz", ".zip"}) {
      if (!lowered.ends_with(ending)) continue;
      return UsageError(
          "{} {}: rows are not written compressed; leave out {} and compress the finished file, or "
          "leave out {} and pipe standard output to a program",
          option, name, ending, option);
    }
    if (!is_table || !options.file) continue;
    return UsageError(
        "{} {}: without --template rows are written as JSON Lines, which is no table; give "
        "--template TEXT, or a name that ends in .jsonl",
        option, name);
  }
  return Status();
}

Status CheckVectorOptions(const VectorOptions& options) {
  const int named = options.is_query + options.is_document + (options.prompt_name.empty() ? 0 : 1);
  if (named <= 1) return Status();
  return UsageError("--query, --document and --prompt-name exclude each other; give one");
}

Status CheckResumeOptions(const RunOptions& options) {
  if (options.retry_failed && !options.resume) {
    return UsageError("--retry-failed requires --resume");
  }
  if (options.row_metrics && !options.file && !options.json) {
    return UsageError("--row-metrics applies to rows; give --file or --json");
  }
  if (options.resume && (!options.file || options.output.empty())) {
    return UsageError(
        "--resume continues an output file; give --file and -o FILE, not standard output");
  }
  if (options.max_failures && !options.file) {
    return UsageError("--max-failures applies to rows; give it with --file");
  }
  if (options.progress == term::ProgressKind::kJson && !options.file) {
    return UsageError("--progress json applies to rows; give it with --file");
  }
  if (options.retry_timeouts > 0 && !options.file) {
    return UsageError("--retry-timeouts applies to rows; give it with --file");
  }
  if (options.retry_timeouts > 0 && options.stream) {
    return UsageError(
        "--retry-timeouts and --stream exclude each other; parts of an answer that took too long "
        "are written already");
  }
  if (!options.shard.empty() && !options.file) {
    return UsageError("--shard applies to rows; give it with --file");
  }
  if (!options.errors.empty() && !options.file) {
    return UsageError("--errors takes error rows; give it with --file");
  }
  return CheckShardNames(options);
}

Status CheckStreamOptions(const RunOptions& options) {
  if (options.ordered && (options.unordered || options.stream)) {
    return UsageError("--ordered and {} exclude each other; answers come as they are done",
                      options.stream ? "--stream" : "--unordered");
  }
  if (!options.stream) return Status();
  if (!options.file) {
    return UsageError("--stream applies to rows; the answer to one prompt is streamed anyway");
  }
  if (!options.output.empty()) {
    return UsageError(
        "--stream writes parts of answers to standard output, not to a file of rows; leave out -o");
  }
  return Status();
}

// Shared by the commands that read rows. `verb` is what they do with a row: "answer", "score".

void AddStrictness(load::OptionTable* app, RunOptions* options, const char* before) {
  const std::string input = "Input";
  app->AddFlag("--strict", &options->strict,
               fmt::format("Exit 65 before {} if any row is invalid", before))
      ->Group(input)
      ->Advanced();
  app->AddFlag("--lenient", &options->lenient, "Warn about unknown fields of a row and go on")
      ->Group(input)
      ->Advanced();
}

void AddShard(load::OptionTable* app, RunOptions* options, const char* verb) {
  app->Add("--shard", &options->shard,
           fmt::format("{} part I of N of the rows; auto: as set by Slurm, MPI or (auto/N) "
                       "Kubernetes",
                       verb))
      ->TypeName("I/N|auto")
      ->Group("Input")
      ->Advanced();
}

// --force, --resume and --retry-failed. `resume`: what --resume does.
void AddContinuing(load::OptionTable* app, RunOptions* options, const std::string& resume,
                   const char* verb) {
  const std::string output = "Output";
  app->AddFlag(
         "--force", &options->force,
         "Replace output and report files that are not empty; with --resume, continue even if "
         "the run was started with other options")
      ->Group(output);
  app->AddFlag("--resume", &options->resume, resume)->Group(output);
  app->AddFlag("--retry-failed", &options->retry_failed,
               fmt::format("With --resume, {} failed rows again", verb))
      ->Group(output)
      ->Advanced();
}

// When an answer takes too long, and when a run ends early.
void AddEnds(load::OptionTable* app, RunOptions* options) {
  const std::string output = "Output";
  app->Add("--timeout", &options->timeout_s,
           "Seconds an answer may take from its submission, if its row has no timeout_s")
      ->Check(load::NumberIn(0, kTimeoutMax_s, /*open=*/true))
      ->TypeName("S")
      ->Group(output)
      ->Advanced();
  app->Add("--retry-timeouts", &options->retry_timeouts,
           "Ask rows that took too long up to N times again, after the others (default 0)")
      ->Check(load::IntegerIn(0, kRetriesMax))
      ->TypeName("N")
      ->Group(output)
      ->Advanced();
  app->Add("--grace", &options->grace_s,
           "Seconds that running requests have to finish after a signal (default 5)")
      ->Check(load::NumberIn(0, kGraceMax_s))
      ->TypeName("S")
      ->Group(output)
      ->Advanced();
  app->Add("--max-failures", &options->max_failures,
           "End the run after N failed rows, as a signal does, with exit status 1 (default: go on)")
      ->Check(load::IntegerIn(1, kFailuresMax))
      ->TypeName("N")
      ->Group(output)
      ->Advanced();
}

void AddProgress(load::OptionTable* app, RunOptions* options) {
  app->AddChoice("--progress", &options->progress, kProgressChoices,
                 "Progress on standard error: auto, none, or json, an object every second")
      ->TypeName("KIND")
      ->Group("Reports")
      ->Advanced();
}

void AddErrors(load::OptionTable* app, RunOptions* options) {
  app->Add("--errors", &options->errors, "Write error rows to FILE, not to the output")
      ->Check(load::CheckNotEmpty)
      ->TypeName("FILE")
      ->Group("Output");
}

void AddOrdered(load::OptionTable* app, RunOptions* options, const char* what) {
  app->AddFlag("--ordered", &options->ordered,
               fmt::format("Write {} in input order (always so on standard output)", what))
      ->Group("Output")
      ->Advanced();
}

void AddInputOptions(load::OptionTable* app, RunOptions* options) {
  const std::string input = "Input";
  app->Add("-f,--file", &options->file,
           "Read rows of JSON Lines from FILE, or with --template of CSV or TSV; - is standard "
           "input")
      ->TypeName("FILE")
      ->Group(input);
  app->Add("-p,--prompt", &options->prompt,
           "Answer TEXT, after standard input if that is no terminal")
      ->TypeName("TEXT|@FILE")
      ->Group(input);
  load::AddImageFiles(app, &options->images,
                      "Show the picture in FILE before the text of -p (repeatable)")
      ->Group(input);
  app->Add("--system", &options->system,
           "System message for -p, or with --chat for the prompts of rows")
      ->TypeName("TEXT|@FILE")
      ->Group(input);
  app->Add("--prefill", &options->prefill,
           "Begin every answer to messages with TEXT, which is not written")
      ->Check(load::CheckNotEmpty)
      ->TypeName("TEXT")
      ->Group(input)
      ->Advanced();
  AddTemplateOptions(app, &options->rows, input);
  app->AddFlag("--chat", &options->chat, "Put prompts of rows through the chat template, as -p is")
      ->Group(input);
  app->AddFlag("--raw", &options->raw, "Send prompts as they are, without the chat template")
      ->Group(input)
      ->Advanced();
  app->AddFlag("--no-stdin", &options->no_stdin, "Do not read standard input beside -p")
      ->Group(input)
      ->Advanced();
  app->AddFlag("--check", &options->check, "Check the input and run nothing")->Group(input);
  AddStrictness(app, options, "running");
  app->AddChoice("--on-overflow", &options->on_overflow, load::kPromptOverflowChoices,
                 "If a prompt is too long: error or truncate-left (default error)")
      ->TypeName("WHAT")
      ->Group(input)
      ->Advanced();
  AddShard(app, options, "Answer");
}

void AddOutputOptions(load::OptionTable* app, RunOptions* options) {
  const std::string output = "Output";
  load::AddOutputOption(app, &options->output, "Write answers to")->Group(output);
  AddErrors(app, options);
  AddContinuing(app, options, "Continue an output file: answer the rows that it does not answer",
                "answer");
  app->AddFlag("--row-metrics", &options->row_metrics,
               "Write how long each answer took into its row")
      ->Group(output)
      ->Advanced();
  AddEnds(app, options);
  app->AddFlag("--hide-thinking", &options->hide_thinking,
               "Leave the model's reasoning out of what is shown and written")
      ->Group(output)
      ->Advanced();
  load::AddPlainOption(app, &options->plain)->Group(output);
  app->AddFlag("--json", &options->json, "Print the answer to -p as a JSON row")->Group(output);
  AddOrdered(app, options, "answers");
  app->AddFlag("--unordered", &options->unordered,
               "Write each answer when it is done, on standard output too")
      ->Group(output)
      ->Advanced();
  app->AddFlag("--stream", &options->stream,
               "Write parts of answers as they come, in lines {\"id\", \"delta\"} before the row")
      ->Group(output)
      ->Advanced();
}

void AddScoreInputOptions(load::OptionTable* app, RunOptions* options) {
  const std::string input = "Input";
  app->Add("-f,--file", &options->file,
           "Read rows of JSON Lines from FILE, or with --template of CSV or TSV; - is standard "
           "input (the default)")
      ->TypeName("FILE")
      ->Group(input);
  AddScoreTemplateOptions(app, &options->rows, input);
  app->AddFlag("--check", &options->check, "Check the input and score nothing")->Group(input);
  AddStrictness(app, options, "scoring");
  AddShard(app, options, "Score");
}

void AddScoreOutputOptions(load::OptionTable* app, RunOptions* options) {
  const std::string output = "Output";
  load::AddOutputOption(app, &options->output, "Write scores to")->Group(output);
  AddErrors(app, options);
  app->Add("--logprobs", &options->sampling.num_logprobs,
           "Write log-probabilities of each token and of the N likeliest")
      ->Check(load::InRange(kNumLogprobs.range))
      ->TypeName("N")
      ->Group(output);
  AddContinuing(app, options, "Continue an output file: score the rows that it does not hold",
                "score");
  AddEnds(app, options);
  AddOrdered(app, options, "scores");
}

// `what`: is made of a text; `verb`: what the command does with it.
void AddTextsInputOptions(load::OptionTable* app, RunOptions* options, const std::string& what,
                          const char* verb) {
  const std::string input = "Input";
  app->Add("-f,--file", &options->file,
           "Read rows of JSON Lines from FILE, or CSV or TSV; - is standard input (the default)")
      ->TypeName("FILE")
      ->Group(input);
  app->Add("-p,--prompt", &options->prompt, fmt::format("Print {} of TEXT", what))
      ->TypeName("TEXT")
      ->Group(input);
  AddTextsTemplateOptions(app, &options->rows, input, verb);
  app->AddFlag("--check", &options->check, "Check the input and run nothing")->Group(input);
  AddStrictness(app, options, "anything runs");
  AddShard(app, options, verb);
}

void AddVectorOptions(load::OptionTable* app, VectorOptions* options) {
  const std::string group = "Vectors";
  app->AddFlag("--query", &options->is_query, "Put the model's prompt for queries before each text")
      ->Group(group);
  app->AddFlag("--document", &options->is_document,
               "Put the model's prompt for documents, if it has one, before each text")
      ->Group(group);
  app->Add("--prompt-name", &options->prompt_name,
           "Put the model's prompt NAME before each text (info lists them)")
      ->Check(load::CheckNotEmpty)
      ->TypeName("NAME")
      ->Group(group);
  app->Add("--dimensions", &options->dimensions, "Keep the first N elements of each vector")
      ->Check(load::IntegerIn(1, kDimensionsMax))
      ->TypeName("N")
      ->Group(group);
  app->AddFlag("--normalize", &options->normalizes,
               "Divide vectors by their length, also if the model does not")
      ->Group(group);
  app->AddChoice("--encoding-format", &options->in_base64, kEncodingChoices,
                 "How vectors are written: float, a list of numbers, or base64 (default float)")
      ->TypeName("KIND")
      ->Group(group);
  app->AddChoice("--npy-dtype", &options->in_f16, kArrayTypeChoices,
                 "Numbers of an array, of -o FILE.npy: f32 or f16 (default f32)")
      ->TypeName("KIND")
      ->Group(group);
}

// `what`: is written of each text; `verb`: what the command does with a row.
void AddTextsOutputOptions(load::OptionTable* app, RunOptions* options, const char* what,
                           const char* verb) {
  const std::string output = "Output";
  load::AddOutputOption(app, &options->output, fmt::format("Write {} to", what))->Group(output);
  AddErrors(app, options);
  AddContinuing(app, options,
                fmt::format("Continue an output file: {} the rows that it does not hold", verb),
                verb);
  AddEnds(app, options);
  AddOrdered(app, options, what);
}

void AddRawScores(load::OptionTable* app, ScoringOptions* options) {
  app->AddFlag("--raw-scores", &options->raw,
               "Write the numbers of the model's head, not probabilities")
      ->Group("Scores");
}

// What commands without answers have in common.
void AddWithoutAnswers(load::OptionTable* app, RunOptions* options) {
  load::AddReportOptions(app, &options->reports);
  AddProgress(app, options);
  load::AddModelOptions(app, &options->model);
  load::AddEngineOptions(app, &options->engine);
}

void BeginTexts(RowPurpose purpose, RunOptions* options) {
  options->purpose = purpose;
  options->json = true;
  options->engine.device = *load::ParseDevice("cpu");  // the one that makes vectors
  options->sampling.sampling_defaults = load::SamplingSource::kNeutral;
}

Status CheckToolRun(const RunOptions& options) {
  if (!options.tools.any()) return Status();
  if (options.raw) {
    return UsageError("--raw and --tool exclude each other; a raw prompt has no tools");
  }
  if (options.check && !options.file) {
    return UsageError("--check and --tool exclude each other; --check runs nothing");
  }
  if (options.tools.runs_unasked || options.check) return Status();
  return UsageError("--tool: calls are not confirmed here; --yes-tools lets them run unasked");
}

}  // namespace

Status CheckReadsOnce(const batch::RunOptions& options, const std::string& name) {
  const struct {
    bool given;
    const char* name;
  } reads_twice[] = {{options.strict, "--strict"},
                     {options.resume, "--resume"},
                     {!options.shard.empty(), "--shard"},
                     {!options.table.empty(), "a table as -o"},
                     {!options.errors_table.empty(), "a table as --errors"}};
  for (const auto& option : reads_twice) {
    if (!option.given) continue;
    return UsageError("{} needs a regular file, which can be read twice (found {})", option.name,
                      name);
  }
  return Status();
}

void AddEmbedOptions(load::OptionTable* app, RunOptions* options) {
  BeginTexts(RowPurpose::kEmbed, options);
  AddTextsInputOptions(app, options, "the vector", "Embed");
  AddVectorOptions(app, &options->vectors);
  AddTextsOutputOptions(app, options, "vectors", "embed");
  AddWithoutAnswers(app, options);
}

void AddClassifyOptions(load::OptionTable* app, RunOptions* options) {
  BeginTexts(RowPurpose::kClassify, options);
  AddTextsInputOptions(app, options, "the label and the scores", "Classify");
  AddRawScores(app, &options->scoring);
  AddTextsOutputOptions(app, options, "labels", "classify");
  AddWithoutAnswers(app, options);
}

void AddRerankOptions(load::OptionTable* app, RunOptions* options) {
  BeginTexts(RowPurpose::kRerank, options);
  AddTextsInputOptions(app, options, "the score", "Rank");
  app->Add("--query", &options->scoring.query, "What documents are ranked for, if a row has none")
      ->TypeName("TEXT")
      ->Group("Scores");
  app->Add("--instruction", &options->scoring.instruction,
           "Tell the model how to judge (default: the instruction of its model card)")
      ->TypeName("TEXT")
      ->Group("Scores");
  AddRawScores(app, &options->scoring);
  AddTextsOutputOptions(app, options, "scores", "rank");
  AddWithoutAnswers(app, options);
}

void AddScoreOptions(load::OptionTable* app, RunOptions* options) {
  options->purpose = RowPurpose::kScore;
  // Sampling has no part in a score.
  options->sampling.sampling_defaults = load::SamplingSource::kNeutral;
  AddScoreInputOptions(app, options);
  AddScoreOutputOptions(app, options);
  load::AddReportOptions(app, &options->reports);
  AddProgress(app, options);
  load::AddImageOptions(app, &options->image_options, /*reads_rows=*/true);
  load::AddModelOptions(app, &options->model);
  load::AddEngineOptions(app, &options->engine);
}

void AddRunOptions(load::OptionTable* app, RunOptions* options) {
  AddInputOptions(app, options);
  AddOutputOptions(app, options);
  load::AddToolOptions(app, &options->tools);
  load::AddToolJobs(app, &options->tools);
  load::AddReportOptions(app, &options->reports);
  AddProgress(app, options);
  load::AddSamplingOptions(app, &options->sampling);
  load::AddImageOptions(app, &options->image_options, /*reads_rows=*/true);
  load::AddModelOptions(app, &options->model);
  load::AddEngineOptions(app, &options->engine);
  load::AddPrefixCacheOptions(app, &options->engine.prefix_cache);
}

Status CheckRunOptions(const RunOptions& options) {
  MINISGL_RETURN_IF_ERROR(CheckToolRun(options));
  MINISGL_RETURN_IF_ERROR(CheckVectorOptions(options.vectors));
  if (options.file) {
    if (options.prompt) {
      return UsageError("--file and --prompt exclude each other; each row has its own prompt");
    }
    if (!options.images.empty()) {
      return UsageError(
          "--file and --image exclude each other; rows name their pictures in their messages, or "
          "with --template in a column (--image-column)");
    }
    if (options.raw && options.chat) {
      return UsageError("--raw and --chat exclude each other; give one");
    }
    if (options.system && !options.chat && !options.rows.prompt) {
      return UsageError(
          "--file and --system exclude each other; each row has its own prompt (--chat puts "
          "prompts through the chat template, and allows --system)");
    }
  } else {
    const struct {
      bool given;
      const char* name;
    } for_rows[] = {{options.strict, "--strict"},
                    {options.lenient, "--lenient"},
                    {options.chat, "--chat"},
                    {options.rows.prompt.has_value(), "--template"}};
    for (const auto& option : for_rows) {
      if (option.given) return UsageError("{} applies to rows; give it with --file", option.name);
    }
    if (options.no_stdin && !options.prompt) {
      return UsageError("no prompt: --no-stdin skips standard input; give -p TEXT or --file F");
    }
  }
  if (options.raw && options.system) {
    return UsageError("--raw and --system exclude each other; a raw prompt has no messages");
  }
  if (options.raw && options.prefill) {
    return UsageError("--raw and --prefill exclude each other; a raw prompt has no messages");
  }
  MINISGL_RETURN_IF_ERROR(
      CheckTemplateOptions(options.rows, options.raw, options.system.has_value()));
  if (options.sampling.num_logprobs >= 0 && !options.file && !options.json) {
    Log(LogLevel::kWarning, "--logprobs is written in rows: --json prints the answer as one");
  }
  MINISGL_RETURN_IF_ERROR(CheckOutputNames(options));
  MINISGL_RETURN_IF_ERROR(CheckResumeOptions(options));
  MINISGL_RETURN_IF_ERROR(CheckStreamOptions(options));
  MINISGL_RETURN_IF_ERROR(load::CheckSamplingOptions(options.sampling));
  return load::CheckDeviceUsable(options.engine.device);
}

}  // namespace minisgl::batch
