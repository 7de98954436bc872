#include "grammar/json_schema/emitter.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expression_table.h"

namespace minisgl::grammar {
namespace {

constexpr size_t kPlacesMax = 200'000;

// A run of blanks is some spaces, or at most two line breaks, with a space before them, and an
// indentation: deeply indented texts fit, and a model that finds nothing better to write than line
// breaks is stopped soon.
constexpr uint32_t kLineBreaksMax = 2;
constexpr uint32_t kIndentMax = 24;

ExpressionId Blanks(ExpressionSet& set, uint32_t blanks_max) {
  if (blanks_max == 1) return set.Optional(set.Literal(" "));
  ByteSet in_line, ends_line;
  for (const char c : {' ', '\t'}) in_line.Add(static_cast<uint8_t>(c));
  for (const char c : {'\n', '\r'}) ends_line.Add(static_cast<uint8_t>(c));
  const ExpressionId blank = set.Bytes(in_line);
  const ExpressionId line_break = set.Or({set.Literal("\r\n"), set.Bytes(ends_line)});
  const ExpressionId breaks = set.Repeat(line_break, 1, kLineBreaksMax);
  return set.Or({set.Repeat(blank, 0, blanks_max),
                 set.Concat({set.Optional(blank), breaks, set.Repeat(blank, 0, kIndentMax)})});
}

// The same with a state for each place: blanks are followed in every mask.
std::shared_ptr<const ByteAutomaton> MakeBlankAutomaton(uint32_t blanks_max) {
  constexpr std::string_view kBytes = " \t\n\r";
  constexpr size_t kOther = kBytes.size(), kNumClasses = kBytes.size() + 1;
  ExpressionSet set;
  std::vector<ExpressionId> states = {Blanks(set, blanks_max)};
  auto automaton = std::make_shared<ByteAutomaton>();
  automaton->num_classes = kNumClasses;
  automaton->class_of_byte.fill(kOther);
  for (size_t i = 0; i < kBytes.size(); ++i) {
    automaton->class_of_byte[static_cast<uint8_t>(kBytes[i])] = static_cast<uint8_t>(i);
  }
  for (size_t state = 0; state < states.size(); ++state) {
    automaton->accepting.push_back(set.IsNullable(states[state]));
    for (const char byte : kBytes) {
      const ExpressionId next = set.Derivative(states[state], static_cast<uint8_t>(byte));
      const auto place = std::find(states.begin(), states.end(), next);
      const auto index = static_cast<uint32_t>(place - states.begin());
      if (next != set.Nothing() && place == states.end()) states.push_back(next);
      automaton->next.push_back(next == set.Nothing() ? ByteAutomaton::kNoState : index);
    }
    automaton->next.push_back(ByteAutomaton::kNoState);
  }
  FindDistances(automaton.get());
  return automaton;
}

std::shared_ptr<const ByteAutomaton> BlankAutomaton(uint32_t blanks_max) {
  static constexpr uint32_t kUsual = JsonSchemaOptions().blanks_max;
  static const std::shared_ptr<const ByteAutomaton> usual = MakeBlankAutomaton(kUsual);
  return blanks_max == kUsual ? usual : MakeBlankAutomaton(blanks_max);
}

}  // namespace

Emitter::Emitter(Algebra& algebra, GrammarBuilder& builder, const JsonSchemaOptions& options)
    : algebra_(&algebra), builder_(&builder), any_order_(options.any_order) {
  blanks_ =
      options.blanks_max == 0 ? set().Empty() : set().Automaton(BlankAutomaton(options.blanks_max));
  quote_ = set().Literal("\"");
  allowed_ = set().Anything();
  if (!options.excluded.empty()) {
    const ExpressionId excluded = set().Literal(options.excluded);
    allowed_ = set().Not(set().Concat({allowed_, excluded, allowed_}));
  }
}

Symbol Emitter::Rule(const char* name) { return builder_->Declare(name); }

bool Emitter::CountPlace() {
  if (++places_ > kPlacesMax) algebra_->Fail("the schema's combinations are too many to compile");
  return algebra_->Spend(1) && builder_->status().ok();
}

ExpressionId Emitter::Quoted(ExpressionId strings) {
  return set().Concat({quote_, set().And({strings, allowed_}), quote_});
}

ExpressionId Emitter::Punctuation(std::string_view text, bool before, bool behind) {
  return set().Concat(
      {before ? blanks_ : set().Empty(), set().Literal(text), behind ? blanks_ : set().Empty()});
}

Symbol Emitter::PunctuationSymbol(std::string_view text, bool before, bool behind) {
  return builder_->Terminal(Punctuation(text, before, behind));
}

ExpressionId Emitter::Scalars(const Normal& normal) {
  std::vector<ExpressionId> kinds;
  if (normal.null) kinds.push_back(set().Literal("null"));
  if (normal.false_) kinds.push_back(set().Literal("false"));
  if (normal.true_) kinds.push_back(set().Literal("true"));
  if (normal.number != set().Nothing()) {
    kinds.push_back(algebra_->numbers().Terminal(normal.number));
  }
  if (normal.string != set().Nothing()) kinds.push_back(Quoted(normal.string));
  return set().Or(kinds);
}

Symbol Emitter::SymbolOf(Term term) {
  const auto known = symbols_.find(term);
  if (known != symbols_.end()) return known->second;
  std::shared_ptr<const Normal> normal = algebra_->NormalOf(term);
  Symbol symbol;
  if (normal->arrays.empty() && normal->objects.empty()) {
    symbol = ScalarsSymbol(term, Scalars(*normal));
  } else {
    symbol = Rule("value");
    undefined_.push_back({symbol, term, std::move(normal)});
  }
  symbols_.emplace(term, symbol);
  return symbol;
}

// A terminal whose place is named if it turns out to be too complex.
Symbol Emitter::ScalarsSymbol(Term term, ExpressionId scalars) {
  const Symbol symbol = builder_->Terminal(scalars);
  const SchemaValue* const place = algebra_->PlaceOf(term);
  if (place != nullptr) builder_->SetPlace(symbol, place->Pointer());
  return symbol;
}

void Emitter::Define(const Undefined& undefined) {
  const Symbol rule = undefined.rule;
  const Normal& normal = *undefined.normal;
  algebra_->SetPlace(algebra_->PlaceOf(undefined.term));
  const ExpressionId scalars = Scalars(normal);
  if (scalars != set().Nothing()) {
    builder_->AddAlternative(rule, {ScalarsSymbol(undefined.term, scalars)});
  }
  for (const ArrayShape& shape : normal.arrays) {
    if (algebra_->IsEmpty(shape)) continue;
    if (shape.unique) {
      EmitUniqueArray(*this, shape, rule);
    } else {
      EmitArray(*this, shape, rule);
    }
  }
  std::vector<ObjectShape> objects;
  for (const ObjectShape& shape : normal.objects) {
    if (!algebra_->IsEmpty(shape)) objects.push_back(shape);
  }
  EmitObjects(*this, objects, rule);
}

Symbol Emitter::Emit(Term root) {
  const Symbol symbol = SymbolOf(root);
  while (!undefined_.empty() && CountPlace()) {
    const Undefined undefined = std::move(undefined_.back());
    undefined_.pop_back();
    Define(undefined);
  }
  return symbol;
}

}  // namespace minisgl::grammar
