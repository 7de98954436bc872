#include "json_grammar.h"

namespace minisgl {

namespace {

constexpr uint32_t kNoEnd = GrammarBuilder::kUnbounded;

ExpressionId AnyOf(ExpressionSet* e, const char* characters) {
  ByteSet set;
  for (; *characters != '\0'; ++characters) set.Add(static_cast<uint8_t>(*characters));
  return e->Bytes(set);
}

ExpressionId JsonNumber(ExpressionSet* e) {
  const ExpressionId digit = AnyOf(e, "0123456789");
  const ExpressionId digits = e->Repeat(digit, 1, kNoEnd);
  const ExpressionId whole =
      e->Or({e->Literal("0"), e->Concat({AnyOf(e, "123456789"), e->Repeat(digit, 0, kNoEnd)})});
  const ExpressionId fraction = e->Optional(e->Concat({e->Literal("."), digits}));
  const ExpressionId exponent =
      e->Optional(e->Concat({AnyOf(e, "eE"), e->Optional(AnyOf(e, "+-")), digits}));
  return e->Concat({e->Optional(e->Literal("-")), whole, fraction, exponent});
}

ExpressionId JsonString(ExpressionSet* e, uint32_t string_max) {
  const ExpressionId hex = AnyOf(e, "0123456789abcdefABCDEF");
  const ExpressionId plain =
      e->CodePoints(CodePointSet({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCodePointMax}}));
  const ExpressionId escape = e->Concat(
      {e->Literal("\\"),
       e->Or({AnyOf(e, "\"\\/bfnrt"), e->Concat({e->Literal("u"), hex, hex, hex, hex})})});
  return e->Concat(
      {e->Literal("\""), e->Repeat(e->Or({plain, escape}), 0, string_max), e->Literal("\"")});
}

}  // namespace

std::shared_ptr<const CompiledGrammar> JsonGrammar(uint32_t string_max,
                                                   const GrammarLimits& limits) {
  GrammarBuilder b(limits);
  ExpressionSet& e = b.expressions();
  const Symbol blanks = b.Terminal(e.Repeat(AnyOf(&e, " \t\n\r"), 0, 8));
  const Symbol string = b.Terminal(JsonString(&e, string_max));
  const Symbol value = b.Declare("value");
  const Symbol member = b.Sequence({string, blanks, b.Literal(":"), blanks, value, blanks});
  const Symbol members =
      b.Sequence({member, b.Repeat(b.Sequence({b.Literal(","), blanks, member}), 0, kNoEnd)});
  const Symbol element = b.Sequence({value, blanks});
  const Symbol elements =
      b.Sequence({element, b.Repeat(b.Sequence({b.Literal(","), blanks, element}), 0, kNoEnd)});
  b.Define(value, {{b.Literal("{"), blanks, b.Optional(members), b.Literal("}")},
                   {b.Literal("["), blanks, b.Optional(elements), b.Literal("]")},
                   {string},
                   {b.Terminal(JsonNumber(&e))},
                   {b.Terminal(e.Strings({"true", "false", "null"}))}});
  return *CompiledGrammar::Build(std::move(b), value);
}

}  // namespace minisgl
