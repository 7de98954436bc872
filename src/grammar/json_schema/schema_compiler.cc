#include "grammar/json_schema/schema_compiler.h"

#include <algorithm>

#include "grammar/json_schema/keyword_table.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

// True if a multipleOf below `value` is no power of ten: then numbers have no exponents.
bool HasOddMultiple(const SchemaValue& value) {
  for (const SchemaValue& item : value.items) {
    if (HasOddMultiple(item)) return true;
  }
  for (const auto& [name, member] : value.members) {
    Decimal divisor;
    if (name == "multipleOf" && member.is_number() &&
        (!ParseDecimal(member.text, &divisor) || divisor.digits != "1")) {
      return true;
    }
    if (HasOddMultiple(member)) return true;
  }
  return false;
}

constexpr std::string_view kArrayKeywords[] = {"additionalItems", "contains",    "items",
                                               "maxContains",     "maxItems",    "minContains",
                                               "minItems",        "prefixItems", "uniqueItems"};
constexpr std::string_view kObjectKeywords[] = {"additionalProperties", "maxProperties",
                                                "minProperties",        "patternProperties",
                                                "properties",           "required"};

template <size_t N>
bool IsOneOf(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace

SchemaCompiler::SchemaCompiler(const SchemaDocument& document, ExpressionSet& set,
                               const AlgebraLimits& limits)
    : document_(&document),
      algebra_(set, !HasOddMultiple(document.root()), limits,
               [this](const SchemaValue& schema) { return Compile(schema); }) {}

bool SchemaCompiler::Holds(const SchemaValue& schema, std::string_view keyword) {
  const Keyword* known = FindKeyword(keyword);
  if (known == nullptr || !known->constrains) return false;
  return !document_->NamesDraft(schema) || known->since <= document_->DraftOf(schema);
}

const SchemaValue* SchemaCompiler::Get(const SchemaValue& schema, std::string_view keyword) {
  return Holds(schema, keyword) ? schema.Find(keyword) : nullptr;
}

Normal SchemaCompiler::Compile(const SchemaValue& schema) {
  Normal all = algebra_.Any();
  if (schema.is_bool()) return schema.is_true() ? all : Normal();
  if (!schema.is_object()) {
    algebra_.Fail(schema, "a schema is an object or a boolean, and this is neither");
    return all;
  }
  // Up to draft 7, a reference makes all other keywords void.
  const SchemaValue* reference = schema.Find("$ref");
  if (reference != nullptr && document_->DraftOf(schema) <= Draft::k7)
    return *Reference(schema, "$ref", *reference);
  bool has_array = false, has_object = false, has_unevaluated = false;
  const SchemaValue* properties = Get(schema, "properties");
  for (const SchemaValue::Member& member : schema.members) {
    if (!algebra_.Spend(1)) return all;
    if (!Holds(schema, member.first)) continue;
    if (IsOneOf(member.first, kArrayKeywords)) {
      if (!has_array) all = algebra_.Intersect(all, WithArrays({Array(schema)}));
      has_array = true;
    } else if (IsOneOf(member.first, kObjectKeywords)) {
      // All of them together, where `properties` stands if it is there.
      if (has_object || (properties != nullptr && properties != &member.second)) continue;
      all = algebra_.Intersect(all, WithObjects({Object(schema)}));
      has_object = true;
    } else if (member.first.starts_with("unevaluated")) {
      has_unevaluated = has_unevaluated || !member.second.is_true();
    } else {
      Narrow(schema, member, &all);
    }
  }
  if (has_unevaluated && algebra_.ok()) all = algebra_.Intersect(all, Unevaluated(schema));
  return all;
}

void SchemaCompiler::Narrow(const SchemaValue& schema, const SchemaValue::Member& member,
                            Normal* all) {
  if (NarrowByScalar(schema, member, all) || NarrowByCombination(schema, member, all)) return;
  if (member.first == "then" || member.first == "else") return;  // with `if`
  algebra_.Fail(schema, fmt::format("\"{}\" is not supported", member.first));
}

bool SchemaCompiler::NarrowByCombination(const SchemaValue& schema,
                                         const SchemaValue::Member& member, Normal* all) {
  const auto& [name, value] = member;
  const auto narrow = [&](const Normal& by) { *all = algebra_.Intersect(*all, by); };
  if (name == "$ref" || name == "$dynamicRef" || name == "$recursiveRef") {
    narrow(*Reference(schema, name, value));
  } else if (name == "allOf") {
    for (const std::shared_ptr<const Normal>& part : PartsOf(value)) narrow(*part);
  } else if (name == "anyOf") {
    narrow(algebra_.Unite(PartsOf(value)));
  } else if (name == "oneOf") {
    narrow(algebra_.ExactlyOne(PartsOf(value)));
  } else if (name == "not") {
    narrow(algebra_.Complement(*NormalAt(value)));
  } else if (name == "if") {
    narrow(Conditional(schema, value));
  } else if (name == "dependencies" || name == "dependentRequired" || name == "dependentSchemas") {
    narrow(Dependencies(value));
  } else if (name == "propertyNames") {
    narrow(Names(value));
  } else {
    return false;
  }
  return true;
}

Term SchemaCompiler::SchemaAt(const SchemaValue& value) {
  if (value.is_bool() || value.is_object()) return algebra_.OfSchema(value);
  algebra_.Fail(value, "a schema is an object or a boolean, and this is neither");
  return Term::kFalse;
}

std::shared_ptr<const Normal> SchemaCompiler::NormalAt(const SchemaValue& value) {
  return algebra_.NormalOf(SchemaAt(value));
}

SchemaCompiler::Parts SchemaCompiler::PartsOf(const SchemaValue& list) {
  if (!list.is_array() || list.items.empty())
    algebra_.Fail(list, "must be an array with at least one schema");
  Parts parts;
  for (const SchemaValue& item : list.items) {
    parts.push_back(NormalAt(item));
    if (!algebra_.ok()) break;
  }
  return parts;
}

const SchemaValue* SchemaCompiler::ReferenceTarget(const SchemaValue& schema,
                                                   std::string_view keyword,
                                                   const SchemaValue& value) {
  const auto resolve = [&]() -> Result<const SchemaValue*> {
    if (keyword == "$recursiveRef") return document_->ResolveRecursive(schema);
    if (!value.is_string()) return BadInput("must be a string");
    return keyword == "$ref" ? document_->Resolve(schema, value.text)
                             : document_->ResolveDynamic(schema, value.text);
  };
  const Result<const SchemaValue*> target = resolve();
  if (target.ok()) return *target;
  algebra_.Fail(value, target.status().message());
  return nullptr;
}

std::shared_ptr<const Normal> SchemaCompiler::Reference(const SchemaValue& schema,
                                                        std::string_view keyword,
                                                        const SchemaValue& value) {
  const SchemaValue* target = ReferenceTarget(schema, keyword, value);
  return target == nullptr ? algebra_.NormalOf(Term::kFalse) : NormalAt(*target);
}

Normal SchemaCompiler::Conditional(const SchemaValue& schema, const SchemaValue& condition) {
  const SchemaValue* then = Get(schema, "then");
  const SchemaValue* otherwise = Get(schema, "else");
  if (then == nullptr && otherwise == nullptr) return algebra_.Any();
  const std::shared_ptr<const Normal> holds = NormalAt(condition);
  Normal yes = *holds, no = algebra_.Complement(*holds);
  if (then != nullptr) yes = algebra_.Intersect(yes, *NormalAt(*then));
  if (otherwise != nullptr) no = algebra_.Intersect(no, *NormalAt(*otherwise));
  return algebra_.Unite({std::make_shared<const Normal>(std::move(yes)),
                         std::make_shared<const Normal>(std::move(no))});
}

Normal SchemaCompiler::Dependencies(const SchemaValue& value) {
  Normal all = algebra_.Any();
  if (!value.is_object()) algebra_.Fail(value, "must be an object");
  for (const auto& [name, dependency] : value.members) {
    if (!algebra_.ok()) break;
    all = algebra_.Intersect(all, Dependency(name, dependency));
  }
  return all;
}

Normal SchemaCompiler::Dependency(const std::string& name, const SchemaValue& value) {
  ObjectShape without = algebra_.AnyObject(), with = without;
  without.properties.push_back({name, Term::kFalse, false, false});
  with.properties.push_back({name, Term::kTrue, true, false});
  Normal present = WithObjects({});
  present.null = present.false_ = present.true_ = false;
  present.number = present.string = algebra_.set().Nothing();
  present.arrays.clear();
  if (value.is_array() || value.is_string()) {
    if (value.is_array()) {
      AddRequired(value, &with);
    } else if (value.text != name) {  // the form of draft 3
      with.properties.push_back({value.text, Term::kTrue, true, false});
    }
    present.objects = {with};
  } else {
    present.objects = {with};
    present = algebra_.Intersect(present, *NormalAt(value));
  }
  return algebra_.Unite({std::make_shared<const Normal>(WithObjects({without})),
                         std::make_shared<const Normal>(std::move(present))});
}

Normal SchemaCompiler::Names(const SchemaValue& value) {
  const std::shared_ptr<const Normal> names = NormalAt(value);
  ObjectShape shape;
  if (names->string != algebra_.set().Nothing())
    shape.classes.push_back({names->string, Term::kTrue});
  return WithObjects({shape});
}

Normal SchemaCompiler::WithNumbers(ExpressionId numbers) {
  Normal normal = algebra_.Any();
  normal.number = numbers;
  return normal;
}

Normal SchemaCompiler::WithStrings(ExpressionId strings) {
  Normal normal = algebra_.Any();
  normal.string = strings;
  return normal;
}

Normal SchemaCompiler::WithArrays(std::vector<ArrayShape> arrays) {
  Normal normal = algebra_.Any();
  normal.arrays = std::move(arrays);
  return normal;
}

Normal SchemaCompiler::WithObjects(std::vector<ObjectShape> objects) {
  Normal normal = algebra_.Any();
  normal.objects = std::move(objects);
  return normal;
}

}  // namespace minisgl::grammar
