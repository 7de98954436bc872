// The operations on terms (grammar/json_schema/normal.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/json_schema/normal.h"
#include "grammar/json_schema/number_language.h"
#include "grammar/json_schema/string_language.h"
#include "grammar/json_schema/value.h"
#include "minisgl/base/status.h"

namespace minisgl::grammar {

struct AlgebraLimits {
  uint64_t work_max = 8'000'000;  // facets looked at
  size_t emptiness_work = 4'000;  // derivatives for each question
  size_t expression_bytes_max = size_t{96} << 20;
  int depth_max = 300;  // of terms within terms
};

// After the first error status() stays one, and results mean nothing.
class Algebra {
 public:
  // The values that a schema of the document allows.
  using Compile = std::function<Normal(const SchemaValue& schema)>;

  Algebra(ExpressionSet& set, bool exponents, const AlgebraLimits& limits, Compile compile);

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  // At the schema that is being compiled, if that is known.
  void Fail(std::string_view message);
  void Fail(const SchemaValue& place, std::string_view message);
  // Counts work; false once there was too much of it.
  bool Spend(uint64_t work);

  ExpressionSet& set() { return *set_; }
  StringLanguage& strings() { return strings_; }
  NumberLanguage& numbers() { return numbers_; }

  Term And(std::vector<Term> operands);
  Term Or(std::vector<Term> operands);
  Term Not(Term operand);
  Term OfSchema(const SchemaValue& schema);
  Term OfNormal(Normal normal);

  // Where a term comes from; the first of its parts that comes from a schema. Null if none does.
  const SchemaValue* PlaceOf(Term term) const;
  // The schema that is being compiled from here on.
  void SetPlace(const SchemaValue* place) { place_ = place; }

  // Fails for a term that is defined by itself: {"$ref": "#"}.
  std::shared_ptr<const Normal> NormalOf(Term term);
  // True if the term is known to have no values.
  bool IsEmpty(Term term);
  bool IsEmpty(const ArrayShape& shape);
  bool IsEmpty(const ObjectShape& shape);
  bool IsEmpty(ExpressionId expression);

  Normal Any() const;
  Normal Intersect(const Normal& a, const Normal& b);
  Normal Unite(const std::vector<std::shared_ptr<const Normal>>& parts);
  // Fails for arrays whose elements are unique.
  Normal Complement(const Normal& normal);
  // The values of exactly one of `parts`.
  Normal ExactlyOne(const std::vector<std::shared_ptr<const Normal>>& parts);

  // The value that a shape gives to the member `name`; kFalse if there can be none.
  Term MemberValue(const ObjectShape& shape, const std::string& name);
  ObjectShape AnyObject() const;
  // Puts a shape into one canonical form.
  void Tidy(ArrayShape* shape);

 private:
  enum class Kind { kFalse, kTrue, kAnd, kOr, kNot, kSchema, kNormal };
  enum class Known { kNothing, kEmpty, kNotEmpty };
  struct Node {
    Kind kind;
    std::vector<Term> operands;
    const SchemaValue* schema = nullptr;
    std::shared_ptr<const Normal> normal;
    bool in_progress = false;
    bool asked = false;
    Known empty = Known::kNothing;
  };
  using Key = std::pair<Kind, std::vector<Term>>;

  Term Intern(Kind kind, std::vector<Term> operands);
  Node& node(Term term) { return nodes_[static_cast<size_t>(term)]; }
  Normal Compute(Term term);
  bool CanHave(const ObjectShape& shape, const NameClass& some);
  bool AreDisjoint(const ArrayShape& a, const ArrayShape& b) { return IsEmpty(Intersect(a, b)); }
  bool AreDisjoint(const ObjectShape& a, const ObjectShape& b);
  bool Excludes(const ObjectShape& a, const ObjectShape& b);
  // The text that is all of `strings`; null if it is not a single one, or long.
  const std::string* SingleText(ExpressionId strings);
  ExpressionId IntersectStrings(ExpressionId a, ExpressionId b);
  // The texts of at least one of some sets, and of at least two.
  struct Counted {
    ExpressionId once, twice;
  };
  Counted Count(std::span<const ExpressionId> sets);
  ExpressionId ExactlyOneOf(const std::vector<ExpressionId>& sets);

  ArrayShape Intersect(const ArrayShape& a, const ArrayShape& b);
  ObjectShape Intersect(const ObjectShape& a, const ObjectShape& b);
  template <typename Shape>
  std::vector<Shape> IntersectShapes(const std::vector<Shape>& a, const std::vector<Shape>& b);
  void IntersectClasses(const ObjectShape& a, const ObjectShape& b, ObjectShape* out);
  template <typename Shape>
  void AddShape(Shape shape, std::vector<Shape>* shapes);
  std::vector<ArrayShape> Complement(const ArrayShape& shape);
  std::vector<ObjectShape> Complement(const ObjectShape& shape);
  ExpressionId OwnNames(const ObjectShape& shape);
  template <typename Shape>
  std::vector<Shape> Subtract(std::vector<Shape> from, const std::vector<Shape>& what);

  ExpressionSet* set_;
  StringLanguage strings_;
  NumberLanguage numbers_;
  AlgebraLimits limits_;
  Compile compile_;
  Status status_;
  const SchemaValue* place_ = nullptr;
  uint64_t work_ = 0;
  int depth_ = 0;
  // While IsEmpty() runs, a term that is defined by itself is no error: the answer is that nothing
  // is known, and nothing is remembered.
  int asking_ = 0;
  bool met_itself_ = false;
  std::vector<Node> nodes_;
  std::map<Key, Term> interned_;
  std::map<const SchemaValue*, Term> schemas_;
  std::map<std::vector<uint32_t>, Term> scalars_;
  std::map<ExpressionId, std::optional<std::string>> singles_;
};

}  // namespace minisgl::grammar
