// Objects as rules: members in the order of the properties, then others.
//
// Shapes with the same property names are emitted together, as one automaton whose state is the
// next property and the shapes that the members so far are in. So shapes that differ in a few
// properties, as anyOf and oneOf give them, share their rules up to there.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "grammar/json_schema/emitter.h"

namespace minisgl::grammar {
namespace {

constexpr uint64_t kMost = GrammarBuilder::kUnbounded;
constexpr size_t kSomeMax = 6;       // of one shape
constexpr size_t kAnyOrderMax = 12;  // properties in any order: a state for each set of them

class ObjectRules {
 public:
  ObjectRules(Emitter& emitter, std::vector<const ObjectShape*> shapes)
      : emitter_(&emitter),
        shapes_(std::move(shapes)),
        comma_(emitter.PunctuationSymbol(",", true, true)),
        colon_(emitter.PunctuationSymbol(":", true, true)) {
    std::vector<std::string> names;
    for (const Property& property : shapes_[0]->properties) {
      names.push_back(property.name);
      keys_.push_back(emitter.Quoted(emitter.algebra().strings().Text(property.name)));
    }
    if (emitter.any_order() && names.size() > kAnyOrderMax) {
      emitter.algebra().Fail(fmt::format(
          "an object with members in any order has more than {} properties", kAnyOrderMax));
    }
    if (!names.empty()) own_names_ = emitter.algebra().strings().Texts(names);
    for (const ObjectShape* shape : shapes_) {
      if (shape->some.size() > kSomeMax)
        emitter.algebra().Fail("the schema asks for too many kinds of members at once");
      count_max_ = std::max(count_max_, CountsTo(*shape));
      size_t after_required = 0;
      for (size_t i = 0; i < shape->properties.size(); ++i) {
        if (shape->properties[i].required) after_required = i + 1;
      }
      after_required_.push_back(after_required);
    }
  }

  void AddTo(Symbol rule) {
    State start;
    start.part = Part::kFirst;
    for (size_t i = 0; i < shapes_.size(); ++i) start.shapes.push_back({i, 0});
    const Symbol first = RuleOf(start);
    while (!undefined_.empty() && emitter_->CountPlace()) {
      const auto [state, symbol] = std::move(undefined_.back());
      undefined_.pop_back();
      Define(state, symbol);
    }
    emitter_->builder().AddAlternative(rule,
                                       {emitter_->PunctuationSymbol("{", false, true), first});
  }

 private:
  // A shape that the members so far are in, and which of its `some` they contain.
  struct Live {
    size_t shape;
    uint32_t found;
    auto operator<=>(const Live&) const = default;
  };
  // A rule begins with the first member or the end; with a comma and a member, or the end; or with
  // a member. Commas and colons are terminals apart from the names, whose automata would otherwise
  // each repeat the blanks beside them.
  enum class Part : uint8_t { kFirst, kMore, kMember };
  struct State {
    size_t next = 0;    // property, if they have an order
    uint32_t used = 0;  // properties, if they have none
    Part part = Part::kMember;
    uint64_t count = 0;  // of members, as far as it matters
    std::vector<Live> shapes;
    auto operator<=>(const State&) const = default;
  };

  // The number of members up to which counting matters.
  static uint64_t CountsTo(const ObjectShape& shape) {
    uint64_t required = 0;
    for (const Property& property : shape.properties) required += property.required ? 1 : 0;
    uint64_t to = shape.min > required ? shape.min : 0;
    if (shape.max < shape.properties.size() || (shape.max != kNoLimit && !shape.classes.empty()))
      to = std::max(to, shape.max + 1);
    return to;
  }

  // `key`: a name in quotes.
  void AddMember(Symbol symbol, ExpressionId key, Symbol value, Symbol more) {
    GrammarBuilder& builder = emitter_->builder();
    builder.AddAlternative(symbol, {builder.Terminal(key), colon_, value, more});
  }
  uint64_t NextCount(uint64_t count) const { return std::min(count + 1, count_max_); }

  Symbol RuleOf(const State& state) {
    const auto [at, added] = rules_.emplace(state, Symbol());
    if (added) {
      at->second = emitter_->Rule("members");
      undefined_.emplace_back(state, at->second);
    }
    return at->second;
  }

