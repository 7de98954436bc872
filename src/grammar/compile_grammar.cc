// One entrance for every kind of grammar.
#include <algorithm>

#include "grammar/add_calls.h"
#include "grammar/gbnf.h"
#include "grammar/regular_expression.h"
#include "grammar/schema_entrance.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

namespace {

Result<Symbol> AddText(const GrammarText& grammar, GrammarBuilder* builder,
                       std::vector<std::string>* warnings) {
  ExpressionSet& expressions = builder->expressions();
  switch (grammar.kind) {
    case GrammarKind::kJsonSchema:
      return grammar::AddJsonSchema(grammar.text, {}, builder, warnings);
    case GrammarKind::kJsonObject:
      return grammar::AddJsonSchema(grammar::kJsonObjectSchema, {}, builder, warnings);
    case GrammarKind::kRegularExpression: {
      MINISGL_ASSIGN_OR_RETURN(const ExpressionId expression,
                               grammar::ParseRegularExpression(grammar.text, {}, expressions));
      return builder->Terminal(expression);
    }
    case GrammarKind::kChoice:
      if (grammar.choices.empty()) return BadInput("there are no choices");
      for (size_t i = 0; i < grammar.choices.size(); ++i) {
        if (!IsValidUtf8(grammar.choices[i])) return BadInput("choice {} is not valid UTF-8", i);
      }
      return builder->Terminal(expressions.Strings(grammar.choices));
    case GrammarKind::kGbnf:
      return grammar::AddGbnf(grammar.text, builder);
    case GrammarKind::kCalls:
      break;  // AddWhole
  }
  return BadInput("a grammar of no kind");
}

// A trie of texts has an expression for each byte that they do not share, and a text that begins
// another one is a level of nesting, through which no work descends.
GrammarLimits LimitsOfChoices(GrammarLimits limits) {
  limits.expressions.nodes_max *= 3;
  limits.expressions.operands_max *= 2;
  limits.expressions.depth_max = 60'000;
  return limits;
}

// White space beside a tag. More of it would be no part of the tag, but nothing needs more.
constexpr uint32_t kSpacesMax = 8;

Symbol Spaces(GrammarBuilder* builder) {
  ByteSet spaces;
  for (const char space : std::string_view(" \t\r\n")) spaces.Add(static_cast<uint8_t>(space));
  ExpressionSet& expressions = builder->expressions();
  return builder->Terminal(expressions.Repeat(expressions.Bytes(spaces), 0, kSpacesMax));
}

// The thought up to its closing tag: it ends at the first one.
Symbol ThoughtAndClose(const ThoughtForm& thought, GrammarBuilder* builder) {
  ExpressionSet& e = builder->expressions();
  const ExpressionId close = e.Literal(thought.close);
  const ExpressionId text = e.Not(e.Concat({e.Anything(), close, e.Anything()}));
  return builder->Terminal(e.Concat({text, close}));
}

// Bytes of a header: nothing needs more.
constexpr uint32_t kHeaderMax = 48;

// The first byte of the tags of messages, which no text has.
ExpressionId AnyByteBut(char mark, ExpressionSet* e) {
  ByteSet bytes = ByteSet::All();
  const auto value = static_cast<uint8_t>(mark);
  bytes.words[value >> 6] &= ~(uint64_t{1} << (value & 63));
  return e->Bytes(bytes);
}

// From the tag of the channel to that of the content. Behind the answer's channel may stand what
// the content is; a thought is in any other channel, and is no call.
Symbol AddHeader(const ThoughtForm::Channels& tags, bool is_answer, GrammarBuilder* builder) {
  ExpressionSet& e = builder->expressions();
  const ExpressionId answer = e.Literal(tags.answer_channel);
  ExpressionId name = answer;
  if (is_answer) {
    const ExpressionId constrain = e.Literal(tags.constrain.empty() ? " " : tags.constrain);
    const ExpressionId any = e.Or({AnyByteBut(tags.message.front(), &e), constrain});
    const ExpressionId first = e.Or({e.Literal(" "), constrain});
    name = e.Concat({answer, e.Optional(e.Concat({first, e.Repeat(any, 0, kHeaderMax)}))});
  } else {
    const ExpressionId word = e.Repeat(e.Bytes(ByteSet::Range('a', 'z')), 1, kHeaderMax);
    name = e.Difference(word, answer);
  }
  return builder->Terminal(e.Concat({e.Literal(tags.channel), name, e.Literal(tags.message)}));
}

// The content of a thought up to the tag of the next channel.
Symbol AddContent(const ThoughtForm::Channels& tags, GrammarBuilder* builder) {
  ExpressionSet& e = builder->expressions();
  const ExpressionId start = e.Literal(tags.start), end = e.Literal(tags.end);
  const ExpressionId mark = e.Or({start, end, e.Literal(tags.channel)});
  const ExpressionId text = e.Not(e.Concat({e.Anything(), mark, e.Anything()}));
  const ExpressionId next = e.Optional(e.Concat({start, e.Literal(tags.role)}));
  return builder->Terminal(e.Concat({text, e.Optional(end), next}));
}

// `answer`: what follows the thoughts, with its header. `bare`: what may stand in place of both.
Symbol AddChannels(const ThoughtForm& thought, Symbol answer, Symbol bare,
                   GrammarBuilder* builder) {
  const ThoughtForm::Channels& tags = thought.channels;
  const Symbol spaces = Spaces(builder);
  const Symbol content = AddContent(tags, builder);
  const Symbol thoughts =
      builder->Repeat(builder->Sequence({AddHeader(tags, /*is_answer=*/false, builder), content}),
                      0, GrammarBuilder::kUnbounded);
  const Symbol rest = builder->Sequence({thoughts, answer});
  if (thought.starts_inside) return builder->Sequence({content, rest});
  return builder->Choice({bare, builder->Sequence({spaces, rest})});
}

// The text of an answer in the message of its channel.
Symbol InAnswerChannel(const ThoughtForm& thought, Symbol text, GrammarBuilder* builder) {
  return builder->Sequence(
      {AddHeader(thought.channels, /*is_answer=*/true, builder), Spaces(builder), text});
}

Symbol AddThought(const ThoughtForm& thought, Symbol text, GrammarBuilder* builder) {
  if (!thought.channels.channel.empty()) {
    return AddChannels(thought, InAnswerChannel(thought, text, builder), text, builder);
  }
  const Symbol spaces = Spaces(builder);
  Symbol behind = text;
  if (!thought.wrap.empty()) {
    const Symbol wrapped = builder->Sequence({builder->Literal(thought.wrap), spaces, text});
    behind = builder->Choice({text, wrapped});
  }
  const Symbol rest = builder->Sequence({ThoughtAndClose(thought, builder), spaces, behind});
  if (thought.starts_inside) return rest;
  const Symbol start = builder->Declare("answer");
  builder->AddAlternative(start, {spaces, builder->Literal(thought.open), rest});
  builder->AddAlternative(start, {text});
  if (!thought.answer.empty()) {
    builder->AddAlternative(start, {spaces, builder->Literal(thought.answer), spaces, text});
  }
  return start;
}

// The calls of an answer, after its thoughts.
Result<Symbol> AddCallsAfterThought(const CallGrammar& grammar, const ThoughtForm& thought,
                                    GrammarBuilder* builder, std::vector<std::string>* warnings) {
  MINISGL_ASSIGN_OR_RETURN(grammar::CallSymbols symbols,
                           grammar::AddCalls(grammar, builder, warnings));
  if (symbols.text && grammar.text != nullptr) {
    MINISGL_ASSIGN_OR_RETURN(symbols.text, AddText(*grammar.text, builder, warnings));
    symbols.text_or_calls = builder->Choice({*symbols.text, symbols.calls});
  }
  if (!grammar.notation.in_header || thought.channels.channel.empty()) {
    const Symbol start = symbols.text_or_calls.value_or(symbols.calls);
    return thought.close.empty() ? start : AddThought(thought, start, builder);
  }
  if (!symbols.text) return AddChannels(thought, symbols.calls, symbols.calls, builder);
  const Symbol answer =
      builder->Choice({InAnswerChannel(thought, *symbols.text, builder), symbols.calls});
  return AddChannels(thought, answer, builder->Choice({*symbols.text, symbols.calls}), builder);
}

Result<Symbol> AddWhole(const GrammarText& grammar, const ThoughtForm& thought,
                        GrammarBuilder* builder, std::vector<std::string>* warnings) {
  if (grammar.kind == GrammarKind::kCalls) {
    if (grammar.calls == nullptr) return BadInput("there are no calls");
    return AddCallsAfterThought(*grammar.calls, thought, builder, warnings);
  }
  MINISGL_ASSIGN_OR_RETURN(const Symbol text, AddText(grammar, builder, warnings));
  return thought.close.empty() ? text : AddThought(thought, text, builder);
}

}  // namespace

