// Arguments as members with bare keys, between commas: KEY=VALUE or KEY:VALUE.
//
// With kMembers values are JSON text. With kQuotedMembers strings stand between marks, without
// escapes, and objects within have bare keys, too.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "grammar/add_calls.h"
#include "grammar/argument_schema.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

constexpr int kSchemaDepthMax = 32;

bool IsLetter(char byte) {
  return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
}
bool IsIdentifier(const std::string& key) {
  return !key.empty() && IsLetter(key[0]) && std::all_of(key.begin(), key.end(), [](char byte) {
    return IsLetter(byte) || (byte >= '0' && byte <= '9');
  });
}

ExpressionId AnyIdentifier(ExpressionSet* e) {
  const ExpressionId letter = e->Or(
      {e->Bytes(ByteSet::Range('a', 'z')), e->Bytes(ByteSet::Range('A', 'Z')), e->Literal("_")});
  const ExpressionId other = e->Or({letter, e->Bytes(ByteSet::Range('0', '9'))});
  return e->Concat({letter, e->Repeat(other, 0, 63)});
}

class MemberAdder {
 public:
  MemberAdder(const CallNotation& notation, const Json& root, GrammarBuilder* builder,
              std::vector<std::string>* warnings)
      : notation_(notation),
        root_(root),
        builder_(*builder),
        schema_(root, builder, warnings),
        is_json_(notation.arguments == ArgumentNotation::kMembers) {}

  Result<Symbol> Arguments() { return Members(root_, 0); }

  // Members with any names and values.
  Result<Symbol> AnyMembers() {
    const Symbol key = builder_.Terminal(AnyIdentifier(&builder_.expressions()));
    Symbol value;
    if (is_json_) {
      MINISGL_ASSIGN_OR_RETURN(value, schema_.JsonValue(Json(Json::Object())));
    } else {
      MINISGL_ASSIGN_OR_RETURN(value, AnyValue());
    }
    const Symbol member = builder_.Sequence({key, builder_.Literal(notation_.key_end), value});
    return List(member, 0, GrammarBuilder::kUnbounded);
  }

 private:
  Result<Symbol> Members(const Json& object, int depth) {
    MINISGL_ASSIGN_OR_RETURN(const auto members, schema_.MembersOf(object));
    std::vector<ArgumentSchema::Written> written;
    for (const ArgumentSchema::Member& member : members) {
      Result<Symbol> value = Member(member, depth);
      if (!value.ok()) {
        return value.status().WithPrefix(fmt::format("the parameter {}", Visible(member.key, 100)));
      }
      const Symbol begin = builder_.Literal(member.key + notation_.key_end);
      written.push_back({builder_.Sequence({begin, *value}), member.is_needed});
    }
    return schema_.Join(written, notation_.key_separator);
  }

  Result<Symbol> Member(const ArgumentSchema::Member& member, int depth) {
    if (!IsIdentifier(member.key)) {
      return BadInput("its name may have only letters, digits and _ where the model writes it");
    }
    return is_json_ ? schema_.JsonValue(*member.schema) : Value(*member.schema, depth + 1);
  }

  // `item` from `least` to `most` times, with separators.
  Symbol List(Symbol item, uint32_t least, uint32_t most) {
    if (most == 0) return builder_.Empty();
    const Symbol next = builder_.Sequence({builder_.Literal(notation_.key_separator), item});
    const uint32_t more_max = most == GrammarBuilder::kUnbounded ? most : most - 1;
    const Symbol list =
        builder_.Sequence({item, builder_.Repeat(next, std::max(least, 1U) - 1, more_max)});
    return least == 0 ? builder_.Optional(list) : list;
  }

  Symbol Quoted(ExpressionId text) {
    const Symbol quote = builder_.Literal(notation_.text_end);
    return builder_.Sequence({quote, builder_.Terminal(text), quote});
  }
  Symbol Bracketed(const char* open, Symbol content, const char* close) {
    return builder_.Sequence({builder_.Literal(open), content, builder_.Literal(close)});
  }

  Result<Symbol> AnyValue() {
    if (has_any_) return any_;
    any_ = builder_.Declare("value");
    has_any_ = true;
    const Json scalars = *ParseJson(R"({"type": ["number", "boolean", "null"]})");
    MINISGL_ASSIGN_OR_RETURN(const Symbol scalar, schema_.JsonValue(scalars));
    const Symbol key = builder_.Terminal(AnyIdentifier(&builder_.expressions()));
    const Symbol member = builder_.Sequence({key, builder_.Literal(notation_.key_end), any_});
    constexpr uint32_t kUnbounded = GrammarBuilder::kUnbounded;
    builder_.Define(any_, {{scalar},
                           {Quoted(schema_.AnyText(notation_.text_end))},
                           {Bracketed("[", List(any_, 0, kUnbounded), "]")},
                           {Bracketed("{", List(member, 0, kUnbounded), "}")}});
    return any_;
  }

