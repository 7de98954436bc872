// Arrays as rules.
#include <algorithm>
#include <map>
#include <utility>

#include "grammar/json_schema/emitter.h"

namespace minisgl::grammar {
namespace {

constexpr uint64_t kMany = GrammarBuilder::kUnbounded;
constexpr size_t kUniqueValuesMax = 60;
constexpr size_t kUniquePlacesMax = 16;  // of elements that are compared with each other

uint32_t Bounded(uint64_t count) { return static_cast<uint32_t>(std::min(count, kMany)); }

// Arrays without conditions across elements: a rule for what follows each place of the prefix, and
// a counted repetition.
class PlainArray {
 public:
  PlainArray(Emitter& emitter, const ArrayShape& shape)
      : emitter_(&emitter),
        shape_(&shape),
        comma_(emitter.PunctuationSymbol(",", true, true)),
        close_(emitter.PunctuationSymbol("]", true, false)) {}

  void AddTo(Symbol rule) {
    GrammarBuilder& builder = emitter_->builder();
    if (shape_->min == 0) {
      builder.AddAlternative(
          rule, {builder.Terminal(emitter_->set().Concat(
                    {emitter_->Punctuation("[", false, true), emitter_->set().Literal("]")}))});
    }
    if (shape_->max == 0) return;
    const size_t size = shape_->prefix.size();
    std::vector<Symbol> after(std::max<size_t>(size, 1) + 1);
    after.back() = Rest(std::max<uint64_t>(size, 1));
    for (size_t i = size; i-- > 1;) {
      if (!emitter_->CountPlace()) return;
      after[i] = emitter_->Rule("elements");
      builder.AddAlternative(after[i],
                             {comma_, emitter_->SymbolOf(shape_->prefix[i]), after[i + 1]});
      if (i >= shape_->min) builder.AddAlternative(after[i], {builder.Empty()});
    }
    const Term first = size > 0 ? shape_->prefix[0] : shape_->rest;
    builder.AddAlternative(rule, {emitter_->PunctuationSymbol("[", false, true),
                                  emitter_->SymbolOf(first), after[1], close_});
  }

 private:
  // The elements behind the first `count`, if none of them is in the prefix.
  Symbol Rest(uint64_t count) {
    GrammarBuilder& builder = emitter_->builder();
    if (shape_->max <= count) return builder.Empty();
    const uint64_t min = shape_->min > count ? shape_->min - count : 0;
    const uint64_t max = shape_->max == kNoLimit ? kMany : shape_->max - count;
    return builder.Repeat(builder.Sequence({comma_, emitter_->SymbolOf(shape_->rest)}),
                          Bounded(min), Bounded(max));
  }

  Emitter* emitter_;
  const ArrayShape* shape_;
  Symbol comma_;
  Symbol close_;
};

// Arrays with counts of certain elements: a rule for each place and each vector of counts.
class CountingArray {
 public:
  CountingArray(Emitter& emitter, const ArrayShape& shape) : emitter_(&emitter), shape_(&shape) {
    last_place_ = std::max<uint64_t>(shape.prefix.size(), shape.min);
    if (shape.max != kNoLimit) last_place_ = std::max(last_place_, shape.max);
    for (const Contains& contains : shape.contains)
      last_place_ = std::max(last_place_, contains.from);
  }

  void AddTo(Symbol rule) {
    GrammarBuilder& builder = emitter_->builder();
    const State start{0, std::vector<uint64_t>(shape_->contains.size(), 0)};
    const Symbol first = RuleOf(start);
    while (!undefined_.empty() && emitter_->CountPlace()) {
      const auto [state, symbol] = std::move(undefined_.back());
      undefined_.pop_back();
      Define(state, symbol);
    }
    builder.AddAlternative(rule, {emitter_->PunctuationSymbol("[", false, true), first});
  }

 private:
  struct State {
    uint64_t place;
    std::vector<uint64_t> counts;
    auto operator<=>(const State&) const = default;
  };

  Symbol RuleOf(const State& state) {
    const auto [at, added] = rules_.emplace(state, Symbol());
    if (added) {
      at->second = emitter_->Rule("elements");
      undefined_.emplace_back(state, at->second);
    }
    return at->second;
  }

