#include "grammar/add_calls.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "grammar/rules.h"
#include "grammar/schema_entrance.h"
#include "minisgl/base/json.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

constexpr std::string_view kBlanksBesideText = " \t\r\n";
// Stands before the spelling of a control token.
constexpr uint8_t kControlByte = 0xFF;

ByteSet TextBytes() { return ByteSet::Range(0, kControlByte - 1); }

// A name as it stands in a call. In a notation without quotes nothing ends it but what follows.
Result<std::string> NameIn(const CallNotation& notation, const std::string& name) {
  if (notation.quotes_name) {
    const std::string quoted = Json(name).Dump();
    return quoted.substr(1, quoted.size() - 2);
  }
  const bool begins_well = notation.arguments != ArgumentNotation::kMembers || name.empty() ||
                           name[0] < '0' || name[0] > '9';
  const bool is_plain = begins_well && std::all_of(name.begin(), name.end(), [](char byte) {
                          return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                                 (byte >= '0' && byte <= '9') || byte == '_' || byte == '-' ||
                                 byte == '.';
                        });
  if (is_plain && !name.empty()) return name;
  return BadInput("its name may have only letters, digits, _, - and . where the model writes it");
}

// Sequence of literals and symbols that leaves out empty texts.
class Parts {
 public:
  explicit Parts(GrammarBuilder* builder) : builder_(*builder) {}
  Parts& Text(std::string_view text) {
    if (!text.empty()) symbols_.push_back(builder_.Literal(text));
    return *this;
  }
  Parts& Add(Symbol symbol) {
    symbols_.push_back(symbol);
    return *this;
  }
  Symbol Whole() { return builder_.Sequence(symbols_); }

 private:
  GrammarBuilder& builder_;
  std::vector<Symbol> symbols_;
};

Result<Symbol> AddArguments(const CallNotation& notation, const std::string& parameters,
                            GrammarBuilder* builder, std::vector<std::string>* warnings) {
  if (notation.arguments == ArgumentNotation::kElements) {
    return AddElements(notation, parameters, builder, warnings);
  }
  if (notation.arguments != ArgumentNotation::kJson) {
    return AddMembers(notation, parameters, builder, warnings);
  }
  const std::string_view schema = parameters.empty() ? kJsonObjectSchema : parameters;
  MINISGL_ASSIGN_OR_RETURN(const Symbol symbol,
                           AddJsonSchema(schema, {kCallBlanksMax, false}, builder, warnings));
  // The whole grammar would leave the function out.
  const Status nothing = BadInput("{}", kNothingMatches);
  const Status found = WithEmptyPlace(schema, {}, nothing);
  if (found.message() != nothing.message()) return found;
  return symbol;
}

Result<Symbol> AddCall(const CallNotation& notation, const CallFunction& function,
                       GrammarBuilder* builder, std::vector<std::string>* warnings) {
  MINISGL_ASSIGN_OR_RETURN(const std::string name, NameIn(notation, function.name));
  std::vector<std::string> noticed;
  MINISGL_ASSIGN_OR_RETURN(const Symbol arguments,
                           AddArguments(notation, function.parameters, builder, &noticed));
  for (const std::string& warning : noticed) {
    warnings->push_back(fmt::format("the function {}: {}", Visible(function.name, 100), warning));
  }
  Parts parts(builder);
  if (notation.is_numbered) {
    ExpressionSet& e = builder->expressions();
    const ExpressionId digit = e.Bytes(ByteSet::Range('0', '9'));
    const ExpressionId more = e.Concat({e.Bytes(ByteSet::Range('1', '9')), e.Repeat(digit, 0, 2)});
    parts.Text(notation.call_begin + name + ":");
    parts.Add(builder->Terminal(e.Or({e.Literal("0"), more})));
    parts.Text(notation.name_end);
  } else {
    parts.Text(notation.call_begin + name + notation.name_end);
  }
  return parts.Add(arguments).Text(notation.call_end).Whole();
}

// Text without marks of calls.
Symbol AddText(const CallNotation& notation, GrammarBuilder* builder) {
  ExpressionSet& e = builder->expressions();
  std::vector<ExpressionId> conditions = {
      e.Repeat(e.Bytes(TextBytes()), 0, ExpressionSet::kUnbounded)};
  for (const std::string& mark : notation.marks) {
    if (static_cast<uint8_t>(mark.front()) == kControlByte) continue;
    conditions.push_back(e.Not(e.Concat({e.Anything(), e.Literal(mark), e.Anything()})));
  }
  ByteSet blank_bytes;
  for (const char blank : kBlanksBesideText) blank_bytes.Add(static_cast<uint8_t>(blank));
  const ExpressionId blanks = e.Repeat(e.Bytes(blank_bytes), 0, ExpressionSet::kUnbounded);
  if (notation.excludes_objects) {
    conditions.push_back(
        e.Not(e.Concat({e.Anything(), e.Literal("{"), blanks, e.Literal("\""), e.Anything()})));
  }
  if (!notation.not_first.empty()) {
    ByteSet first;
    for (const char byte : notation.not_first) first.Add(static_cast<uint8_t>(byte));
    const ExpressionId line = e.Optional(e.Concat({e.Anything(), e.Literal("\n")}));
    conditions.push_back(e.Not(e.Concat({line, blanks, e.Bytes(first), e.Anything()})));
  }
  return builder->Terminal(e.And(conditions));
}

}  // namespace

Result<CallSymbols> AddCalls(const CallGrammar& grammar, GrammarBuilder* builder,
                             std::vector<std::string>* warnings) {
  const CallNotation& notation = grammar.notation;
  std::vector<Symbol> functions;
  for (const CallFunction& function : grammar.functions) {
    Result<Symbol> call = AddCall(notation, function, builder, warnings);
    if (!call.ok()) {
      return call.status().WithPrefix(fmt::format("the function {}", Visible(function.name, 100)));
    }
    functions.push_back(*call);
  }
  if (functions.empty()) return BadInput("there are no functions to call");
  const Symbol call = builder->Choice(functions);
  const uint32_t more_max = grammar.only_one || notation.in_header ? 0 : GrammarBuilder::kUnbounded;
  Parts parts(builder);
  parts.Text(notation.section_begin).Add(call);
  if (more_max > 0) {
    const Symbol next = Parts(builder).Text(notation.separator).Add(call).Whole();
    parts.Add(builder->Repeat(next, 0, more_max));
  }
  CallSymbols symbols;
  symbols.calls = parts.Text(notation.section_end).Whole();
  if (!grammar.may_be_text) return symbols;
  symbols.text = AddText(notation, builder);
  symbols.text_or_calls = !notation.stands_alone && !notation.in_header
                              ? builder->Sequence({*symbols.text, builder->Optional(symbols.calls)})
                              : builder->Choice({*symbols.text, symbols.calls});
  return symbols;
}

}  // namespace minisgl::grammar