  Result<Symbol> Value(const Json& schema, int depth) {
    MINISGL_RETURN_IF_ERROR(schema_.CountPart());
    if (depth > kSchemaDepthMax) return BadInput("its schema is nested too deeply");
    if (schema == Json(true)) return AnyValue();
    MINISGL_ASSIGN_OR_RETURN(const Json* const resolved, schema_.Resolve(schema));
    if (!resolved->is_object()) return BadInput("its schema must be an object");
    if (resolved->as_object().empty()) return AnyValue();
    for (const char* name : {"anyOf", "oneOf"}) {
      const Json* const list = resolved->Find(name);
      if (list == nullptr || !list->is_array()) continue;
      MINISGL_RETURN_IF_ERROR(
          ArgumentSchema::CheckKeywords(*resolved, {name}, "alternatives of arguments"));
      return Alternatives(list->as_array(), depth);
    }
    const Json* const type = resolved->Find("type");
    if (type != nullptr && type->is_array()) {
      if (type->as_array().size() > kTypesMax) return BadInput("it has too many types");
      Json::Array split;
      for (const Json& one : type->as_array()) {
        split.push_back(*resolved);
        split.back().Set("type", one);
      }
      return Alternatives(split, depth);
    }
    return OfType(*resolved, type, depth);
  }

  Result<Symbol> Alternatives(const Json::Array& list, int depth) {
    std::vector<Symbol> symbols;
    for (const Json& one : list) {
      MINISGL_ASSIGN_OR_RETURN(const Symbol symbol, Value(one, depth + 1));
      symbols.push_back(symbol);
    }
    if (symbols.empty()) return BadInput("it has no alternatives");
    return builder_.Choice(symbols);
  }

  Result<Symbol> OfType(const Json& schema, const Json* type, int depth) {
    const Json* const values = schema.Find("enum");
    const Json* const constant = schema.Find("const");
    const Json* const first =
        constant != nullptr ? constant
        : values != nullptr && values->is_array() && !values->as_array().empty()
            ? &values->as_array().front()
            : nullptr;
    const auto is_type = [type](const char* name) {
      return type != nullptr && *type == Json(name);
    };
    if (is_type("string") || (type == nullptr && first != nullptr && first->is_string())) {
      MINISGL_ASSIGN_OR_RETURN(const ExpressionId text,
                               schema_.StringText(schema, notation_.text_end));
      return Quoted(text);
    }
    if (is_type("array")) return ArrayOf(schema, depth);
    if (is_type("object")) {
      MINISGL_ASSIGN_OR_RETURN(const Symbol members, Members(schema, depth));
      return Bracketed("{", members, "}");
    }
    const bool is_scalar =
        is_type("integer") || is_type("number") || is_type("boolean") || is_type("null");
    if (!is_scalar) return BadInput("it must have a type");
    return schema_.JsonValue(schema);
  }

  Result<Symbol> ArrayOf(const Json& schema, int depth) {
    MINISGL_RETURN_IF_ERROR(ArgumentSchema::CheckKeywords(
        schema, {"type", "items", "minItems", "maxItems"}, "an array of arguments"));
    MINISGL_ASSIGN_OR_RETURN(const uint32_t least, ArgumentSchema::Count(schema, "minItems", 0));
    MINISGL_ASSIGN_OR_RETURN(const uint32_t most,
                             ArgumentSchema::Count(schema, "maxItems", GrammarBuilder::kUnbounded));
    if (least > most) return BadInput("minItems is more than maxItems");
    const Json* const items = schema.Find("items");
    MINISGL_ASSIGN_OR_RETURN(const Symbol item,
                             items == nullptr ? AnyValue() : Value(*items, depth + 1));
    return Bracketed("[", List(item, least, most), "]");
  }

  const CallNotation& notation_;
  const Json& root_;
  GrammarBuilder& builder_;
  ArgumentSchema schema_;
  const bool is_json_;
  Symbol any_;
  bool has_any_ = false;
};

}  // namespace

Result<Symbol> AddMembers(const CallNotation& notation, const std::string& parameters,
                          GrammarBuilder* builder, std::vector<std::string>* warnings) {
  const Json none = Json(Json::Object());
  if (parameters.empty()) return MemberAdder(notation, none, builder, warnings).AnyMembers();
  MINISGL_ASSIGN_OR_RETURN(const Json root, ParseJson(parameters));
  return MemberAdder(notation, root, builder, warnings).Arguments();
}

}  // namespace minisgl::grammar
