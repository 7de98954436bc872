// Construction, truth, equality and order of values.
#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/jinja/bounds.h"
#include "text/jinja/error.h"

namespace minisgl::text::jinja {

namespace {

// A value with the count of its own memory, without the memory of the values it contains.
template <typename T>
struct Counted {
  template <typename... Args>
  explicit Counted(uint64_t bytes, Args&&... args)
      : held(bytes + sizeof(Counted)), value{std::forward<Args>(args)...} {}
  HeldBytes held;
  const T value;
};

template <typename T, typename... Args>
std::shared_ptr<const T> MakeCounted(uint64_t bytes, Args&&... args) {
  const auto counted = std::make_shared<const Counted<T>>(bytes, std::forward<Args>(args)...);
  return std::shared_ptr<const T>(counted, &counted->value);
}

}  // namespace

Value::Value(Text value) {
  const uint64_t bytes = value.footprint();
  v_ = MakeCounted<Text>(bytes, std::move(value));
}

Value Value::FromInteger(BigInteger value) {
  if (const std::optional<int64_t> small = value.AsInt64()) return Value(*small);
  const uint64_t bytes = value.num_limbs() * sizeof(uint32_t);
  Value out;
  out.v_ = MakeCounted<BigInteger>(bytes, std::move(value));
  return out;
}

Value Value::OrText() const { return is_null_content() ? Value(Text()) : *this; }

int Value::Depth() const {
  if (is_list()) return list().depth;
  if (is_dict()) return dict().depth;
  if (is_callable()) return callable()->self.Depth();
  return is_loop() ? loop().depth : 0;
}

uint64_t Value::Weight() const {
  if (is_text()) return text().footprint() + 1;
  if (is_list()) return list().weight;
  if (is_big()) return 1 + std::get<std::shared_ptr<const BigInteger>>(v_)->num_limbs() * 9;
  return is_dict() ? dict().weight : 1;
}

namespace {

// Adds up the depth and weight of a container; throws if a bound is exceeded.
struct Measure {
  int depth = 1;
  uint64_t weight = 1;

