// Arguments between marks, as in XML: strings are bare text, and other values JSON text.
//
// A reader tells them apart by the schema: where it allows strings alone, all text is a string;
// where it allows strings and other values, text that begins with a letter and spells none of
// JSON's words is one.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "grammar/add_calls.h"
#include "grammar/argument_schema.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

// True if each value of `schema` is a string, false if none is; nothing if both are allowed or that
// is not known.
std::optional<bool> AllowsStringsAlone(const Json& schema) {
  const auto of_list = [](const Json& list, const auto& is_string) -> std::optional<bool> {
    if (!list.is_array()) return std::nullopt;
    const Json::Array& items = list.as_array();
    const auto count = std::count_if(items.begin(), items.end(), is_string);
    if (count == 0) return false;
    return count == std::ssize(items) ? std::optional(true) : std::nullopt;
  };
  if (const Json* type = schema.Find("type")) {
    if (type->is_string()) return *type == Json("string");
    return of_list(*type, [](const Json& one) { return one == Json("string"); });
  }
  if (const Json* value = schema.Find("const")) return value->is_string();
  const Json* const values = schema.Find("enum");
  if (values == nullptr) return std::nullopt;
  return of_list(*values, [](const Json& value) { return value.is_string(); });
}

// The alternatives of a schema with several types: of strings only what concerns strings.
Json::Array SplitByType(const Json& schema, const Json::Array& types) {
  Json::Array alternatives;
  for (const Json& type : types) {
    Json one = Json(Json::Object());
    for (const auto& [name, value] : schema.as_object()) {
      const bool of_numbers = name == "minimum" || name == "maximum" || name == "multipleOf" ||
                              name == "exclusiveMinimum" || name == "exclusiveMaximum";
      if (type == Json("string") && of_numbers) continue;
      one.Set(name, value);
    }
    one.Set("type", type);
    alternatives.push_back(std::move(one));
  }
  return alternatives;
}

class ElementAdder {
 public:
  ElementAdder(const CallNotation& notation, const Json& root, GrammarBuilder* builder,
               std::vector<std::string>* warnings)
      : notation_(notation),
        root_(root),
        builder_(*builder),
        schema_(root, builder, warnings, notation.text_end) {}

  Result<Symbol> Arguments() {
    MINISGL_ASSIGN_OR_RETURN(const auto members, schema_.MembersOf(root_));
    std::vector<ArgumentSchema::Written> elements;
    for (const ArgumentSchema::Member& member : members) {
      Result<Symbol> element = Element(member.key, *member.schema);
      if (!element.ok()) {
        return element.status().WithPrefix(
            fmt::format("the parameter {}", Visible(member.key, 100)));
      }
      elements.push_back({*element, member.is_needed});
    }
    return schema_.Join(elements, "");
  }

 private:
  Result<Symbol> Element(const std::string& key, const Json& schema) {
    if (key.empty() || key.find_first_of("<>\"=\n\xFF") != std::string::npos) {
      return BadInput("its name cannot stand in the marks of an argument");
    }
    MINISGL_ASSIGN_OR_RETURN(const Json* const resolved, schema_.Resolve(schema));
    if (const std::optional<bool> strings = AllowsStringsAlone(*resolved)) {
      return OneKind(key, schema, *resolved, *strings, /*is_alone=*/true);
    }
    for (const char* name : {"anyOf", "oneOf"}) {
      const Json* const list = resolved->Find(name);
      if (list == nullptr || !list->is_array()) continue;
      MINISGL_RETURN_IF_ERROR(
          ArgumentSchema::CheckKeywords(*resolved, {name}, "alternatives of arguments"));
      return Alternatives(key, list->as_array());
    }
    const Json* const types = resolved->Find("type");
    if (types == nullptr || !types->is_array()) return BadInput("it must have a type");
    if (types->as_array().size() > kTypesMax) return BadInput("it has too many types");
    return Alternatives(key, SplitByType(*resolved, types->as_array()));
  }

