// From terms to a grammar: one rule for each term, with the blanks and the order of members.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "grammar/json_schema/algebra.h"
#include "minisgl/grammar/grammar.h"
#include "minisgl/grammar/json_schema.h"

namespace minisgl::grammar {

class Emitter {
 public:
  Emitter(Algebra& algebra, GrammarBuilder& builder, const JsonSchemaOptions& options);

  // The symbol of a whole value. Errors are in the algebra's status.
  Symbol Emit(Term root);

  Algebra& algebra() { return *algebra_; }
  GrammarBuilder& builder() { return *builder_; }
  bool any_order() const { return any_order_; }
  ExpressionSet& set() { return builder_->expressions(); }
  // A rule or terminal of the values of `term`; its definition may follow later.
  Symbol SymbolOf(Term term);
  // The values of a normal that are not arrays or objects.
  ExpressionId Scalars(const Normal& normal);
  // `text` with blanks allowed before and behind it.
  ExpressionId Punctuation(std::string_view text, bool before, bool behind);
  Symbol PunctuationSymbol(std::string_view text, bool before, bool behind);
  Symbol Rule(const char* name);
  ExpressionId Quoted(ExpressionId strings);
  // Counts a rule of a place within an array or object; false once there are too many.
  bool CountPlace();

 private:
  struct Undefined {
    Symbol rule;
    Term term;
    std::shared_ptr<const Normal> normal;
  };

  void Define(const Undefined& rule);
  Symbol ScalarsSymbol(Term term, ExpressionId scalars);

  Algebra* algebra_;
  GrammarBuilder* builder_;
  bool any_order_;
  ExpressionId blanks_;
  ExpressionId quote_;
  ExpressionId allowed_;  // without JsonSchemaOptions::excluded
  std::map<Term, Symbol> symbols_;
  std::vector<Undefined> undefined_;
  size_t places_ = 0;
};

// The rules of one shape; alternatives are added to `rule`.
void EmitArray(Emitter& emitter, const ArrayShape& shape, Symbol rule);
void EmitUniqueArray(Emitter& emitter, const ArrayShape& shape, Symbol rule);
// The rules of the union of shapes.
void EmitObjects(Emitter& emitter, const std::vector<ObjectShape>& shapes, Symbol rule);

}  // namespace minisgl::grammar
