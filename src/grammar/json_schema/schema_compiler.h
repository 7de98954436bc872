// The keywords of a schema, as normals (grammar/json_schema/normal.h).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema/algebra.h"
#include "grammar/json_schema/document.h"

namespace minisgl::grammar {

// The parts that are evaluated where a condition holds: members by their names, the first elements
// of arrays, and elements in one of some sets.
struct EvaluatedCase {
  Term when = Term::kTrue;
  ExpressionId names{};
  uint64_t prefix = 0;
  std::vector<Term> contained;
};

class SchemaCompiler {
 public:
  SchemaCompiler(const SchemaDocument& document, ExpressionSet& set, const AlgebraLimits& limits);
  SchemaCompiler(const SchemaCompiler&) = delete;
  SchemaCompiler& operator=(const SchemaCompiler&) = delete;

  Algebra& algebra() { return algebra_; }
  Term Root() { return algebra_.OfSchema(document_->root()); }
  // Returns the innermost part that is known to be why nothing satisfies the document.
  const SchemaValue& EmptyPlace();

 private:
  using Parts = std::vector<std::shared_ptr<const Normal>>;

  Normal Compile(const SchemaValue& schema);
  // The members of `schema` that hold in its draft.
  bool Holds(const SchemaValue& schema, std::string_view keyword);
  const SchemaValue* Get(const SchemaValue& schema, std::string_view keyword);
  void Narrow(const SchemaValue& schema, const SchemaValue::Member& member, Normal* all);
  bool NarrowByCombination(const SchemaValue& schema, const SchemaValue::Member& member,
                           Normal* all);
  bool NarrowByScalar(const SchemaValue& schema, const SchemaValue::Member& member, Normal* all);

  const SchemaValue* EmptyPart(const SchemaValue& schema);

  // A schema that stands at `value`; fails if there is none.
  Term SchemaAt(const SchemaValue& value);
  std::shared_ptr<const Normal> NormalAt(const SchemaValue& value);
  Parts PartsOf(const SchemaValue& list);
  std::shared_ptr<const Normal> Reference(const SchemaValue& schema, std::string_view keyword,
                                          const SchemaValue& value);
  const SchemaValue* ReferenceTarget(const SchemaValue& schema, std::string_view keyword,
                                     const SchemaValue& value);
  Normal Conditional(const SchemaValue& schema, const SchemaValue& condition);
  Normal Dependencies(const SchemaValue& value);
  Normal Dependency(const std::string& name, const SchemaValue& value);

  Normal OfType(const SchemaValue& schema, const SchemaValue& value);
  Normal OfValue(const SchemaValue& value);
  Normal OfValues(const SchemaValue& list);
  ExpressionId Bound(const SchemaValue& schema, std::string_view keyword, const SchemaValue& value);
  ExpressionId Pattern(const SchemaValue& value, std::string_view text);
  ExpressionId Lengths(const SchemaValue& schema);
  bool Format(const SchemaValue& value, ExpressionId* strings);
  bool ReadNumber(const SchemaValue& value, Decimal* out);
  uint64_t ReadCount(const SchemaValue& schema, std::string_view keyword, uint64_t otherwise);

  ArrayShape Array(const SchemaValue& schema);
  ObjectShape Object(const SchemaValue& schema);
  void AddClasses(const SchemaValue& schema, ObjectShape* shape);
  void AddProperties(const SchemaValue& schema, ObjectShape* shape);
  void AddRequired(const SchemaValue& value, ObjectShape* shape);
  Normal Names(const SchemaValue& value);

  using Cases = std::vector<EvaluatedCase>;
  Normal Unevaluated(const SchemaValue& schema);
  Cases Evaluated(const SchemaValue& schema, int depth);
  Cases EvaluatedBeside(const SchemaValue& schema, const EvaluatedCase& own, int depth);
  Cases EvaluatedBy(const SchemaValue& schema, const SchemaValue::Member& member, int depth);
  Cases EvaluatedByIf(const SchemaValue& schema, const SchemaValue& condition, int depth);
  EvaluatedCase OwnEvaluated(const SchemaValue& schema);
  EvaluatedCase BothCases(const EvaluatedCase& a, const EvaluatedCase& b);
  Cases NoCases();
  Cases Product(const Cases& a, const Cases& b);
  Cases Either(Term condition, const Cases& yes, const Cases& no);

  Normal WithNumbers(ExpressionId numbers);
  Normal WithStrings(ExpressionId strings);
  Normal WithArrays(std::vector<ArrayShape> arrays);
  Normal WithObjects(std::vector<ObjectShape> objects);

  const SchemaDocument* document_;
  Algebra algebra_;
  std::map<std::string, ExpressionId, std::less<>> patterns_;
};

}  // namespace minisgl::grammar
