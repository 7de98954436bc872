// The operations of the algebra on shapes of arrays and objects.
#include <algorithm>
#include <map>
#include <set>

#include "grammar/json_schema/algebra.h"

namespace minisgl::grammar {
namespace {

const Property* FindProperty(const ObjectShape& shape, std::string_view name) {
  for (const Property& property : shape.properties) {
    if (property.name == name) return &property;
  }
  return nullptr;
}

template <typename T>
void AddDistinct(const std::vector<T>& from, std::vector<T>* to) {
  for (const T& value : from) {
    if (std::find(to->begin(), to->end(), value) == to->end()) to->push_back(value);
  }
}

uint64_t SizeOf(const ArrayShape& shape) { return 1 + shape.prefix.size() + shape.contains.size(); }
uint64_t SizeOf(const ObjectShape& shape) {
  return 1 + shape.properties.size() + shape.classes.size() + shape.some.size();
}

}  // namespace

template <typename Shape>
void Algebra::AddShape(Shape shape, std::vector<Shape>* shapes) {
  if (!Spend(SizeOf(shape) + shapes->size()) || IsEmpty(shape)) return;
  if (std::find(shapes->begin(), shapes->end(), shape) != shapes->end()) return;
  shapes->push_back(std::move(shape));
}
template void Algebra::AddShape(ArrayShape shape, std::vector<ArrayShape>* shapes);
template void Algebra::AddShape(ObjectShape shape, std::vector<ObjectShape>* shapes);

template <typename Shape>
std::vector<Shape> Algebra::IntersectShapes(const std::vector<Shape>& a,
                                            const std::vector<Shape>& b) {
  const Normal& any = *nodes_[1].normal;
  const std::vector<Shape>* all = nullptr;
  if constexpr (std::is_same_v<Shape, ArrayShape>) {
    all = &any.arrays;
  } else {
    all = &any.objects;
  }
  if (a == *all) return b;
  if (b == *all) return a;
  std::vector<Shape> out;
  for (const Shape& x : a) {
    for (const Shape& y : b) {
      if (!Spend(SizeOf(x) + SizeOf(y))) return out;
      AddShape(Intersect(x, y), &out);
    }
  }
  return out;
}
template std::vector<ArrayShape> Algebra::IntersectShapes(const std::vector<ArrayShape>& a,
                                                          const std::vector<ArrayShape>& b);
template std::vector<ObjectShape> Algebra::IntersectShapes(const std::vector<ObjectShape>& a,
                                                           const std::vector<ObjectShape>& b);

template <typename Shape>
std::vector<Shape> Algebra::Subtract(std::vector<Shape> from, const std::vector<Shape>& what) {
  for (const Shape& shape : what) {
    std::vector<Shape> left;
    std::vector<Shape> complement;
    bool complemented = false;
    for (Shape& part : from) {
      if (!Spend(SizeOf(part) + SizeOf(shape))) return {};
      if (AreDisjoint(part, shape)) {
        AddShape(std::move(part), &left);
        continue;
      }
      if (!complemented) complement = Complement(shape);
      complemented = true;
      for (const Shape& other : complement) AddShape(Intersect(part, other), &left);
    }
    from = std::move(left);
    if (from.empty()) break;
  }
  return from;
}
template std::vector<ArrayShape> Algebra::Subtract(std::vector<ArrayShape> from,
                                                   const std::vector<ArrayShape>& what);
template std::vector<ObjectShape> Algebra::Subtract(std::vector<ObjectShape> from,
                                                    const std::vector<ObjectShape>& what);

void Algebra::Tidy(ArrayShape* shape) {
  std::vector<Contains> contains;
  for (const Contains& count : shape->contains) {
    if (count.min == 0 && count.max == kNoLimit) continue;
    if (count.max > 0 || count.min > 0 || count.from > 1000) {
      contains.push_back(count);
      continue;
    }
    // None is in it: a condition on each element.
    const Term none = Not(count.value);
    while (shape->prefix.size() < count.from) shape->prefix.push_back(shape->rest);
    for (size_t i = count.from; i < shape->prefix.size(); ++i)
      shape->prefix[i] = And({shape->prefix[i], none});
    shape->rest = And({shape->rest, none});
  }
  shape->contains = std::move(contains);
  const auto impossible = std::find(shape->prefix.begin(), shape->prefix.end(), Term::kFalse);
  if (impossible != shape->prefix.end())
    shape->max = std::min<uint64_t>(shape->max, impossible - shape->prefix.begin());
  if (shape->rest == Term::kFalse)
    shape->max = std::min<uint64_t>(shape->max, shape->prefix.size());
  if (shape->max <= shape->prefix.size()) {
    shape->prefix.resize(shape->max);
    shape->rest = Term::kTrue;
  } else {
    while (!shape->prefix.empty() && shape->prefix.back() == shape->rest) shape->prefix.pop_back();
  }
  if (shape->max <= 1) shape->unique = false;
}

ArrayShape Algebra::Intersect(const ArrayShape& a, const ArrayShape& b) {
  ArrayShape out;
  const size_t size = std::max(a.prefix.size(), b.prefix.size());
  for (size_t i = 0; i < size; ++i) {
    const Term x = i < a.prefix.size() ? a.prefix[i] : a.rest;
    const Term y = i < b.prefix.size() ? b.prefix[i] : b.rest;
    out.prefix.push_back(And({x, y}));
  }
  out.rest = And({a.rest, b.rest});
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  out.contains = a.contains;
  AddDistinct(b.contains, &out.contains);
  out.unique = a.unique || b.unique;
  Tidy(&out);
  return out;
}

std::vector<ArrayShape> Algebra::Complement(const ArrayShape& shape) {
  std::vector<ArrayShape> out;
  const auto add = [&](ArrayShape part) {
    Tidy(&part);
    AddShape(std::move(part), &out);
  };
  if (shape.unique) Fail("the opposite of \"uniqueItems\" cannot be compiled");
  for (size_t i = 0; i < shape.prefix.size(); ++i) {
    if (shape.prefix[i] == Term::kTrue || !Spend(i)) continue;
    ArrayShape part;
    part.prefix.assign(shape.prefix.begin(), shape.prefix.begin() + static_cast<ptrdiff_t>(i));
    part.prefix.push_back(Not(shape.prefix[i]));
    part.min = i + 1;
    add(std::move(part));
  }
  if (shape.rest != Term::kTrue) {
    ArrayShape part;
    part.prefix = shape.prefix;
    part.contains.push_back({Not(shape.rest), 1, kNoLimit, shape.prefix.size()});
    add(std::move(part));
  }
  for (const Contains& contains : shape.contains) {
    ArrayShape fewer, more;
    if (contains.min > 0) {
      fewer.contains.push_back({contains.value, 0, contains.min - 1, contains.from});
      add(std::move(fewer));
    }
    if (contains.max < kNoLimit) {
      more.contains.push_back({contains.value, contains.max + 1, kNoLimit, contains.from});
      add(std::move(more));
    }
  }
  ArrayShape shorter, longer;
  shorter.max = shape.min - 1;
  if (shape.min > 0) add(std::move(shorter));
  longer.min = shape.max + 1;
  if (shape.max < kNoLimit) add(std::move(longer));
  return out;
}

Term Algebra::MemberValue(const ObjectShape& shape, const std::string& name) {
  if (const Property* property = FindProperty(shape, name)) return property->value;
  for (const NameClass& names : shape.classes) {
    if (strings_.Contains(names.names, name)) return names.value;
  }
  return Term::kFalse;
}

// True if a property that one of the two requires can have no value in both.
bool Algebra::Excludes(const ObjectShape& a, const ObjectShape& b) {
  return std::any_of(a.properties.begin(), a.properties.end(), [&](const Property& property) {
    return property.required && IsEmpty(And({property.value, MemberValue(b, property.name)}));
  });
}

bool Algebra::AreDisjoint(const ObjectShape& a, const ObjectShape& b) {
  return Excludes(a, b) || Excludes(b, a) || IsEmpty(Intersect(a, b));
}

void Algebra::IntersectClasses(const ObjectShape& a, const ObjectShape& b, ObjectShape* out) {
  const ExpressionId all = strings_.All();
  for (const NameClass& x : a.classes) {
    for (const NameClass& y : b.classes) {
      if (!Spend(1)) return;
      ExpressionId names = x.names;
      if (x.names != y.names && y.names != all)
        names = x.names == all ? y.names : set_->And({x.names, y.names});
      const Term value = And({x.value, y.value});
      if (value != Term::kFalse && !IsEmpty(names)) out->classes.push_back({names, value});
    }
  }
}

ObjectShape Algebra::Intersect(const ObjectShape& a, const ObjectShape& b) {
  ObjectShape out;
  out.min = std::max(a.min, b.min);
  out.max = std::min(a.max, b.max);
  out.some = a.some;
  AddDistinct(b.some, &out.some);
  IntersectClasses(a, b, &out);
  std::map<std::string_view, const Property*> in_a, in_b;
  for (const Property& property : a.properties) in_a.emplace(property.name, &property);
  for (const Property& property : b.properties) in_b.emplace(property.name, &property);
  // A name has the place that the first of the two gives it; then come those without a place.
  std::set<std::string_view> added;
  const auto add = [&](const Property& property, bool placed) {
    const auto x = in_a.find(property.name), y = in_b.find(property.name);
    const Property* p = x == in_a.end() ? nullptr : x->second;
    const Property* q = y == in_b.end() ? nullptr : y->second;
    const bool has_place = (p != nullptr && p->placed) || (q != nullptr && q->placed);
    if (has_place != placed || !added.insert(property.name).second) return;
    Property both{property.name, Term::kTrue, false, placed};
    both.required = (p != nullptr && p->required) || (q != nullptr && q->required);
    both.value = And({p != nullptr ? p->value : MemberValue(a, property.name),
                      q != nullptr ? q->value : MemberValue(b, property.name)});
    // Without a value it is only named to be no member of a class.
    const bool other = both.required || both.value != Term::kFalse || !out.classes.empty();
    if (other) out.properties.push_back(std::move(both));
  };
  for (const bool placed : {true, false}) {
    for (const Property& property : a.properties) {
      if (property.placed == placed) add(property, placed);
    }
    for (const Property& property : b.properties) {
      if (property.placed == placed) add(property, placed);
    }
  }
  return out;
}

ExpressionId Algebra::OwnNames(const ObjectShape& shape) {
  std::vector<std::string> names;
  for (const Property& property : shape.properties) names.push_back(property.name);
  return names.empty() ? set_->Nothing() : strings_.Texts(names);
}

// The parts do not overlap as far as properties go, because each holds only shapes that the parts
// before it exclude. Shapes in several complements are then counted once.
std::vector<ObjectShape> Algebra::Complement(const ObjectShape& shape) {
  std::vector<ObjectShape> out;
  ObjectShape before = AnyObject();
  const auto add = [&](const ObjectShape& part) { AddShape(Intersect(before, part), &out); };
  for (const Property& property : shape.properties) {
    if (!Spend(1 + before.properties.size())) return out;
    ObjectShape part = AnyObject();
    if (property.required) {
      part.properties.push_back({property.name, Term::kFalse, false, false});
      add(part);
      part.properties[0] = {property.name, Term::kTrue, true, false};
      before = Intersect(before, part);
    }
    part.properties = {{property.name, Not(property.value), true, false}};
    if (property.value != Term::kTrue) add(part);
    part.properties = {{property.name, property.value, property.required, false}};
    before = Intersect(before, part);
  }
  const ExpressionId own = OwnNames(shape);
  const auto add_some = [&](ExpressionId names, Term value) {
    if (own != set_->Nothing()) names = set_->Difference(names, own);
    if (IsEmpty(names)) return;
    ObjectShape part = AnyObject();
    part.some.push_back({names, value});
    add(part);
  };
  std::vector<ExpressionId> named;
  for (const NameClass& names : shape.classes) {
    named.push_back(names.names);
    if (names.value != Term::kTrue) add_some(names.names, Not(names.value));
  }
  add_some(strings_.Not(set_->Or(named)), Term::kTrue);
  for (const NameClass& some : shape.some) {
    ObjectShape part;
    part.classes.push_back({some.names, Not(some.value)});
    if (part.classes[0].value == Term::kFalse) part.classes.clear();
    part.classes.push_back({strings_.Not(some.names), Term::kTrue});
    add(part);
  }
  ObjectShape fewer = AnyObject(), more = AnyObject();
  fewer.max = shape.min - 1;
  if (shape.min > 0) add(fewer);
  more.min = shape.max + 1;
  if (shape.max < kNoLimit) add(more);
  return out;
}

}  // namespace minisgl::grammar