  void Define(const State& state, Symbol symbol) {
    if (state.part != Part::kMember) return AddMemberOrEnd(state, symbol);
    if (emitter_->any_order()) return AddAnyMember(state, symbol);
    if (state.next < keys_.size()) {
      State without = state, with = state;
      ++without.next;
      ++with.next;
      AddProperty(state, state.next, std::move(with), symbol);
      std::erase_if(without.shapes, [&](const Live& live) {
        return shapes_[live.shape]->properties[state.next].required;
      });
      if (!without.shapes.empty()) emitter_->builder().AddAlternative(symbol, {RuleOf(without)});
    } else {
      for (const Live& live : state.shapes) AddOthers(state, live, symbol);
    }
  }

  void AddMemberOrEnd(const State& state, Symbol symbol) {
    const bool first = state.part == Part::kFirst;
    std::vector<Symbol> member;
    if (!first) member.push_back(comma_);
    State next = state;
    next.part = Part::kMember;
    member.push_back(RuleOf(next));
    emitter_->builder().AddAlternative(symbol, member);
    if (std::any_of(state.shapes.begin(), state.shapes.end(),
                    [&](const Live& live) { return MayEnd(state, live); })) {
      emitter_->builder().AddAlternative(symbol, {emitter_->PunctuationSymbol("}", !first, false)});
    }
  }

  bool MayEnd(const State& state, const Live& live) const {
    const ObjectShape& shape = *shapes_[live.shape];
    if (live.found != AllFound(shape) || state.count > shape.max) return false;
    if (CountsTo(shape) > 0 && state.count < shape.min) return false;
    if (!emitter_->any_order()) return state.next >= after_required_[live.shape];
    for (size_t i = 0; i < shape.properties.size(); ++i) {
      if (shape.properties[i].required && (state.used >> i & 1) == 0) return false;
    }
    return true;
  }

  // Any property that is not there yet, or another member.
  void AddAnyMember(const State& state, Symbol symbol) {
    for (size_t i = 0; i < keys_.size(); ++i) {
      if ((state.used >> i & 1) != 0) continue;
      State with = state;
      with.used |= uint32_t{1} << i;
      AddProperty(state, i, std::move(with), symbol);
    }
    for (const Live& live : state.shapes) AddSought(state, live, symbol);
  }

  static uint32_t AllFound(const ObjectShape& shape) {
    return (uint32_t{1} << shape.some.size()) - 1;
  }

  // Adds one property as the next member. `next`: the state after it, whose count and shapes are
  // set here.
  void AddProperty(const State& state, size_t index, State next, Symbol symbol) {
    Algebra& algebra = emitter_->algebra();
    // The shapes that go on with each value.
    std::vector<std::pair<Term, std::vector<Live>>> with;
    const auto add = [&](Term value, const Live& live) {
      if (value == Term::kFalse) return;
      for (auto& [known, shapes] : with) {
        if (known == value) return shapes.push_back(live);
      }
      with.push_back({value, {live}});
    };
    for (const Live& live : state.shapes) {
      const ObjectShape& shape = *shapes_[live.shape];
      const Property& property = shape.properties[index];
      if (!emitter_->CountPlace()) return;
      if (property.value == Term::kFalse || state.count + 1 > shape.max) continue;
      for (uint32_t found : MoreFound(shape, live.found, property.name)) {
        std::vector<Term> values{property.value};
        for (size_t i = 0; i < shape.some.size(); ++i) {
          if (((found & ~live.found) >> i & 1) != 0) values.push_back(shape.some[i].value);
        }
        add(algebra.And(std::move(values)), {live.shape, found});
      }
    }
    next.part = Part::kMore;
    next.count = NextCount(state.count);
    for (auto& [value, shapes] : with) {
      if (algebra.IsEmpty(value)) continue;
      std::sort(shapes.begin(), shapes.end());
      next.shapes = std::move(shapes);
      AddMember(symbol, keys_[index], emitter_->SymbolOf(value), RuleOf(next));
    }
  }

  // `found`, with any of the others that a member called `name` may be.
  std::vector<uint32_t> MoreFound(const ObjectShape& shape, uint32_t found,
                                  const std::string& name) {
    std::vector<uint32_t> ways{found};
    for (size_t i = 0; i < shape.some.size(); ++i) {
      if ((found >> i & 1) != 0 ||
          !emitter_->algebra().strings().Contains(shape.some[i].names, name)) {
        continue;
      }
      const size_t known = ways.size();
      for (size_t j = 0; j < known; ++j) ways.push_back(ways[j] | uint32_t{1} << i);
    }
    return ways;
  }

