// minisgl toolcalls: reads the calls of tools in answers of models.
//
// Loads no model. Of a model that names the dialect, the tokenizer and the template are read.
#include <fmt/core.h>

#include <memory>
#include <optional>
#include <string>

#include "batch/row.h"
#include "batch/row_source.h"
#include "batch/run_input.h"
#include "cli/commands.h"
#include "cli/tool_call_rows.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/utf8.h"
#include "minisgl/text/tool_calls.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/output.h"

namespace minisgl::cli {
namespace {

struct ToolCallOptions {
  std::optional<std::string> file;
  std::string dialect;
  load::ModelOptions model;
  std::string output;
  bool force = false;
};

// The dialect of rows that name none; kNone if no option names it.
Result<ToolDialect> DialectOfOptions(const ToolCallOptions& options) {
  if (!options.dialect.empty()) {
    const std::optional<ToolDialect> dialect = FindToolDialect(options.dialect);
    if (dialect) return *dialect;
    return UsageError("--tool-dialect must be one of {} (found \"{}\")", ListToolDialects(),
                      Visible(options.dialect));
  }
  if (options.model.model.empty()) return ToolDialect::kNone;
  MINISGL_ASSIGN_OR_RETURN(const TextModel text, load::LoadTextModel(options.model));
  const ToolDialect dialect = text.chat_template == nullptr
                                  ? ToolDialect::kNone
                                  : DetectToolDialect(*text.chat_template, *text.tokenizer);
  if (dialect != ToolDialect::kNone) return dialect;
  return BadInput(
      "{}: its chat template tells of no calls; give --tool-dialect, or \"dialect\" in "
      "each row without -m",
      Visible(text.dir, 400));
}

// Reads the calls of all rows; returns the exit status.
int ReadRows(batch::LineReader* reader, ToolDialect dialect, term::Output* output) {
  using Outcome = batch::LineReader::Outcome;
  bool some_failed = false;
  Status written;
  Outcome outcome = Outcome::kNotYet;
  std::string line;
  while (written.ok()) {
    outcome = reader->Next(batch::kRowWait_ms, &line);
    if (outcome == Outcome::kEnd || outcome == Outcome::kFailed) break;
    if (outcome == Outcome::kNotYet) continue;
    ToolCallRow row;
    std::optional<batch::RowError> error;
    if (outcome == Outcome::kTooLong) {
      error = batch::InvalidRow(
          fmt::format("the line has more than {} bytes; give shorter ones", batch::kRowBytesMax));
    } else {
      error = ParseToolCallRow(line, dialect, &row);
    }
    some_failed = some_failed || error;
    written = output->Write(error ? FormatToolCallError(row, reader->line_number(), *error)
                                  : AnswerToolCallRow(row));
  }
  if (output->pipe_closed()) return term::kExitPipeClosed;
  const Status finished = output->Finish();
  if (outcome == Outcome::kFailed) return term::Fail(reader->status());
  if (!written.ok() || !finished.ok()) return term::Fail(written.ok() ? finished : written);
  return some_failed ? term::kExitSomeFailed : 0;
}

int ReadToolCallFile(const ToolCallOptions& options) {
  if (!options.file) {
    return term::Fail(UsageError("no input; give --file F, or - for standard input"));
  }
  const Result<ToolDialect> dialect = DialectOfOptions(options);
  if (!dialect.ok()) return term::Fail(dialect.status());
  auto reader = batch::LineReader::Open(*options.file);
  if (!reader.ok()) return term::Fail(reader.status());
  auto output = term::Output::Open(options.output, options.force, reader->fd());
  if (!output.ok()) return term::Fail(output.status());
  if (const Status status = (*output)->Begin(); !status.ok()) return term::Fail(status);
  return ReadRows(&*reader, *dialect, (*output).get());
}

}  // namespace

CommandBody AddToolCallsCommand(load::OptionTable* app) {
  const auto options = std::make_shared<ToolCallOptions>();
  const std::string group = "Input and output";
  app->Add("-f,--file", &options->file,
           "Read calls of rows of JSON Lines from FILE; - is standard input")
      ->TypeName("FILE")
      ->Group(group);
  app->Add("--tool-dialect", &options->dialect, "The dialect of rows that name none")
      ->TypeName("NAME")
      ->Group(group);
  app->Add("-m,--model", &options->model.model,
           "Rows that name no dialect have that of this model's template")
      ->TypeName("DIR")
      ->Group(group);
  app->Add("--chat-template", &options->model.chat_template,
           "With -m: use this template in place of the model's")
      ->TypeName("FILE")
      ->Group(group);
  load::AddOutputOption(app, &options->output, "Write to")->Group(group);
  app->AddFlag("--force", &options->force, "Replace an output file that is not empty")
      ->Group(group);
  return [options] {
    term::InstallNotes({});
    return ReadToolCallFile(*options);
  };
}

}  // namespace minisgl::cli
