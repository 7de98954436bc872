// The keywords of JSON schema: since which draft, and where their subschemas stand.
#pragma once

#include <span>
#include <string_view>

#include "grammar/json_schema/document.h"

namespace minisgl::grammar {

enum class KeywordShape {
  kPlain,            // no subschema
  kSchema,           // a schema
  kSchemaList,       // an array of schemas
  kSchemaMap,        // an object whose values are schemas
  kSchemaOrList,     // a schema or an array of them
  kSchemaOrStrings,  // an object whose values are schemas or arrays of names
};

struct Keyword {
  std::string_view name;
  KeywordShape shape;
  Draft since;      // also of keywords that later drafts no longer have: they keep their meaning
  bool constrains;  // what does not is an annotation or a name
};

// Null if no draft has `name`.
const Keyword* FindKeyword(std::string_view name);
// The keyword from which `name` differs in the case of letters or by one edit; null if there is
// none or `name` is a keyword.
const Keyword* MisspeltKeyword(std::string_view name);

}  // namespace minisgl::grammar
