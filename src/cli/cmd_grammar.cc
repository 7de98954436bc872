// minisgl grammar: judges texts by schemas, regular expressions, choices and grammars.
//
// Loads no model, unless masks are to be timed over its vocabulary; then its tokenizer alone.
#include <fmt/core.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "batch/row.h"
#include "batch/row_source.h"
#include "batch/run_input.h"
#include "cli/commands.h"
#include "cli/grammar_rows.h"
#include "load/grammar_options.h"
#include "load/model_loader.h"
#include "load/options.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/matcher.h"
#include "term/exit_status.h"
#include "term/messages.h"
#include "term/output.h"
#include "term/read_input.h"

namespace minisgl::cli {
namespace {

struct GrammarOptions {
  std::optional<std::string> file;
  load::GrammarOptions grammar;
  std::string model;
  std::string output;
  bool force = false;
};

// The grammar that the options give; kUsage unless it is exactly one.
Result<load::AnswerGrammar> OneGrammar(const load::GrammarOptions& options) {
  if (options.num_kinds() != 1) {
    return UsageError(
        "{}; give --file F, or one of --json-schema, --regex, --choice and --grammar with a text "
        "on standard input",
        options.num_kinds() == 0 ? "nothing to judge" : "several grammars");
  }
  return load::ReadGrammar(options);
}

std::string ByteNames(const ByteSet& bytes) {
  std::string names;
  int shown = 0;
  for (int byte = 0; byte < 256 && shown < 8; ++byte) {
    if (!bytes.Contains(static_cast<uint8_t>(byte))) continue;
    names += (shown++ == 0 ? "`" : ", `") + Visible(std::string(1, static_cast<char>(byte))) + "`";
  }
  return bytes.size() > shown ? names + ", ..." : names;
}

// One line that says where and why, without a final line break.
std::string Verdict(const std::shared_ptr<const CompiledGrammar>& grammar, const std::string& text,
                    bool* accepted) {
  size_t matched = MatchText(*grammar, text, accepted);
  if (!*accepted && text.ends_with('\n') && matched + 1 >= text.size()) {
    // The line break that ends the last line of a file is not of the text.
    matched = MatchText(*grammar, text.substr(0, text.size() - 1), accepted);
  }
  if (*accepted) return fmt::format("accepted: {} bytes", matched);
  Matcher matcher(grammar);
  matcher.Accept(text.substr(0, matched));
  std::string expected = matcher.IsAccepting() ? "the end" : "";
  const ByteSet next = matcher.NextBytes();
  if (!next.empty()) expected += (expected.empty() ? "" : " or ") + ByteNames(next);
  const std::string found =
      matched == text.size() ? "the end" : "`" + Visible(text.substr(matched, 16)) + "`";
  return fmt::format("rejected at byte {}: found {}; expected {}", matched + 1, found, expected);
}

int JudgeText(const GrammarOptions& options) {
  if (!options.model.empty()) {
    return term::Fail(UsageError("--model times masks of rows; give it with --file"));
  }
  const auto text = OneGrammar(options.grammar);
  if (!text.ok()) return term::Fail(text.status());
  if (isatty(STDIN_FILENO) != 0) {
    return term::Fail(UsageError("no text; give it on standard input, or rows with --file F"));
  }
  const auto grammar = load::CompileAndWarn(*text);
  if (!grammar.ok()) return term::Fail(grammar.status());
  const auto input = term::ReadAll(STDIN_FILENO, "standard input", batch::kRowBytesMax);
  if (!input.ok()) return term::Fail(input.status());
  bool accepted = false;
  const std::string verdict = Verdict(*grammar, *input, &accepted);
  auto output = term::Output::Open(options.output, options.force, -1);
  if (!output.ok()) return term::Fail(output.status());
  if (const Status status = (*output)->Begin(); !status.ok()) return term::Fail(status);
  const int exit = (*output)->ExitAfter((*output)->Write(verdict + "\n"));
  return exit != 0 ? exit : accepted ? 0 : term::kExitSomeFailed;
}

int JudgeRows(const GrammarOptions& options) {
  if (options.grammar.num_kinds() > 0) {
    return term::Fail(UsageError(
        "--file has a grammar in each row; leave out --json-schema, --regex, --choice and "
        "--grammar, or --file"));
  }
  std::optional<Vocabulary> vocabulary;
  if (!options.model.empty()) {
    auto dir = load::ResolveModelDir(options.model);
    if (!dir.ok()) return term::Fail(dir.status());
    auto tokenizer = Tokenizer::Load(*dir);
    if (!tokenizer.ok()) return term::Fail(tokenizer.status());
    vocabulary.emplace(**tokenizer);
  }
  auto reader = batch::LineReader::Open(*options.file);
  if (!reader.ok()) return term::Fail(reader.status());
  auto output = term::Output::Open(options.output, options.force, reader->fd());
  if (!output.ok()) return term::Fail(output.status());
  if (const Status status = (*output)->Begin(); !status.ok()) return term::Fail(status);
  using Outcome = batch::LineReader::Outcome;
  bool all_compiled = true;
  Status written;
  Outcome outcome = Outcome::kNotYet;
  std::string line;
  while (written.ok()) {
    outcome = reader->Next(batch::kRowWait_ms, &line);
    if (outcome == Outcome::kEnd || outcome == Outcome::kFailed) break;
    if (outcome == Outcome::kNotYet) continue;
    GrammarRow row;
    const Status read = outcome == Outcome::kTooLong
                            ? BadInput("the line has more than {} bytes", batch::kRowBytesMax)
                            : ParseGrammarRow(line, &row);
    bool compiled = false;
    written = (*output)->Write(
        JudgeGrammarRow(row, read, vocabulary ? &*vocabulary : nullptr, &compiled));
    all_compiled = all_compiled && compiled;
  }
  if ((*output)->pipe_closed()) return term::kExitPipeClosed;
  const Status finished = (*output)->Finish();
  if (outcome == Outcome::kFailed) return term::Fail(reader->status());
  if (!written.ok() || !finished.ok()) return term::Fail(written.ok() ? finished : written);
  return all_compiled ? 0 : term::kExitSomeFailed;
}

}  // namespace

CommandBody AddGrammarCommand(load::OptionTable* app) {
  const auto options = std::make_shared<GrammarOptions>();
  const std::string group = "Input and output";
  app->Add("-f,--file", &options->file, "Judge rows of JSON Lines from FILE; - is standard input")
      ->TypeName("FILE")
      ->Group(group);
  app->Add("--json-schema", &options->grammar.json_schema,
           "Judge standard input by the schema in FILE")
      ->TypeName("FILE")
      ->Group(group);
  app->Add("--regex", &options->grammar.regex, "Judge standard input by a regular expression")
      ->TypeName("R")
      ->Group(group);
  app->Add("--choice", &options->grammar.choices, "Allow this text (repeatable)")
      ->OneValueEach()
      ->TypeName("TEXT")
      ->Group(group);
  app->Add("--grammar", &options->grammar.grammar,
           "Judge standard input by the GBNF grammar in FILE")
      ->TypeName("FILE")
      ->Group(group);
  app->Add("-m,--model", &options->model,
           "With --file: also time masks over the vocabulary of this model directory")
      ->TypeName("DIR")
      ->Group(group);
  load::AddOutputOption(app, &options->output, "Write to")->Group(group);
  app->AddFlag("--force", &options->force, "Replace an output file that is not empty")
      ->Group(group);
  return [options] {
    term::InstallNotes({});
    return options->file ? JudgeRows(*options) : JudgeText(*options);
  };
}

}  // namespace minisgl::cli
