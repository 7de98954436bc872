// Where a schema that nothing satisfies asks for too much.
#include <algorithm>
#include <set>

#include "grammar/json_schema/schema_compiler.h"

namespace minisgl::grammar {
namespace {

bool AllowsType(const SchemaValue& schema, std::string_view name) {
  const SchemaValue* type = schema.Find("type");
  if (type == nullptr || type->is_string()) return type == nullptr || type->text == name;
  return std::any_of(type->items.begin(), type->items.end(),
                     [name](const SchemaValue& one) { return one.text == name; });
}

}  // namespace

const SchemaValue& SchemaCompiler::EmptyPlace() {
  const SchemaValue* place = &document_->root();
  std::set<const SchemaValue*> seen;
  for (const SchemaValue* next = place; next != nullptr && seen.insert(next).second;) {
    place = next;
    next = EmptyPart(*place);
  }
  return *place;
}

// A part of `schema` that must match something and does not; null if none is known.
const SchemaValue* SchemaCompiler::EmptyPart(const SchemaValue& schema) {
  const auto first_empty = [&](const std::vector<const SchemaValue*>& parts) {
    const auto found = std::find_if(parts.begin(), parts.end(), [&](const SchemaValue* part) {
      const bool is_schema = part != nullptr && (part->is_bool() || part->is_object());
      return is_schema && algebra_.IsEmpty(SchemaAt(*part)) && algebra_.ok();
    });
    return found == parts.end() ? nullptr : *found;
  };
  std::vector<const SchemaValue*> needed;
  if (const SchemaValue* reference = Get(schema, "$ref")) {
    needed.push_back(ReferenceTarget(schema, "$ref", *reference));
  }
  if (const SchemaValue* all = Get(schema, "allOf")) {
    for (const SchemaValue& one : all->items) needed.push_back(&one);
  }
  const SchemaValue* required = Get(schema, "required");
  const SchemaValue* properties = Get(schema, "properties");
  if (required != nullptr && properties != nullptr && AllowsType(schema, "object")) {
    for (const SchemaValue& name : required->items) needed.push_back(properties->Find(name.text));
  }
  const SchemaValue* items = Get(schema, "items");
  if (items != nullptr && AllowsType(schema, "array") && ReadCount(schema, "minItems", 0) > 0) {
    needed.push_back(items);
  }
  if (const SchemaValue* part = first_empty(needed)) return part;
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const SchemaValue* list = Get(schema, keyword);
    if (list == nullptr || list->items.size() != 1) continue;
    if (const SchemaValue* part = first_empty({&list->items[0]})) return part;
  }
  return nullptr;
}

}  // namespace minisgl::grammar