  void Define(const State& state, Symbol symbol) {
    GrammarBuilder& builder = emitter_->builder();
    bool may_end = state.place >= shape_->min;
    for (size_t i = 0; i < state.counts.size(); ++i)
      may_end = may_end && state.counts[i] >= shape_->contains[i].min;
    if (may_end)
      builder.AddAlternative(symbol, {emitter_->PunctuationSymbol("]", state.place > 0, false)});
    if (state.place >= shape_->max) return;
    const Term item =
        state.place < shape_->prefix.size() ? shape_->prefix[state.place] : shape_->rest;
    AddElements(state, 0, {item}, state, symbol);
  }

  // Adds elements that are in some of the counted sets from `at` on, and not in the others.
  void AddElements(const State& state, size_t at, std::vector<Term> item, State next,
                   Symbol symbol) {
    if (!emitter_->CountPlace()) return;
    if (at == shape_->contains.size()) {
      const Term value = emitter_->algebra().And(item);
      if (emitter_->algebra().IsEmpty(value)) return;
      next.place = std::min(state.place + 1, last_place_ + (shape_->max == kNoLimit ? 0 : 1));
      if (next.place == 0) next.place = last_place_ = 1;
      std::vector<Symbol> symbols;
      if (state.place > 0) symbols.push_back(emitter_->PunctuationSymbol(",", true, true));
      symbols.push_back(emitter_->SymbolOf(value));
      symbols.push_back(RuleOf(next));
      emitter_->builder().AddAlternative(symbol, symbols);
      return;
    }
    const Contains& contains = shape_->contains[at];
    const bool counts = state.place >= contains.from;
    const bool has_max = contains.max != kNoLimit;
    if (counts && state.counts[at] < (has_max ? contains.max : contains.min)) {
      State counted = next;
      ++counted.counts[at];
      std::vector<Term> in = item;
      in.push_back(contains.value);
      AddElements(state, at + 1, std::move(in), std::move(counted), symbol);
    }
    // Without a maximum, an element need not be counted.
    if (counts && has_max) item.push_back(emitter_->algebra().Not(contains.value));
    AddElements(state, at + 1, std::move(item), std::move(next), symbol);
  }

  Emitter* emitter_;
  const ArrayShape* shape_;
  uint64_t last_place_;  // places from here on are alike
  std::map<State, Symbol> rules_;
  std::vector<std::pair<State, Symbol>> undefined_;
};

// The values of a normal, if they are few, and neither arrays nor objects.
class FewValues {
 public:
  explicit FewValues(Emitter& emitter) : emitter_(&emitter) {}

  // Expressions of all spellings of each value; false if they are too many or of other kinds.
  bool Find(const Normal& normal, std::vector<ExpressionId>* out) {
    if (!normal.arrays.empty() || !normal.objects.empty()) return false;
    ExpressionSet& set = emitter_->set();
    if (normal.null) out->push_back(set.Literal("null"));
    if (normal.false_) out->push_back(set.Literal("false"));
    if (normal.true_) out->push_back(set.Literal("true"));
    return FindNumbers(normal.number, out) && FindStrings(normal.string, out);
  }

 private:
  // Appends, for each number, the spellings of it that `numbers` has: in draft 4, 1.0 is no
  // integer.
  bool FindNumbers(ExpressionId numbers, std::vector<ExpressionId>* out) {
    ExpressionSet& set = emitter_->set();
    ExpressionId left = numbers;
    while (left != set.Nothing()) {
      const auto text = set.ShortestText(left);
      if (!text.ok() || out->size() > kUniqueValuesMax) return false;
      if (!text->has_value()) break;
      Decimal number;
      if (!ParseDecimal(**text, &number)) return false;
      const ExpressionId equal = emitter_->algebra().numbers().Equal(number);
      out->push_back(set.And({numbers, equal}));
      left = set.Difference(left, equal);
    }
    return true;
  }

