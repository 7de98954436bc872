// One entrance for every kind of grammar.
#include <algorithm>

#include "grammar/gbnf.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/json_schema.h"
#include "minisgl/grammar/regular_expression.h"

namespace minisgl {

namespace {

Result<Symbol> AddText(const GrammarText& grammar, GrammarBuilder* builder) {
  ExpressionSet& expressions = builder->expressions();
  switch (grammar.kind) {
    case GrammarKind::kRegularExpression: {
      MINISGL_ASSIGN_OR_RETURN(const ExpressionId expression,
                               ParseRegularExpression(grammar.text, {}, expressions));
      return builder->Terminal(expression);
    }
    case GrammarKind::kChoice:
      if (grammar.choices.empty()) return BadInput("there are no choices");
      for (size_t i = 0; i < grammar.choices.size(); ++i) {
        if (!IsValidUtf8(grammar.choices[i])) return BadInput("choice {} is not valid UTF-8", i);
      }
      return builder->Terminal(expressions.Strings(grammar.choices));
    case GrammarKind::kGbnf:
      return grammar::AddGbnf(grammar.text, builder);
    default:
      return BadInput("a grammar of no kind");
  }
}

}  // namespace

Result<std::shared_ptr<const CompiledGrammar>> CompileGrammar(const GrammarText& grammar,
                                                              const GrammarLimits& limits) {
  if (grammar.kind == GrammarKind::kJsonSchema) return CompileJsonSchema(grammar.text, {}, limits);
  if (grammar.kind == GrammarKind::kJsonObject) return CompileJsonObject({}, limits);
  GrammarBuilder builder(limits);
  MINISGL_ASSIGN_OR_RETURN(const Symbol start, AddText(grammar, &builder));
  return CompiledGrammar::Build(std::move(builder), start);
}

}  // namespace minisgl