Result<std::shared_ptr<const CompiledGrammar>> CompileGrammar(const GrammarText& grammar,
                                                              const GrammarLimits& limits,
                                                              const ThoughtForm& thought) {
  GrammarBuilder builder(grammar.kind == GrammarKind::kChoice ? LimitsOfChoices(limits) : limits);
  std::vector<std::string> warnings;
  MINISGL_ASSIGN_OR_RETURN(const Symbol start, AddWhole(grammar, thought, &builder, &warnings));
  auto compiled = CompiledGrammar::Build(std::move(builder), start, std::move(warnings));
  if (!compiled.ok() && grammar.kind == GrammarKind::kJsonSchema) {
    return grammar::WithEmptyPlace(grammar.text, limits, compiled.status());
  }
  return compiled;
}

std::optional<Result<std::shared_ptr<const CompiledGrammar>>> TryCompileGrammar(
    const GrammarText& grammar, uint64_t work_max, const GrammarLimits& limits,
    const ThoughtForm& thought) {
  bool out_of_work = false;
  GrammarLimits limited = limits;
  limited.expressions.work_max = work_max;
  limited.expressions.out_of_work = &out_of_work;
  Result<std::shared_ptr<const CompiledGrammar>> compiled =
      CompileGrammar(grammar, limited, thought);
  if (out_of_work) return std::nullopt;
  return compiled;
}

}  // namespace minisgl
