// Options that say what all answers of a command must be: a schema, an expression, choices or a
// grammar.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "load/answer_settings.h"
#include "load/option_table.h"
#include "minisgl/base/status.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::load {

// At most one kind may be given; see CheckGrammarOptions.
struct GrammarOptions {
  std::optional<std::string> json_schema;  // a file
  bool compact_json = false;               // at most one blank between the parts of its texts
  std::optional<std::string> regex;
  std::vector<std::string> choices;
  std::optional<std::string> grammar;  // a file

  int num_kinds() const {
    return (json_schema ? 1 : 0) + (regex ? 1 : 0) + (choices.empty() ? 0 : 1) + (grammar ? 1 : 0);
  }
};

// Adds --json-schema, --regex, --choice and --grammar, for answers that a model generates.
void AddGrammarOptions(OptionTable* app, GrammarOptions* options);

// kUsage if several kinds are given.
Status CheckGrammarOptions(const GrammarOptions& options);

// A grammar in a file, which may be a pipe. A byte order mark is left out. Not compiled.
Result<AnswerGrammar> ReadGrammarFile(GrammarKind kind, const std::string& file);

// Reads what the options give; a null text if they give nothing. Not compiled. REQUIRES
// CheckGrammarOptions.
Result<AnswerGrammar> ReadGrammar(const GrammarOptions& options);

// Compiles it and logs its warnings. An error names the file, or the kind of a text without one.
// REQUIRES a text.
Result<std::shared_ptr<const CompiledGrammar>> CompileAndWarn(const AnswerGrammar& grammar);

}  // namespace minisgl::load