  // An element whose values are strings alone, or none.
  Result<Symbol> OneKind(const std::string& key, const Json& schema, const Json& resolved,
                         bool is_string, bool is_alone) {
    if (!is_string) {
      MINISGL_ASSIGN_OR_RETURN(const Symbol value, schema_.JsonValue(schema));
      return Between(key, /*is_string=*/false, value);
    }
    MINISGL_ASSIGN_OR_RETURN(ExpressionId text, schema_.StringText(resolved, notation_.text_end));
    if (!is_alone && notation_.string_key_end.empty()) text = NoJson(text);
    return Between(key, /*is_string=*/true, builder_.Terminal(text));
  }

  Result<Symbol> Alternatives(const std::string& key, const Json::Array& list) {
    std::vector<Symbol> symbols;
    for (const Json& one : list) {
      MINISGL_RETURN_IF_ERROR(schema_.CountPart());
      MINISGL_ASSIGN_OR_RETURN(const Json* const resolved, schema_.Resolve(one));
      const std::optional<bool> strings = AllowsStringsAlone(*resolved);
      if (!strings) return BadInput("each of its alternatives must have a type");
      MINISGL_ASSIGN_OR_RETURN(const Symbol symbol,
                               OneKind(key, one, *resolved, *strings, /*is_alone=*/false));
      symbols.push_back(symbol);
    }
    if (symbols.empty()) return BadInput("it has no alternatives");
    return builder_.Choice(symbols);
  }

  // Returns the texts among `text` that no reader takes for JSON.
  ExpressionId NoJson(ExpressionId text) {
    ExpressionSet& e = builder_.expressions();
    const ExpressionId letter =
        e.Or({e.Bytes(ByteSet::Range('a', 'z')), e.Bytes(ByteSet::Range('A', 'Z'))});
    const ExpressionId spaces =
        e.Repeat(e.Or({e.Literal(" "), e.Literal("\n"), e.Literal("\t"), e.Literal("\r")}), 0,
                 ExpressionSet::kUnbounded);
    const ExpressionId word =
        e.Concat({e.Or({e.Literal("true"), e.Literal("false"), e.Literal("null")}), spaces});
    return e.And({text, e.Difference(e.Concat({letter, e.Anything()}), word)});
  }

  Symbol Between(const std::string& key, bool is_string, Symbol value) {
    const std::string& own = notation_.string_key_end;
    const std::string& key_end = is_string && !own.empty() ? own : notation_.key_end;
    return builder_.Sequence({builder_.Literal(notation_.key_begin + key + key_end), value,
                              builder_.Literal(notation_.value_end)});
  }

  const CallNotation& notation_;
  const Json& root_;
  GrammarBuilder& builder_;
  ArgumentSchema schema_;
};

// Elements with any names and texts.
Symbol AnyElements(const CallNotation& notation, GrammarBuilder* builder) {
  ExpressionSet& e = builder->expressions();
  const ExpressionId letter =
      e.Or({e.Bytes(ByteSet::Range('a', 'z')), e.Bytes(ByteSet::Range('A', 'Z')),
            e.Bytes(ByteSet::Range('0', '9')), e.Literal("_"), e.Literal("-")});
  const Json none;
  std::vector<std::string> warnings;
  const ExpressionId value = ArgumentSchema(none, builder, &warnings).AnyText(notation.text_end);
  std::vector<ExpressionId> key_ends = {e.Literal(notation.key_end)};
  if (!notation.string_key_end.empty()) key_ends.push_back(e.Literal(notation.string_key_end));
  const ExpressionId begin =
      e.Concat({e.Literal(notation.key_begin), e.Repeat(letter, 1, 64), e.Or(key_ends)});
  const Symbol element = builder->Sequence(
      {builder->Terminal(begin), builder->Terminal(value), builder->Literal(notation.value_end)});
  return builder->Repeat(element, 0, GrammarBuilder::kUnbounded);
}

}  // namespace

Result<Symbol> AddElements(const CallNotation& notation, const std::string& parameters,
                           GrammarBuilder* builder, std::vector<std::string>* warnings) {
  if (parameters.empty()) return AnyElements(notation, builder);
  MINISGL_ASSIGN_OR_RETURN(const Json root, ParseJson(parameters));
  return ElementAdder(notation, root, builder, warnings).Arguments();
}

}  // namespace minisgl::grammar