  bool FindStrings(ExpressionId left, std::vector<ExpressionId>* out) {
    ExpressionSet& set = emitter_->set();
    while (left != set.Nothing()) {
      const auto text = set.ShortestText(left);
      if (!text.ok() || out->size() > kUniqueValuesMax) return false;
      if (!text->has_value()) break;
      // Other spellings of control characters are left out, not taken for other values.
      if (text->value().find("\\u00") != std::string::npos) return false;
      const ExpressionId one = set.Literal(**text);
      out->push_back(emitter_->Quoted(one));
      left = set.Difference(left, one);
      if (text->value().find('\\') != std::string::npos) return false;
    }
    return true;
  }

  Emitter* emitter_;
};

// True if no two elements can be equal: their places have nothing in common, such as a name and a
// number.
bool HasDistinctPlaces(Algebra& algebra, const ArrayShape& shape) {
  std::vector<Term> places = shape.prefix;
  if (shape.max < places.size()) places.resize(shape.max);
  if (shape.max > places.size() && !algebra.IsEmpty(shape.rest)) {
    if (shape.max > places.size() + 1) return false;
    places.push_back(shape.rest);
  }
  if (places.size() > kUniquePlacesMax) return false;
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!algebra.IsEmpty(algebra.And({places[j], places[i]}))) return false;
    }
  }
  return true;
}

}  // namespace

void EmitArray(Emitter& emitter, const ArrayShape& shape, Symbol rule) {
  if (shape.contains.empty()) {
    PlainArray(emitter, shape).AddTo(rule);
  } else {
    CountingArray(emitter, shape).AddTo(rule);
  }
}

void EmitUniqueArray(Emitter& emitter, const ArrayShape& shape, Symbol rule) {
  Algebra& algebra = emitter.algebra();
  if (HasDistinctPlaces(algebra, shape)) return EmitArray(emitter, shape, rule);
  ExpressionSet& set = emitter.set();
  std::vector<ExpressionId> values;
  if (!shape.prefix.empty() || !shape.contains.empty() ||
      !FewValues(emitter).Find(*algebra.NormalOf(shape.rest), &values) ||
      values.size() > kUniqueValuesMax) {
    algebra.Fail(
        "\"uniqueItems\" is supported where the elements have few values (an enum) or "
        "no values in common (a name and a number) only");
    return;
  }
  if (shape.min > values.size()) return;
  const ExpressionId comma = emitter.Punctuation(",", true, true);
  // A list of `item`, each but the last with a comma behind it.
  const auto list = [&](ExpressionId item, uint32_t min, uint32_t max) {
    const ExpressionId more =
        set.Repeat(set.Concat({item, comma}), min > 0 ? min - 1 : 0, max == kMany ? max : max - 1);
    const ExpressionId some = set.Concat({more, item});
    return min > 0 ? some : set.Optional(some);
  };
  const uint64_t most = std::min<uint64_t>(shape.max, values.size());
  std::vector<ExpressionId> conditions{list(set.Or(values), Bounded(shape.min), Bounded(most))};
  if (most == 0) conditions = {set.Empty()};
  for (size_t i = 0; values.size() > 1 && i < values.size(); ++i) {
    std::vector<ExpressionId> others;
    for (size_t j = 0; j < values.size(); ++j) {
      if (j != i) others.push_back(values[j]);
    }
    // The value at most once: others, perhaps it, others.
    const ExpressionId other = set.Or(others);
    const ExpressionId before = set.Repeat(set.Concat({other, comma}), 0, Bounded(kMany));
    const ExpressionId after = set.Repeat(set.Concat({comma, other}), 0, Bounded(kMany));
    conditions.push_back(
        set.Or({list(other, 0, Bounded(kMany)), set.Concat({before, values[i], after})}));
  }
  const ExpressionId elements = set.And(conditions);
  const ExpressionId open = emitter.Punctuation("[", false, true);
  std::vector<ExpressionId> ways;
  if (shape.min == 0) ways.push_back(set.Concat({open, set.Literal("]")}));
  ways.push_back(set.Concat(
      {open, set.Difference(elements, set.Empty()), emitter.Punctuation("]", true, false)}));
  if (!algebra.Spend(values.size() * values.size())) return;
  emitter.builder().AddAlternative(rule, {emitter.builder().Terminal(set.Or(ways))});
}

}  // namespace minisgl::grammar
