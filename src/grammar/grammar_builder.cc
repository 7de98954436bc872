#include <utility>

#include "grammar/rules.h"
#include "minisgl/base/check.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl {

namespace {

std::vector<uint32_t> ValuesOf(std::span<const Symbol> symbols) {
  std::vector<uint32_t> values;
  values.reserve(symbols.size());
  for (const Symbol symbol : symbols) values.push_back(symbol.value);
  return values;
}

}  // namespace

Symbol GrammarBuilder::Impl::AddRule(Rule rule) {
  CountSymbols(1);
  rules.push_back(std::move(rule));
  return {static_cast<uint32_t>(rules.size() - 1)};
}

void GrammarBuilder::Impl::CountSymbols(size_t count) {
  num_symbols += count;
  if (num_symbols > limits.symbols_max && status.ok()) {
    status = BadInput("the grammar is too large: more than {} symbols", limits.symbols_max);
  }
}

GrammarBuilder::GrammarBuilder(const GrammarLimits& limits)
    : impl_(std::make_unique<Impl>(limits)) {}
GrammarBuilder::~GrammarBuilder() = default;
GrammarBuilder::GrammarBuilder(GrammarBuilder&&) noexcept = default;
GrammarBuilder& GrammarBuilder::operator=(GrammarBuilder&&) noexcept = default;

ExpressionSet& GrammarBuilder::expressions() { return impl_->expressions; }

const Status& GrammarBuilder::status() const {
  return impl_->status.ok() ? impl_->expressions.status() : impl_->status;
}

Symbol GrammarBuilder::Terminal(ExpressionId expression) {
  const auto id = static_cast<uint32_t>(expression);
  if (impl_->terminal_of.size() <= id) impl_->terminal_of.resize(id + 1, UINT32_MAX);
  if (impl_->terminal_of[id] == UINT32_MAX) {
    impl_->CountSymbols(1);
    impl_->terminal_of[id] = static_cast<uint32_t>(impl_->terminals.size());
    impl_->terminals.push_back(expression);
  }
  return {impl_->terminal_of[id] | Impl::kTerminalBit};
}

Symbol GrammarBuilder::Literal(std::string_view text) {
  return Terminal(impl_->expressions.Literal(text));
}

void GrammarBuilder::SetPlace(Symbol terminal, std::string place) {
  impl_->place_of.emplace(terminal.value & ~Impl::kTerminalBit, std::move(place));
}

bool GrammarBuilder::IsTerminal(Symbol symbol) const {
  return (symbol.value & Impl::kTerminalBit) != 0;
}

ExpressionId GrammarBuilder::ExpressionOf(Symbol symbol) const {
  MINISGL_CHECK(IsTerminal(symbol), "not a terminal");
  return impl_->terminals[symbol.value & ~Impl::kTerminalBit];
}

Symbol GrammarBuilder::Declare(std::string name) {
  Impl::Rule rule;
  rule.name = std::move(name);
  return impl_->AddRule(std::move(rule));
}

void GrammarBuilder::AddAlternative(Symbol rule, std::span<const Symbol> symbols) {
  MINISGL_CHECK(!IsTerminal(rule), "a terminal has no alternatives");
  impl_->CountSymbols(symbols.size() + 1);
  if (impl_->status.ok()) impl_->rules[rule.value].alternatives.push_back(ValuesOf(symbols));
}
void GrammarBuilder::AddAlternative(Symbol rule, std::initializer_list<Symbol> symbols) {
  AddAlternative(rule, std::span(symbols.begin(), symbols.size()));
}

void GrammarBuilder::Define(Symbol rule, std::span<const std::vector<Symbol>> alternatives) {
  for (const auto& alternative : alternatives) AddAlternative(rule, alternative);
}
void GrammarBuilder::Define(Symbol rule, std::initializer_list<std::vector<Symbol>> alternatives) {
  Define(rule, std::span(alternatives.begin(), alternatives.size()));
}

Symbol GrammarBuilder::Sequence(std::span<const Symbol> symbols) {
  if (symbols.empty()) return Empty();
  if (symbols.size() == 1) return symbols[0];
  const Symbol rule = Declare("");
  AddAlternative(rule, symbols);
  return rule;
}
Symbol GrammarBuilder::Sequence(std::initializer_list<Symbol> symbols) {
  return Sequence(std::span(symbols.begin(), symbols.size()));
}

Symbol GrammarBuilder::Choice(std::span<const Symbol> alternatives) {
  if (alternatives.empty()) return Nothing();
  if (alternatives.size() == 1) return alternatives[0];
  const Symbol rule = Declare("");
  for (const Symbol alternative : alternatives) AddAlternative(rule, {alternative});
  return rule;
}
Symbol GrammarBuilder::Choice(std::initializer_list<Symbol> alternatives) {
  return Choice(std::span(alternatives.begin(), alternatives.size()));
}

Symbol GrammarBuilder::Repeat(Symbol symbol, uint32_t min, uint32_t max) {
  MINISGL_CHECK(min <= max, "a repetition of {} to {} times", min, max);
  if (max == 0) return Empty();
  if (min == 1 && max == 1) return symbol;
  Impl::Rule rule;
  rule.repeated = symbol.value;
  rule.min = min;
  rule.max = max;
  return impl_->AddRule(std::move(rule));
}

Symbol GrammarBuilder::Nothing() { return Terminal(impl_->expressions.Nothing()); }
Symbol GrammarBuilder::Empty() { return Terminal(impl_->expressions.Empty()); }

}  // namespace minisgl