  // The members behind the properties, at least one, and the end.
  void AddOthers(const State& state, const Live& live, Symbol symbol) {
    const ObjectShape& shape = *shapes_[live.shape];
    if (live.found != AllFound(shape)) return AddSought(state, live, symbol);
    const bool counted = CountsTo(shape) > 0;
    const uint64_t min = counted && shape.min > state.count ? shape.min - state.count : 0;
    const uint64_t max = !counted || shape.max == kNoLimit ? kMost
                         : shape.max > state.count         ? shape.max - state.count
                                                           : 0;
    if (max == 0 || min > max || shape.classes.empty()) return;
    GrammarBuilder& builder = emitter_->builder();
    const Symbol member = Member(shape);
    const Symbol more =
        builder.Repeat(builder.Sequence({comma_, member}),
                       static_cast<uint32_t>(std::min(min > 0 ? min - 1 : 0, kMost)),
                       static_cast<uint32_t>(std::min(max == kMost ? max : max - 1, kMost)));
    builder.AddAlternative(symbol, {member, more, emitter_->PunctuationSymbol("}", true, false)});
  }

  ExpressionId WithoutOwn(ExpressionId names) {
    if (own_names_ == ExpressionId{}) return names;
    return emitter_->set().Difference(names, own_names_);
  }

  // Any member of the shape that is no property.
  Symbol Member(const ObjectShape& shape) {
    GrammarBuilder& builder = emitter_->builder();
    std::vector<Symbol> ways;
    for (const NameClass& names : shape.classes) {
      if (!emitter_->CountPlace()) break;
      ways.push_back(builder.Sequence({builder.Terminal(emitter_->Quoted(WithoutOwn(names.names))),
                                       colon_, emitter_->SymbolOf(names.value)}));
    }
    return builder.Choice(ways);
  }

  // One member while some that must be there are not found yet.
  void AddSought(const State& state, const Live& live, Symbol symbol) {
    const ObjectShape& shape = *shapes_[live.shape];
    if (state.count >= shape.max) return;
    const uint32_t sought = AllFound(shape) & ~live.found;
    State next = state;
    next.part = Part::kMore;
    next.count = NextCount(state.count);
    for (const NameClass& names : shape.classes) {
      for (uint32_t now = sought;; now = (now - 1) & sought) {
        if (!emitter_->CountPlace()) return;
        std::vector<ExpressionId> keys{names.names};
        std::vector<Term> values{names.value};
        for (size_t i = 0; i < shape.some.size(); ++i) {
          if ((now >> i & 1) == 0) continue;
          keys.push_back(shape.some[i].names);
          values.push_back(shape.some[i].value);
        }
        const ExpressionId key = WithoutOwn(emitter_->set().And(keys));
        const Term value = emitter_->algebra().And(std::move(values));
        if (!emitter_->algebra().IsEmpty(key) && !emitter_->algebra().IsEmpty(value)) {
          next.shapes = {{live.shape, live.found | now}};
          AddMember(symbol, emitter_->Quoted(key), emitter_->SymbolOf(value), RuleOf(next));
        }
        if (now == 0) break;
      }
    }
  }

  Emitter* emitter_;
  std::vector<const ObjectShape*> shapes_;
  Symbol comma_, colon_;
  std::vector<ExpressionId> keys_;      // of the properties
  ExpressionId own_names_{};            // Nothing() without properties
  std::vector<size_t> after_required_;  // by shape: past its last required property
  uint64_t count_max_ = 0;
  std::map<State, Symbol> rules_;
  std::vector<std::pair<State, Symbol>> undefined_;
};

}  // namespace

void EmitObjects(Emitter& emitter, const std::vector<ObjectShape>& shapes, Symbol rule) {
  std::map<std::vector<std::string_view>, std::vector<const ObjectShape*>> groups;
  for (const ObjectShape& shape : shapes) {
    std::vector<std::string_view> names;
    for (const Property& property : shape.properties) names.push_back(property.name);
    groups[names].push_back(&shape);
  }
  for (auto& [names, group] : groups) {
    if (!emitter.algebra().ok()) return;
    ObjectRules(emitter, std::move(group)).AddTo(rule);
  }
}

}  // namespace minisgl::grammar
