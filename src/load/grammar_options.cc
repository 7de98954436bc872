#include "load/grammar_options.h"

#include <fmt/core.h>

#include <string_view>
#include <utility>

#include "minisgl/base/byte_order_mark.h"
#include "minisgl/base/log.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/json_schema.h"
#include "term/read_input.h"

namespace minisgl::load {
namespace {

constexpr size_t kGrammarBytesMax = size_t{64} << 20;  // as long as a row may be

AnswerGrammar WithoutFile(GrammarText text) {
  return {std::make_shared<const GrammarText>(std::move(text)), ""};
}

std::string NameOf(const AnswerGrammar& grammar) {
  if (!grammar.file.empty()) return Visible(grammar.file, 400);
  switch (grammar.text->kind) {
    case GrammarKind::kChoice:
      return "choices";
    case GrammarKind::kJsonSchema:
      return "JSON schema";
    case GrammarKind::kGbnf:
      return "grammar";
    case GrammarKind::kCalls:
      return "calls";
    default:
      return "regular expression";
  }
}

// True for the text of a schema or a grammar in place of a file's name.
bool IsGrammarText(GrammarKind kind, std::string_view value) {
  if (kind == GrammarKind::kGbnf) return value.find("::=") != std::string_view::npos;
  const size_t begin = value.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && value[begin] == '{';
}

}  // namespace

void AddGrammarOptions(OptionTable* app, GrammarOptions* options) {
  const std::string group = "Form of answers (default: any text)";
  app->Add("--json-schema", &options->json_schema,
           "Answers are JSON that the schema in FILE allows, or the schema '{...}'")
      ->TypeName("FILE")
      ->Group(group);
  app->AddFlag("--compact-json", &options->compact_json,
               "JSON of --json-schema has at most one space between its parts, and no line breaks")
      ->Group(group)
      ->Advanced();
  app->Add("--regex", &options->regex, "Answers match the regular expression R as a whole")
      ->TypeName("R")
      ->Group(group);
  app->Add("--choice", &options->choices, "Answers are TEXT or another choice (repeatable)")
      ->OneValueEach()
      ->TypeName("TEXT")
      ->Group(group);
  app->Add("--grammar", &options->grammar,
           "Answers follow the GBNF grammar in FILE, or the text 'root ::= ...'")
      ->TypeName("FILE")
      ->Group(group);
}

Status CheckGrammarOptions(const GrammarOptions& options) {
  if (options.compact_json && !options.json_schema) {
    return UsageError("--compact-json needs --json-schema");
  }
  if (options.num_kinds() <= 1) return Status();
  return UsageError("--json-schema, --regex, --choice and --grammar exclude each other; give one");
}

Result<AnswerGrammar> ReadGrammarFile(GrammarKind kind, const std::string& file) {
  if (IsGrammarText(kind, file)) return WithoutFile({kind, file, {}});
  if (file == "-") {
    return UsageError("{} - is not read from standard input; give a file, or /dev/stdin",
                      kind == GrammarKind::kGbnf ? "--grammar" : "--json-schema");
  }
  GrammarText text;
  text.kind = kind;
  MINISGL_ASSIGN_OR_RETURN(text.text, term::ReadFileOrPipe(file, kGrammarBytesMax));
  DropByteOrderMark(&text.text);
  AnswerGrammar grammar = WithoutFile(std::move(text));
  grammar.file = file;
  return grammar;
}

Result<AnswerGrammar> ReadGrammar(const GrammarOptions& options) {
  if (options.json_schema) {
    MINISGL_ASSIGN_OR_RETURN(AnswerGrammar grammar,
                             ReadGrammarFile(GrammarKind::kJsonSchema, *options.json_schema));
    if (!options.compact_json) return grammar;
    GrammarText text = *grammar.text;
    text.text = CompactJsonSchema(std::move(text.text));
    grammar.text = std::make_shared<const GrammarText>(std::move(text));
    return grammar;
  }
  if (options.grammar) return ReadGrammarFile(GrammarKind::kGbnf, *options.grammar);
  if (options.regex) {
    return WithoutFile({GrammarKind::kRegularExpression, *options.regex, {}});
  }
  if (!options.choices.empty()) return WithoutFile({GrammarKind::kChoice, "", options.choices});
  return AnswerGrammar();
}

Result<std::shared_ptr<const CompiledGrammar>> CompileAndWarn(const AnswerGrammar& grammar) {
  auto compiled = CompileGrammar(*grammar.text);
  const std::string name = NameOf(grammar);
  if (!compiled.ok()) return compiled.status().WithPrefix(name);
  for (const std::string& warning : (*compiled)->warnings()) {
    Log(LogLevel::kWarning, fmt::format("{}: {}", name, warning));
  }
  return compiled;
}

}  // namespace minisgl::load
