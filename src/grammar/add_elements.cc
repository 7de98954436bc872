// Arguments between marks, as in XML: strings are bare text, and other values JSON text.
//
// A reader tells them apart by the schema: where it allows strings alone, all text is a string;
// where it allows strings and other values, text that begins with a letter and spells none of
// JSON's words is one.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "grammar/add_calls.h"
#include "grammar/schema_entrance.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/code_point_set.h"

namespace minisgl::grammar {
namespace {

constexpr int kReferencesMax = 16;
constexpr int64_t kLengthMax = 1'000'000;

// Keywords that do not constrain, and those of the object of arguments that are read here.
constexpr std::array<std::string_view, 13> kNotes = {
    "title",     "description", "default", "examples", "$comment",    "deprecated", "readOnly",
    "writeOnly", "$schema",     "$id",     "$defs",    "definitions", "strict"};
constexpr std::array<std::string_view, 4> kOfObjects = {"type", "properties", "required",
                                                        "additionalProperties"};
constexpr std::array<std::string_view, 5> kOfStrings = {"type", "enum", "const", "minLength",
                                                        "maxLength"};

template <typename Names>
bool IsOneOf(std::string_view name, const Names& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The first keyword of `schema` that is neither a note nor one of `known`; "" if there is none.
template <typename Names>
std::string_view UnknownKeyword(const Json& schema, const Names& known) {
  for (const auto& [key, value] : schema.as_object()) {
    if (!IsOneOf(key, kNotes) && !IsOneOf(key, known)) return key;
  }
  return "";
}

Status NotBare(std::string_view keyword) {
  return BadInput("{} is not enforced of a string that is written without quotes",
                  Visible(keyword, 100));
}

class ElementAdder {
 public:
  ElementAdder(const CallNotation& notation, const Json& root, GrammarBuilder* builder,
               std::vector<std::string>* warnings)
      : notation_(notation), root_(root), builder_(*builder), warnings_(*warnings) {}

  Result<Symbol> Arguments() {
    if (!root_.is_object()) return BadInput("parameters must be a schema of an object");
    if (const std::string_view keyword = UnknownKeyword(root_, kOfObjects); !keyword.empty()) {
      return BadInput("{} is not enforced of arguments that are written one by one",
                      Visible(keyword, 100));
    }
    const Json* const properties = root_.Find("properties");
    if (properties != nullptr && !properties->is_object()) {
      return BadInput("properties must be an object");
    }
    MINISGL_RETURN_IF_ERROR(ReadRequired(properties));
    std::vector<Symbol> elements;
    if (properties == nullptr) return builder_.Empty();
    for (const auto& [key, schema] : properties->as_object()) {
      Result<Symbol> element = Element(key, schema);
      if (!element.ok()) {
        return element.status().WithPrefix(fmt::format("the parameter {}", Visible(key, 100)));
      }
      const bool is_needed = std::find(required_.begin(), required_.end(), key) != required_.end();
      elements.push_back(is_needed ? *element : builder_.Optional(*element));
    }
    return elements.empty() ? builder_.Empty() : builder_.Sequence(elements);
  }

 private:
  Status ReadRequired(const Json* properties) {
    const Json* const required = root_.Find("required");
    if (required == nullptr) return Status();
    if (!required->is_array()) return BadInput("required must be an array");
    for (const Json& name : required->as_array()) {
      if (!name.is_string()) return BadInput("required must be an array of strings");
      if (properties == nullptr || properties->Find(name.as_string()) == nullptr) {
        return BadInput("the parameter {} is required and has no schema",
                        Visible(name.as_string(), 100));
      }
      required_.push_back(name.as_string());
    }
    return Status();
  }

  // What "$ref"s to definitions lead to.
  const Json* Resolve(const Json& schema) const {
    const Json* place = &schema;
    for (int i = 0; i < kReferencesMax && place != nullptr; ++i) {
      const Json* const reference = place->Find("$ref");
      if (reference == nullptr || !reference->is_string()) return place;
      const std::string& path = reference->as_string();
      place = nullptr;
      for (const std::string_view prefix : {"#/$defs/", "#/definitions/"}) {
        if (!path.starts_with(prefix)) continue;
        const Json* const all = root_.Find(prefix.substr(2, prefix.size() - 3));
        place = all == nullptr ? nullptr : all->Find(path.substr(prefix.size()));
      }
    }
    return nullptr;
  }

  static bool IsString(const Json& value) { return value.is_string(); }

  // True if each value of `schema` is a string; false if none is; nothing if that is not known or
  // both are allowed.
  static std::optional<bool> AllowsStringsAlone(const Json& schema) {
    const auto of_list = [](const Json& list, const auto& is_string) -> std::optional<bool> {
      const auto count = std::count_if(list.as_array().begin(), list.as_array().end(), is_string);
      if (count == 0) return false;
      return count == std::ssize(list.as_array()) ? std::optional(true) : std::nullopt;
    };
    if (!schema.is_object()) return std::nullopt;
    if (const Json* type = schema.Find("type")) {
      if (type->is_string()) return *type == Json("string");
      if (!type->is_array()) return std::nullopt;
      return of_list(*type, [](const Json& one) { return one == Json("string"); });
    }
    if (const Json* value = schema.Find("const")) return value->is_string();
    if (const Json* values = schema.Find("enum"); values != nullptr && values->is_array()) {
      return of_list(*values, IsString);
    }
    return std::nullopt;
  }

  Result<Symbol> Element(const std::string& key, const Json& schema) {
    if (key.empty() || key.find_first_of("<>\"=\n\xFF") != std::string::npos) {
      return BadInput("its name cannot stand in the marks of an argument");
    }
    const Json* const resolved = Resolve(schema);
    if (resolved == nullptr) return BadInput("its $ref is not one to a definition of the schema");
    const std::optional<bool> strings = AllowsStringsAlone(*resolved);
    if (!strings) return UnionElement(key, schema, *resolved);
    if (*strings) {
      MINISGL_ASSIGN_OR_RETURN(const ExpressionId text, BareText(*resolved));
      return Between(key, /*is_string=*/true, builder_.Terminal(text));
    }
    MINISGL_ASSIGN_OR_RETURN(const Symbol value, JsonValue(schema));
    return Between(key, /*is_string=*/false, value);
  }

  // An element that may hold a string or another value.
  Result<Symbol> UnionElement(const std::string& key, const Json& schema, const Json& resolved) {
    const Json* alternatives = nullptr;
    for (const char* name : {"anyOf", "oneOf"}) {
      if (const Json* list = resolved.Find(name); list != nullptr && list->is_array()) {
        alternatives = list;
        if (UnknownKeyword(resolved, std::array<std::string_view, 1>{name}) != "") break;
        return Alternatives(key, *alternatives);
      }
    }
    const Json* const type = resolved.is_object() ? resolved.Find("type") : nullptr;
    if (alternatives != nullptr || type == nullptr || !type->is_array() || &schema != &resolved) {
      return BadInput("it must have a type");
    }
    Json::Array split;
    for (const Json& one : type->as_array()) {
      Json copy = resolved;
      copy.Set("type", one);
      if (one == Json("string")) {
        copy = Json(Json::Object{{"type", "string"}});
        for (const auto& [name, value] : resolved.as_object()) {
          const bool of_string = name == "enum" || name == "minLength" || name == "maxLength" ||
                                 name == "pattern" || name == "format" || name == "const";
          if (of_string) copy.Set(name, value);
        }
      }
      split.push_back(std::move(copy));
    }
    return Alternatives(key, Json(std::move(split)));
  }

  Result<Symbol> Alternatives(const std::string& key, const Json& list) {
    std::vector<Symbol> symbols;
    for (const Json& one : list.as_array()) {
      const Json* const resolved = Resolve(one);
      const std::optional<bool> strings =
          resolved == nullptr ? std::nullopt : AllowsStringsAlone(*resolved);
      if (!strings) return BadInput("each of its alternatives must have a type");
      if (*strings) {
        MINISGL_ASSIGN_OR_RETURN(const ExpressionId text, BareText(*resolved));
        symbols.push_back(Between(key, /*is_string=*/true, builder_.Terminal(NoJson(text))));
      } else {
        MINISGL_ASSIGN_OR_RETURN(const Symbol value, JsonValue(one));
        symbols.push_back(Between(key, /*is_string=*/false, value));
      }
    }
    if (symbols.empty()) return BadInput("it has no alternatives");
    return builder_.Choice(symbols);
  }

  // Returns those of the texts that no reader takes for JSON.
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

  // A value as JSON text, with the definitions of the whole schema.
  Result<Symbol> JsonValue(const Json& schema) {
    Json whole = schema;
    for (const char* name : {"$schema", "$defs", "definitions"}) {
      const Json* const definitions = root_.Find(name);
      if (definitions != nullptr && whole.Find(name) == nullptr) whole.Set(name, *definitions);
    }
    std::vector<std::string> noticed;
    MINISGL_ASSIGN_OR_RETURN(
        const Symbol symbol,
        AddJsonSchema(whole.Dump(), {kCallBlanksMax, false}, &builder_, &noticed));
    warnings_.insert(warnings_.end(), noticed.begin(), noticed.end());
    return symbol;
  }

  // A string as bare text, without what ends it.
  Result<ExpressionId> BareText(const Json& schema) {
    if (const std::string_view keyword = UnknownKeyword(schema, kOfStrings); !keyword.empty()) {
      return NotBare(keyword);
    }
    ExpressionSet& e = builder_.expressions();
    const ExpressionId end = e.Literal(notation_.text_end);
    const ExpressionId free = e.Not(e.Concat({e.Anything(), end, e.Anything()}));
    const Json* values = schema.Find("enum");
    const Json* const constant = schema.Find("const");
    if (values != nullptr || constant != nullptr) {
      std::vector<std::string> texts;
      const Json one = constant == nullptr ? Json() : Json(Json::Array{*constant});
      if (constant != nullptr) values = &one;
      if (!values->is_array()) return BadInput("enum must be an array");
      for (const Json& value : values->as_array()) {
        if (value.is_string()) texts.push_back(value.as_string());
      }
      if (texts.empty()) return BadInput("none of its values is a string");
      return e.And({e.Strings(std::move(texts)), free});
    }
    MINISGL_ASSIGN_OR_RETURN(const uint32_t least, Length(schema, "minLength", 0));
    MINISGL_ASSIGN_OR_RETURN(const uint32_t most,
                             Length(schema, "maxLength", ExpressionSet::kUnbounded));
    if (least > most) return BadInput("minLength is more than maxLength");
    return e.And({e.Repeat(e.CodePoints(CodePointSet::All()), least, most), free});
  }

  static Result<uint32_t> Length(const Json& schema, const char* name, uint32_t absent) {
    const Json* const value = schema.Find(name);
    if (value == nullptr) return absent;
    if (!value->is_int() || value->as_int() < 0 || value->as_int() > kLengthMax) {
      return BadInput("{} must be an integer from 0 to {}", name, kLengthMax);
    }
    return static_cast<uint32_t>(value->as_int());
  }

  const CallNotation& notation_;
  const Json& root_;
  GrammarBuilder& builder_;
  std::vector<std::string>& warnings_;
  std::vector<std::string> required_;
};

Symbol AnyElements(const CallNotation& notation, GrammarBuilder* builder) {
  ExpressionSet& e = builder->expressions();
  const ExpressionId letter =
      e.Or({e.Bytes(ByteSet::Range('a', 'z')), e.Bytes(ByteSet::Range('A', 'Z')),
            e.Bytes(ByteSet::Range('0', '9')), e.Literal("_"), e.Literal("-")});
  const ExpressionId value =
      e.And({e.Repeat(e.CodePoints(CodePointSet::All()), 0, ExpressionSet::kUnbounded),
             e.Not(e.Concat({e.Anything(), e.Literal(notation.text_end), e.Anything()}))});
  std::vector<ExpressionId> key_ends = {e.Literal(notation.key_end)};
  if (!notation.string_key_end.empty()) key_ends.push_back(e.Literal(notation.string_key_end));
  const Symbol element =
      builder->Sequence({builder->Terminal(e.Concat({e.Literal(notation.key_begin),
                                                     e.Repeat(letter, 1, 64), e.Or(key_ends)})),
                         builder->Terminal(value), builder->Literal(notation.value_end)});
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
