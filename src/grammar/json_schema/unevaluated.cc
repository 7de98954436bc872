// unevaluatedProperties and unevaluatedItems.
//
// The alternatives of a subschema that hold decide which parts it evaluates. Each way is a case: a
// condition, and the names and elements that are evaluated under it.
#include <algorithm>

#include "grammar/json_schema/schema_compiler.h"

namespace minisgl::grammar {
namespace {

constexpr size_t kCasesMax = 64;
constexpr int kInPlaceDepthMax = 64;

bool IsNothing(const std::vector<EvaluatedCase>& cases, ExpressionId no_names) {
  return std::all_of(cases.begin(), cases.end(), [&](const EvaluatedCase& one) {
    return one.names == no_names && one.prefix == 0 && one.contained.empty();
  });
}

}  // namespace

EvaluatedCase SchemaCompiler::BothCases(const EvaluatedCase& a, const EvaluatedCase& b) {
  EvaluatedCase both;
  both.when = algebra_.And({a.when, b.when});
  both.names = algebra_.set().Or({a.names, b.names});
  both.prefix = std::max(a.prefix, b.prefix);
  both.contained = a.contained;
  both.contained.insert(both.contained.end(), b.contained.begin(), b.contained.end());
  return both;
}

SchemaCompiler::Cases SchemaCompiler::Product(const Cases& a, const Cases& b) {
  Cases product;
  for (const EvaluatedCase& x : a) {
    for (const EvaluatedCase& y : b) {
      EvaluatedCase both = BothCases(x, y);
      if (both.when != Term::kFalse) product.push_back(std::move(both));
    }
  }
  if (product.size() > kCasesMax || !algebra_.Spend(product.size()))
    algebra_.Fail("\"unevaluatedProperties\" and \"unevaluatedItems\" depend on too many cases");
  return product;
}

SchemaCompiler::Cases SchemaCompiler::Evaluated(const SchemaValue& schema, int depth) {
  EvaluatedCase own = OwnEvaluated(schema);
  if (Get(schema, "unevaluatedProperties")) own.names = algebra_.strings().All();
  if (Get(schema, "unevaluatedItems")) own.prefix = kNoLimit;
  return EvaluatedBeside(schema, own, depth);
}

// The cases of `own` and of all subschemas of `schema` that apply in place.
SchemaCompiler::Cases SchemaCompiler::EvaluatedBeside(const SchemaValue& schema,
                                                      const EvaluatedCase& own, int depth) {
  Cases cases{own};
  if (depth > kInPlaceDepthMax) algebra_.Fail(schema, "references are nested too deep");
  for (const SchemaValue::Member& member : schema.members) {
    if (!algebra_.ok()) break;
    if (Holds(schema, member.first)) cases = Product(cases, EvaluatedBy(schema, member, depth + 1));
  }
  return cases;
}

// The parts that the keywords of `schema` itself evaluate.
EvaluatedCase SchemaCompiler::OwnEvaluated(const SchemaValue& schema) {
  EvaluatedCase own;
  own.names = algebra_.set().Nothing();
  std::vector<ExpressionId> names;
  if (const SchemaValue* properties = Get(schema, "properties")) {
    std::vector<std::string> texts;
    for (const SchemaValue::Member& member : properties->members) texts.push_back(member.first);
    names.push_back(algebra_.strings().Texts(texts));
  }
  if (const SchemaValue* patterns = Get(schema, "patternProperties")) {
    for (const SchemaValue::Member& member : patterns->members)
      names.push_back(Pattern(member.second, member.first));
  }
  own.names = algebra_.set().Or(names);
  if (Get(schema, "additionalProperties")) own.names = algebra_.strings().All();
  const SchemaValue* items = Get(schema, "items");
  if (const SchemaValue* prefix = Get(schema, "prefixItems")) own.prefix = prefix->items.size();
  if (items != nullptr && items->is_array()) own.prefix = items->items.size();
  if (items != nullptr && (!items->is_array() || Get(schema, "additionalItems")))
    own.prefix = kNoLimit;
  const SchemaValue* contains = Get(schema, "contains");
  if (contains != nullptr && document_->DraftOf(schema) >= Draft::k2020)
    own.contained.push_back(SchemaAt(*contains));
  return own;
}

// The cases of the subschemas of one keyword that apply in place.
SchemaCompiler::Cases SchemaCompiler::EvaluatedBy(const SchemaValue& schema,
                                                  const SchemaValue::Member& member, int depth) {
  const auto& [name, value] = member;
  Cases all = NoCases();
  if (name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef") {
    const SchemaValue* target = ReferenceTarget(schema, name, value);
    if (target != nullptr) all = Evaluated(*target, depth);
  } else if (name == "allOf") {
    for (const SchemaValue& part : value.items) all = Product(all, Evaluated(part, depth));
  } else if (name == "anyOf") {
    for (const SchemaValue& part : value.items)
      all = Product(all, Either(SchemaAt(part), Evaluated(part, depth), NoCases()));
  } else if (name == "oneOf") {
    // Another condition of the schema says that it is exactly one.
    all.clear();
    for (const SchemaValue& part : value.items) {
      EvaluatedCase holds = NoCases()[0];
      holds.when = SchemaAt(part);
      const Cases cases = Product({holds}, Evaluated(part, depth));
      all.insert(all.end(), cases.begin(), cases.end());
    }
    if (IsNothing(all, algebra_.set().Nothing())) all = NoCases();
  } else if (name == "if") {
    all = EvaluatedByIf(schema, value, depth);
  } else if (name == "dependentSchemas" || name == "dependencies") {
    for (const auto& [property, part] : value.members) {
      ObjectShape with = algebra_.AnyObject();
      with.properties.push_back({property, Term::kTrue, true, false});
      Normal present;
      present.objects.push_back(std::move(with));
      all = Product(
          all, Either(algebra_.OfNormal(std::move(present)), Evaluated(part, depth), NoCases()));
    }
  }
  return all;
}

SchemaCompiler::Cases SchemaCompiler::NoCases() {
  EvaluatedCase nothing;
  nothing.names = algebra_.set().Nothing();
  return {nothing};
}

// `yes` where `condition` holds, `no` elsewhere.
SchemaCompiler::Cases SchemaCompiler::Either(Term condition, const Cases& yes, const Cases& no) {
  const ExpressionId no_names = algebra_.set().Nothing();
  if (IsNothing(yes, no_names) && IsNothing(no, no_names)) return NoCases();
  Cases when = NoCases(), unless = NoCases();
  when[0].when = condition;
  unless[0].when = algebra_.Not(condition);
  Cases both = Product(when, yes);
  const Cases others = Product(unless, no);
  both.insert(both.end(), others.begin(), others.end());
  return both;
}

SchemaCompiler::Cases SchemaCompiler::EvaluatedByIf(const SchemaValue& schema,
                                                    const SchemaValue& condition, int depth) {
  Cases yes = Evaluated(condition, depth), no = NoCases();
  if (const SchemaValue* then = Get(schema, "then")) yes = Product(yes, Evaluated(*then, depth));
  if (const SchemaValue* otherwise = Get(schema, "else")) no = Evaluated(*otherwise, depth);
  return Either(SchemaAt(condition), yes, no);
}

Normal SchemaCompiler::Unevaluated(const SchemaValue& schema) {
  const SchemaValue* properties = Get(schema, "unevaluatedProperties");
  const SchemaValue* items = Get(schema, "unevaluatedItems");
  Parts parts;
  for (const EvaluatedCase& one : EvaluatedBeside(schema, OwnEvaluated(schema), 0)) {
    if (!algebra_.ok()) break;
    Normal normal = algebra_.Any();
    if (properties != nullptr) {
      ObjectShape shape;
      const ExpressionId rest = algebra_.strings().Not(one.names);
      const Term value = SchemaAt(*properties);
      if (one.names != algebra_.set().Nothing()) shape.classes.push_back({one.names, Term::kTrue});
      if (value != Term::kFalse && !algebra_.IsEmpty(rest)) shape.classes.push_back({rest, value});
      normal.objects = {shape};
    }
    if (items != nullptr && one.prefix != kNoLimit) {
      ArrayShape shape;
      if (!algebra_.Spend(one.prefix)) break;
      shape.prefix.assign(one.prefix, Term::kTrue);
      std::vector<Term> allowed = one.contained;
      allowed.push_back(SchemaAt(*items));
      shape.rest = algebra_.Or(std::move(allowed));
      if (shape.rest == Term::kFalse) shape.max = one.prefix;
      normal.arrays = {shape};
    }
    parts.push_back(
        std::make_shared<const Normal>(algebra_.Intersect(*algebra_.NormalOf(one.when), normal)));
  }
  return algebra_.Unite(parts);
}

}  // namespace minisgl::grammar
