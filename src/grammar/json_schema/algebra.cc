#include "grammar/json_schema/algebra.h"

#include <algorithm>
#include <utility>

namespace minisgl::grammar {
namespace {

constexpr size_t kSingleTextMax = 100;  // bytes

}  // namespace

Algebra::Algebra(ExpressionSet& set, bool exponents, const AlgebraLimits& limits, Compile compile)
    : set_(&set),
      strings_(set),
      numbers_(set, exponents),
      limits_(limits),
      compile_(std::move(compile)) {
  nodes_.push_back({Kind::kFalse, {}, nullptr, std::make_shared<const Normal>()});
  nodes_.push_back({Kind::kTrue, {}, nullptr, std::make_shared<const Normal>(Any())});
}

void Algebra::Fail(std::string_view message) {
  if (place_ != nullptr) return Fail(*place_, message);
  if (status_.ok()) status_ = BadInput("{}", message);
}

void Algebra::Fail(const SchemaValue& place, std::string_view message) {
  if (status_.ok()) status_ = BadInput("{}: {}", place.Pointer(), message);
}

const SchemaValue* Algebra::PlaceOf(Term term) const {
  // The loop ends, because operands are older than their terms. It looks at first operands only.
  for (;;) {
    const Node& node = nodes_[static_cast<size_t>(term)];
    if (node.schema != nullptr || node.operands.empty()) return node.schema;
    term = node.operands[0];
  }
}

bool Algebra::Spend(uint64_t work) {
  work_ += work;
  set_->CountWork(work);
  if (work_ > limits_.work_max) Fail("the schema's combinations are too many to compile");
  if (set_->memory_bytes() > limits_.expression_bytes_max)
    Fail("the schema's patterns and names are too complex together");
  if (!set_->status().ok()) Fail(set_->status().message());
  return status_.ok();
}

Term Algebra::Intern(Kind kind, std::vector<Term> operands) {
  Spend(operands.size());
  const auto [at, added] = interned_.emplace(Key{kind, operands}, static_cast<Term>(nodes_.size()));
  if (added) nodes_.push_back({kind, std::move(operands), nullptr, nullptr});
  return at->second;
}

Term Algebra::And(std::vector<Term> operands) {
  std::vector<Term> flat;
  for (Term operand : operands) {
    if (operand == Term::kFalse) return Term::kFalse;
    if (operand == Term::kTrue) continue;
    if (node(operand).kind == Kind::kAnd) {
      const std::vector<Term>& inner = node(operand).operands;
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else {
      flat.push_back(operand);
    }
  }
  std::vector<Term> distinct;
  for (Term operand : flat) {
    if (std::find(distinct.begin(), distinct.end(), operand) != distinct.end()) continue;
    const bool opposed = std::any_of(distinct.begin(), distinct.end(), [&](Term other) {
      const auto is_not = [&](Term a, Term b) {
        return node(a).kind == Kind::kNot && node(a).operands[0] == b;
      };
      return is_not(operand, other) || is_not(other, operand);
    });
    if (opposed) return Term::kFalse;
    distinct.push_back(operand);
  }
  if (distinct.empty()) return Term::kTrue;
  if (distinct.size() == 1) return distinct[0];
  if (!Spend(flat.size() * flat.size())) return Term::kFalse;
  return Intern(Kind::kAnd, std::move(distinct));
}

Term Algebra::Or(std::vector<Term> operands) {
  std::vector<Term> distinct;
  for (Term operand : operands) {
    if (operand == Term::kTrue) return Term::kTrue;
    if (operand == Term::kFalse) continue;
    if (std::find(distinct.begin(), distinct.end(), operand) == distinct.end())
      distinct.push_back(operand);
  }
  if (distinct.empty()) return Term::kFalse;
  if (distinct.size() == 1) return distinct[0];
  if (!Spend(distinct.size())) return Term::kFalse;
  return Intern(Kind::kOr, std::move(distinct));
}

Term Algebra::Not(Term operand) {
  if (operand == Term::kTrue) return Term::kFalse;
  if (operand == Term::kFalse) return Term::kTrue;
  if (node(operand).kind == Kind::kNot) return node(operand).operands[0];
  return Intern(Kind::kNot, {operand});
}

Term Algebra::OfSchema(const SchemaValue& schema) {
  if (schema.is_bool()) return schema.is_true() ? Term::kTrue : Term::kFalse;
  if (schema.is_object() && schema.members.empty()) return Term::kTrue;
  const auto [at, added] = schemas_.emplace(&schema, static_cast<Term>(nodes_.size()));
  if (added) nodes_.push_back({Kind::kSchema, {}, &schema, nullptr});
  return at->second;
}

Term Algebra::OfNormal(Normal normal) {
  if (normal == Normal()) return Term::kFalse;
  if (normal == *nodes_[1].normal) return Term::kTrue;
  const auto next = static_cast<Term>(nodes_.size());
  if (normal.arrays.empty() && normal.objects.empty()) {
    const auto flags = static_cast<uint32_t>(normal.null) |
                       static_cast<uint32_t>(normal.false_) << 1 |
                       static_cast<uint32_t>(normal.true_) << 2;
    const std::vector<uint32_t> key{flags, static_cast<uint32_t>(normal.number),
                                    static_cast<uint32_t>(normal.string)};
    const auto [at, added] = scalars_.emplace(key, next);
    if (!added) return at->second;
  }
  nodes_.push_back({Kind::kNormal, {}, nullptr, std::make_shared<const Normal>(std::move(normal))});
  return next;
}

std::shared_ptr<const Normal> Algebra::NormalOf(Term term) {
  if (node(term).normal != nullptr) return node(term).normal;
  const auto failed = [&] { return nodes_[0].normal; };
  if (!Spend(1)) return failed();
  if (node(term).in_progress) {
    if (asking_ == 0) {
      if (node(term).schema != nullptr) {
        Fail(*node(term).schema, "the schema is defined by itself");
      } else {
        Fail("a schema is defined by itself");
      }
      return failed();
    }
    met_itself_ = true;
    return nodes_[1].normal;
  }
  if (depth_ >= limits_.depth_max) {
    Fail(fmt::format("schemas within schemas are more than {} deep", limits_.depth_max));
    return failed();
  }
  ++depth_;
  node(term).in_progress = true;
  auto normal = std::make_shared<const Normal>(Compute(term));
  node(term).in_progress = false;
  --depth_;
  if (!ok()) return failed();
  if (!met_itself_) node(term).normal = normal;
  return normal;
}

Normal Algebra::Compute(Term term) {
  const std::vector<Term> operands = node(term).operands;
  switch (node(term).kind) {
    case Kind::kAnd: {
      std::shared_ptr<const Normal> first = NormalOf(operands[0]);
      Normal all = *first;
      for (size_t i = 1; i < operands.size() && ok(); ++i)
        all = Intersect(all, *NormalOf(operands[i]));
      return all;
    }
    case Kind::kOr: {
      std::vector<std::shared_ptr<const Normal>> parts;
      for (Term operand : operands) parts.push_back(NormalOf(operand));
      return Unite(parts);
    }
    case Kind::kNot:
      return Complement(*NormalOf(operands[0]));
    case Kind::kSchema: {
      const SchemaValue* const before = std::exchange(place_, node(term).schema);
      Normal normal = compile_(*place_);
      if (ok()) place_ = before;
      return normal;
    }
    default:
      return *node(term).normal;
  }
}

bool Algebra::IsEmpty(ExpressionId expression) {
  if (expression == set_->Nothing()) return true;
  if (!Spend(1)) return false;
  const Result<bool> empty = set_->IsEmptyLanguage(expression, limits_.emptiness_work);
  return empty.ok() && empty.value();
}

bool Algebra::IsEmpty(Term term) {
  if (term == Term::kFalse) return true;
  if (term == Term::kTrue || !Spend(1)) return false;
  if (node(term).empty != Known::kNothing) return node(term).empty == Known::kEmpty;
  // A term that needs itself has no finite values, either, but that is left to the grammar.
  if (node(term).asked || depth_ >= limits_.depth_max) return false;
  node(term).asked = true;
  ++asking_;
  ++depth_;
  const bool met_before = std::exchange(met_itself_, false);
  const std::shared_ptr<const Normal> normal = NormalOf(term);
  bool empty = ok() && !met_itself_ && !normal->null && !normal->false_ && !normal->true_ &&
               IsEmpty(normal->number) && IsEmpty(normal->string);
  for (size_t i = 0; empty && i < normal->arrays.size(); ++i) empty = IsEmpty(normal->arrays[i]);
  for (size_t i = 0; empty && i < normal->objects.size(); ++i) empty = IsEmpty(normal->objects[i]);
  if (!met_itself_) node(term).empty = empty ? Known::kEmpty : Known::kNotEmpty;
  met_itself_ = met_before;
  --depth_;
  --asking_;
  node(term).asked = false;
  return empty;
}

bool Algebra::IsEmpty(const ArrayShape& shape) {
  if (shape.min > shape.max) return true;
  const auto item = [&](uint64_t i) {
    return i < shape.prefix.size() ? shape.prefix[i] : shape.rest;
  };
  const uint64_t ends = std::min<uint64_t>(shape.min, shape.prefix.size() + 1);
  for (uint64_t i = 0; i < ends; ++i) {
    if (IsEmpty(item(i))) return true;
  }
  for (const Contains& contains : shape.contains) {
    if (contains.min > contains.max) return true;
    if (contains.min == 0) continue;
    if (shape.max <= contains.from || contains.min > shape.max - contains.from) return true;
    bool possible = false;
    const uint64_t last = std::min<uint64_t>(shape.max, shape.prefix.size() + contains.from + 1);
    for (uint64_t i = contains.from; !possible && i < last; ++i)
      possible = !IsEmpty(And({item(i), contains.value}));
    if (!possible) return true;
  }
  return false;
}

bool Algebra::CanHave(const ObjectShape& shape, const NameClass& some) {
  for (const Property& property : shape.properties) {
    if (!strings_.Contains(some.names, property.name)) continue;
    if (!IsEmpty(And({property.value, some.value}))) return true;
  }
  for (const NameClass& names : shape.classes) {
    if (IsEmpty(set_->And({names.names, some.names}))) continue;
    if (!IsEmpty(And({names.value, some.value}))) return true;
  }
  return false;
}

bool Algebra::IsEmpty(const ObjectShape& shape) {
  if (shape.min > shape.max) return true;
  uint64_t required = 0, possible = 0;
  for (const Property& property : shape.properties) {
    if (property.required && IsEmpty(property.value)) return true;
    required += property.required ? 1 : 0;
    possible += property.value != Term::kFalse ? 1 : 0;
  }
  if (required > shape.max) return true;
  if (shape.classes.empty() && possible < shape.min) return true;
  return std::any_of(shape.some.begin(), shape.some.end(),
                     [&](const NameClass& some) { return !CanHave(shape, some); });
}

ObjectShape Algebra::AnyObject() const {
  ObjectShape shape;
  shape.classes.push_back({strings_.All(), Term::kTrue});
  return shape;
}

Normal Algebra::Any() const {
  Normal any;
  any.null = any.false_ = any.true_ = true;
  any.number = numbers_.All();
  any.string = strings_.All();
  any.arrays.emplace_back();
  any.objects.push_back(AnyObject());
  return any;
}

const std::string* Algebra::SingleText(ExpressionId strings) {
  const auto [at, added] = singles_.emplace(strings, std::nullopt);
  if (added) {
    const auto text = set_->ShortestText(strings, kSingleTextMax);
    if (text.ok() && text->has_value() && set_->Literal(**text) == strings) at->second = **text;
  }
  return at->second.has_value() ? &*at->second : nullptr;
}

// Constants are compared without a search: a discriminator of many alternatives is in many pairs.
ExpressionId Algebra::IntersectStrings(ExpressionId a, ExpressionId b) {
  const ExpressionId all = strings_.All(), none = set_->Nothing();
  if (a == b || a == all || b == none) return b;
  if (b == all || a == none) return a;
  if (const std::string* text = SingleText(a)) return set_->Matches(b, *text) ? a : none;
  if (const std::string* text = SingleText(b)) return set_->Matches(a, *text) ? b : none;
  return set_->And({a, b});
}

Normal Algebra::Intersect(const Normal& a, const Normal& b) {
  Normal out;
  out.null = a.null && b.null;
  out.false_ = a.false_ && b.false_;
  out.true_ = a.true_ && b.true_;
  out.number = numbers_.Both(a.number, b.number);
  out.string = IntersectStrings(a.string, b.string);
  out.arrays = IntersectShapes(a.arrays, b.arrays);
  out.objects = IntersectShapes(a.objects, b.objects);
  return out;
}

Normal Algebra::Unite(const std::vector<std::shared_ptr<const Normal>>& parts) {
  Normal out;
  std::vector<ExpressionId> numbers, strings;
  for (const std::shared_ptr<const Normal>& part : parts) {
    out.null |= part->null;
    out.false_ |= part->false_;
    out.true_ |= part->true_;
    numbers.push_back(part->number);
    strings.push_back(part->string);
    for (const ArrayShape& shape : part->arrays) AddShape(shape, &out.arrays);
    for (const ObjectShape& shape : part->objects) AddShape(shape, &out.objects);
    if (!ok()) return out;
  }
  const auto unite = [&](const std::vector<ExpressionId>& sets, ExpressionId all) {
    return std::find(sets.begin(), sets.end(), all) != sets.end() ? all : set_->Or(sets);
  };
  out.number = numbers_.Sum(numbers, unite(numbers, numbers_.All()));
  out.string = unite(strings, strings_.All());
  return out;
}

// By halves, so that many sets are compared with few questions.
Algebra::Counted Algebra::Count(std::span<const ExpressionId> sets) {
  const ExpressionId none = set_->Nothing();
  if (sets.empty() || !Spend(sets.size())) return {none, none};
  if (sets.size() == 1) return {sets[0], none};
  const Counted a = Count(sets.subspan(0, sets.size() / 2));
  const Counted b = Count(sets.subspan(sets.size() / 2));
  ExpressionId both = none;
  if (a.once != none && b.once != none) both = set_->And({a.once, b.once});
  if (IsEmpty(both)) both = none;
  return {set_->Or({a.once, b.once}), set_->Or({a.twice, b.twice, both})};
}

ExpressionId Algebra::ExactlyOneOf(const std::vector<ExpressionId>& sets) {
  const Counted counted = Count(sets);
  if (counted.twice == set_->Nothing()) return counted.once;
  return set_->Difference(counted.once, counted.twice);
}

Normal Algebra::ExactlyOne(const std::vector<std::shared_ptr<const Normal>>& parts) {
  Normal out;
  std::vector<ExpressionId> numbers, strings;
  int nulls = 0, falses = 0, trues = 0;
  for (const std::shared_ptr<const Normal>& part : parts) {
    nulls += part->null ? 1 : 0;
    falses += part->false_ ? 1 : 0;
    trues += part->true_ ? 1 : 0;
    numbers.push_back(part->number);
    strings.push_back(part->string);
  }
  out.null = nulls == 1;
  out.false_ = falses == 1;
  out.true_ = trues == 1;
  const Counted counted = Count(numbers);
  out.number = numbers_.Sum(numbers, counted.once);
  if (counted.twice != set_->Nothing()) {
    out.number = numbers_.Part(out.number, set_->Difference(out.number, counted.twice));
  }
  out.string = ExactlyOneOf(strings);
  for (size_t i = 0; i < parts.size() && ok(); ++i) {
    std::vector<ArrayShape> arrays = parts[i]->arrays;
    std::vector<ObjectShape> objects = parts[i]->objects;
    for (size_t j = 0; j < parts.size() && ok(); ++j) {
      if (i == j) continue;
      arrays = Subtract(std::move(arrays), parts[j]->arrays);
      objects = Subtract(std::move(objects), parts[j]->objects);
    }
    for (ArrayShape& shape : arrays) AddShape(std::move(shape), &out.arrays);
    for (ObjectShape& shape : objects) AddShape(std::move(shape), &out.objects);
  }
  return out;
}

Normal Algebra::Complement(const Normal& normal) {
  Normal out;
  out.null = !normal.null;
  out.false_ = !normal.false_;
  out.true_ = !normal.true_;
  out.number = normal.number == numbers_.All() ? set_->Nothing() : numbers_.Not(normal.number);
  out.string = strings_.Not(normal.string);
  out.arrays = Subtract({ArrayShape()}, normal.arrays);
  out.objects = Subtract({AnyObject()}, normal.objects);
  return out;
}

}  // namespace minisgl::grammar
