// Keywords on arrays and objects.
#include <algorithm>

#include "grammar/json_schema/schema_compiler.h"

namespace minisgl::grammar {

ArrayShape SchemaCompiler::Array(const SchemaValue& schema) {
  ArrayShape shape;
  const SchemaValue* prefix = Get(schema, "prefixItems");
  const SchemaValue* rest = Get(schema, "items");
  // Up to 2019-09, an array of `items` is what prefixItems is now, and additionalItems the rest.
  if (prefix == nullptr && rest != nullptr && rest->is_array()) {
    prefix = rest;
    rest = Get(schema, "additionalItems");
  }
  if (prefix != nullptr) {
    if (!prefix->is_array()) algebra_.Fail(*prefix, "must be an array of schemas");
    for (const SchemaValue& item : prefix->items) shape.prefix.push_back(SchemaAt(item));
    algebra_.Spend(shape.prefix.size());
  }
  if (rest != nullptr) shape.rest = SchemaAt(*rest);
  shape.min = ReadCount(schema, "minItems", 0);
  shape.max = ReadCount(schema, "maxItems", kNoLimit);
  const SchemaValue* unique = Get(schema, "uniqueItems");
  if (unique != nullptr && !unique->is_bool()) algebra_.Fail(*unique, "must be true or false");
  shape.unique = unique != nullptr && unique->is_true();
  const SchemaValue* contained = Get(schema, "contains");
  if (contained != nullptr) {
    shape.contains.push_back({SchemaAt(*contained), ReadCount(schema, "minContains", 1),
                              ReadCount(schema, "maxContains", kNoLimit), 0});
  }
  algebra_.Tidy(&shape);
  return shape;
}

ObjectShape SchemaCompiler::Object(const SchemaValue& schema) {
  ObjectShape shape;
  AddClasses(schema, &shape);
  AddProperties(schema, &shape);
  if (const SchemaValue* required = Get(schema, "required")) AddRequired(*required, &shape);
  shape.min = ReadCount(schema, "minProperties", 0);
  shape.max = ReadCount(schema, "maxProperties", kNoLimit);
  return shape;
}

// Divides all names by the patterns that they match.
void SchemaCompiler::AddClasses(const SchemaValue& schema, ObjectShape* shape) {
  struct Class {
    ExpressionId names;
    Term value;
    bool matched;
  };
  std::vector<Class> classes{{algebra_.strings().All(), Term::kTrue, false}};
  const SchemaValue* patterns = Get(schema, "patternProperties");
  if (patterns != nullptr && !patterns->is_object()) algebra_.Fail(*patterns, "must be an object");
  for (size_t i = 0; patterns != nullptr && i < patterns->members.size(); ++i) {
    const auto& [text, subschema] = patterns->members[i];
    const ExpressionId pattern = Pattern(subschema, text);
    const Term value = SchemaAt(subschema);
    std::vector<Class> divided;
    for (const Class& names : classes) {
      if (!algebra_.Spend(8)) return;
      const ExpressionId in = algebra_.set().And({names.names, pattern});
      const ExpressionId out = algebra_.set().Difference(names.names, pattern);
      if (!algebra_.IsEmpty(in)) divided.push_back({in, algebra_.And({names.value, value}), true});
      if (!algebra_.IsEmpty(out)) divided.push_back({out, names.value, names.matched});
    }
    classes = std::move(divided);
  }
  const SchemaValue* additional = Get(schema, "additionalProperties");
  for (const Class& names : classes) {
    Term value = names.value;
    if (!names.matched && additional != nullptr) value = SchemaAt(*additional);
    if (value != Term::kFalse) shape->classes.push_back({names.names, value});
  }
}

void SchemaCompiler::AddProperties(const SchemaValue& schema, ObjectShape* shape) {
  const SchemaValue* properties = Get(schema, "properties");
  if (properties == nullptr) return;
  if (!properties->is_object()) algebra_.Fail(*properties, "must be an object");
  const SchemaValue* patterns = Get(schema, "patternProperties");
  for (const auto& [name, subschema] : properties->members) {
    std::vector<Term> values{SchemaAt(subschema)};
    for (size_t i = 0; patterns != nullptr && i < patterns->members.size(); ++i) {
      const auto& [text, matched] = patterns->members[i];
      if (!algebra_.Spend(1)) return;
      if (algebra_.strings().Contains(Pattern(matched, text), name))
        values.push_back(SchemaAt(matched));
    }
    shape->properties.push_back({name, algebra_.And(std::move(values)), false, true});
  }
}

void SchemaCompiler::AddRequired(const SchemaValue& value, ObjectShape* shape) {
  if (!value.is_array()) {
    algebra_.Fail(value, "must be an array of names");
    return;
  }
  std::map<std::string_view, size_t> index;
  for (size_t i = 0; i < shape->properties.size(); ++i) index.emplace(shape->properties[i].name, i);
  std::vector<Property> added;
  for (const SchemaValue& name : value.items) {
    if (!name.is_string()) {
      algebra_.Fail(name, "must be a string");
      return;
    }
    const auto known = index.find(name.text);
    if (known == index.end()) {
      index.emplace(name.text, shape->properties.size() + added.size());
      added.push_back({name.text, algebra_.MemberValue(*shape, name.text), true, false});
    } else if (known->second < shape->properties.size()) {
      shape->properties[known->second].required = true;
    }
  }
  shape->properties.insert(shape->properties.end(), added.begin(), added.end());
}

}  // namespace minisgl::grammar