  void Add(const Value& child) {
    depth = std::max(depth, child.Depth() + 1);
    weight += child.Weight();
    if (depth > kValueDepthMax) Fail("values nest more than {} deep", kValueDepthMax);
    if (weight > kValueWeightMax) Fail("a value holds more than {} MiB", kValueWeightMax >> 20);
  }
};

}  // namespace

Value Value::FromList(std::vector<Value> items, ListKind kind) {
  Measure measure;
  for (const Value& item : items) measure.Add(item);
  Value value;
  const uint64_t bytes = items.capacity() * sizeof(Value);
  value.v_ = MakeCounted<List>(bytes, std::move(items), kind, measure.depth, measure.weight);
  return value;
}

Value Value::FromDict(std::vector<std::pair<Value, Value>> members) {
  Measure measure;
  for (const auto& [key, item] : members) {
    measure.weight += key.Weight();
    measure.Add(item);
  }
  Value value;
  const uint64_t bytes = members.capacity() * 2 * sizeof(Value);
  value.v_ = MakeCounted<Dict>(bytes, std::move(members), measure.depth, measure.weight);
  return value;
}

const char* Value::TypeName() const {
  if (is_undefined()) return "undefined";
  if (is_none()) return "None";
  if (is_bool()) return "bool";
  if (is_int() || is_big()) return "int";
  if (is_double()) return "float";
  if (is_text()) return "str";
  if (is_list()) {
    static constexpr const char* kNames[] = {"list",      "tuple",       "tuple",     "generator",
                                             "dict_keys", "dict_values", "dict_items"};
    return kNames[static_cast<size_t>(list().kind)];
  }
  if (is_dict()) return "dict";
  if (is_namespace()) return "namespace";
  return is_loop() ? "loop" : "function";
}

bool Value::is_sequence() const {
  return is_list() && (list().kind == ListKind::kList || is_tuple());
}

bool Value::is_tuple() const {
  return is_list() && (list().kind == ListKind::kTuple || list().kind == ListKind::kGroup);
}

bool Value::is_generator() const { return is_list() && list().kind == ListKind::kGenerator; }

const Value* Dict::Find(std::string_view key) const {
  for (const auto& [name, value] : members) {
    if (name.is_text() && name.text().bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::Find(const Value& key) const {
  if (key.is_text()) return Find(key.text().bytes());
  for (const auto& [name, value] : members) {
    if (!name.is_text() && Equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [member, value] : members) {
    if (member == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [member, old] : members) {
    if (member == name) {
      old = std::move(value);
      return;
    }
  }
  members.emplace_back(name, std::move(value));
  // Doubled, because a vector may have twice the capacity.
  held.Add(2 * sizeof(members[0]) + name.size());
}

bool Truthy(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_integral()) return value.as_int() != 0;
  if (value.is_double()) return value.as_double() != 0;
  if (value.is_big()) return true;
  if (value.is_text()) return !value.text().empty();
  if (value.is_list()) return value.is_generator() || !value.list().items.empty();
  if (value.is_dict()) return !value.dict().members.empty();
  return true;
}

namespace {

// A total order of keys in which equal keys are adjacent: texts, then numbers, then None.
bool KeyBefore(const Value& a, const Value& b) {
  if (a.is_text() && b.is_text()) return a.text().bytes() < b.text().bytes();
  if (a.is_text() || b.is_text()) return a.is_text();
  if (!a.is_number() || !b.is_number()) return a.is_number() && b.is_none();
  if (a.is_whole() && b.is_whole() && (a.is_big() || b.is_big())) return a.as_big() < b.as_big();
  // long double represents every int64_t and every double. NaN is last.
  const auto number = [](const Value& value) {
    return value.is_integral() ? static_cast<long double>(value.as_int())
                               : static_cast<long double>(value.as_double());
  };
  const long double x = number(a), y = number(b);
  return std::isnan(y) ? !std::isnan(x) : x < y;
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.members.size() != b.members.size()) return false;
  // Compare in order of keys: a search for each key would be quadratic.
  const auto in_order = [](const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> members;
    members.reserve(dict.members.size());
    for (const auto& member : dict.members) members.push_back(&member);
    std::sort(members.begin(), members.end(),
              [](const auto* x, const auto* y) { return KeyBefore(x->first, y->first); });
    return members;
  };
  const auto x = in_order(a), y = in_order(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](const auto* one, const auto* other) {
    return Equal(one->first, other->first) && Equal(one->second, other->second);
  });
}

[[noreturn]] void FailUnordered(const Value& a, const Value& b) {
  Fail("{} and {} have no order", a.TypeName(), b.TypeName());
}

// Compares two values inside lists; equal values need no order. Finds the first difference, at any
// depth, in one walk.
std::partial_ordering Order(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() <=> b.as_int();
    if (a.is_whole() && b.is_whole()) return a.as_big() <=> b.as_big();
    return a.as_double() <=> b.as_double();
  }
  // UTF-8 sorts by bytes as by code points, which is Python's order.
  if (a.is_text() && b.is_text()) return a.text().bytes() <=> b.text().bytes();
  if (a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    const auto &x = a.list().items, &y = b.list().items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      const std::partial_ordering order = Order(x[i], y[i]);
      if (order != 0) return order;
    }
    return x.size() <=> y.size();
  }
  if (!Equal(a, b)) FailUnordered(a, b);
  return std::partial_ordering::equivalent;
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
    if (a.is_whole() && b.is_whole()) return a.as_big() == b.as_big();
    return a.as_double() == b.as_double();
  }
  if (a.is_text() && b.is_text()) return a.text().bytes() == b.text().bytes();
  if (a.is_null_content() || b.is_null_content()) {
    const Value& other = a.is_null_content() ? b : a;
    return other.is_none() || other.is_null_content();
  }
  if (a.is_none() || a.is_undefined()) return a.is_none() ? b.is_none() : b.is_undefined();
  if (a.is_list() && b.is_list()) {
    const auto &x = a.list().items, &y = b.list().items;
    if (!a.is_sequence()) return &a.list() == &b.list();
    return b.is_sequence() && a.is_tuple() == b.is_tuple() &&
           std::equal(x.begin(), x.end(), y.begin(), y.end(), Equal);
  }
  if (a.is_dict() && b.is_dict()) return EqualDicts(a.dict(), b.dict());
  if (a.is_namespace() && b.is_namespace()) return a.name_space() == b.name_space();
  return false;
}

bool Less(const Value& a, const Value& b) {
  const bool have_order = (a.is_number() && b.is_number()) || (a.is_text() && b.is_text()) ||
                          (a.is_sequence() && b.is_sequence());
  if (!have_order) FailUnordered(a, b);
  return Order(a, b) < 0;
}

Value FromJson(const Json& json, bool trusted) {
  if (json.is_bool()) return Value(json.as_bool());
  if (json.is_int()) return Value(json.as_int());
  if (json.is_integer()) return Value::FromInteger(BigInteger::FromDigits(json.Dump()));
  if (json.is_double()) return Value(json.as_double());
  if (json.is_string()) return Value(Text(json.as_string(), trusted));
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) items.push_back(FromJson(item, trusted));
    return Value::FromList(std::move(items));
  }
  if (json.is_object()) {
    std::vector<std::pair<Value, Value>> members;
    members.reserve(json.as_object().size());
    for (const auto& [key, value] : json.as_object()) {
      members.emplace_back(Value(Text(key, trusted)), FromJson(value, trusted));
    }
    return Value::FromDict(std::move(members));
  }
  return Value(None{});
}

}  // namespace minisgl::text::jinja
