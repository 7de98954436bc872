// The values of a template: the Python values that templates use.
//
// Lists, dicts and texts are immutable and shared (the reference runs templates in a sandbox that
// forbids modification), so no value can contain itself. Namespaces are mutable; the interpreter
// owns them, and values point to them.
//
// A list or dict nests at most kValueDepthMax deep and has a weight of at most kValueWeightMax, in
// which shared parts count each time they occur. This bounds every traversal and the destruction.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "minisgl/base/json.h"
#include "text/jinja/big_integer.h"
#include "text/jinja/bounds.h"
#include "text/jinja/tracked_text.h"

namespace minisgl::text::jinja {

inline constexpr int kValueDepthMax = 128;
inline constexpr uint64_t kValueWeightMax = uint64_t{64} << 20;  // values and bytes of text

class Value;
enum class ListKind {
  kList,
  kTuple,
  kGroup,      // of groupby: a tuple of two, whose names are grouper and list
  kGenerator,  // the result of map, select etc.: true, without length, empty after one loop
  kKeys,       // the views of a dict, which have no index
  kValues,
  kItems,
};
struct List;
struct Dict;
struct Namespace;
struct Callable;
struct LoopState;

// The result of a failed lookup. Copies share the name, because a list may contain many. Only the
// beginning of the name is kept, for messages.
struct Undefined {
  Undefined() = default;
  explicit Undefined(std::string_view whole_name)
      : name(std::make_shared<const std::string>(whole_name.substr(0, 80))) {}
  std::shared_ptr<const std::string> name;  // may be null
  // A message's content that is null. A template that asks finds it to be none; one that takes it
  // for a text, as most do, finds an empty text.
  bool is_null = false;
};
struct None {};

// A value of any type. Copies are cheap.
class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                               std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*,
                               std::shared_ptr<const Callable>, std::shared_ptr<LoopState>,
                               std::shared_ptr<const BigInteger>>;

  Value() = default;
  Value(Undefined value) : v_(std::move(value)) {}  // NOLINT: literals read as values
  Value(None value) : v_(value) {}                  // NOLINT
  Value(bool value) : v_(value) {}                  // NOLINT
  Value(int64_t value) : v_(value) {}               // NOLINT
  Value(double value) : v_(value) {}                // NOLINT
  Value(Text value);                                // NOLINT
  Value(Namespace* value) : v_(value) {}            // NOLINT
  Value(std::shared_ptr<const Callable> value) : v_(std::move(value)) {}  // NOLINT
  Value(std::shared_ptr<LoopState> value) : v_(std::move(value)) {}       // NOLINT

  bool is_undefined() const { return Is<Undefined>(); }
  bool is_none() const { return Is<None>(); }
  bool is_null_content() const { return is_undefined() && std::get<Undefined>(v_).is_null; }
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_double() const { return Is<double>(); }
  bool is_big() const { return Is<std::shared_ptr<const BigInteger>>(); }
  bool is_number() const { return is_bool() || is_int() || is_double() || is_big(); }
  bool is_integral() const { return is_bool() || is_int(); }  // as_int() gives it
  bool is_whole() const { return is_integral() || is_big(); }
  bool is_text() const { return Is<std::shared_ptr<const Text>>(); }
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return Is<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return Is<Namespace*>(); }
  bool is_callable() const { return Is<std::shared_ptr<const Callable>>(); }
  bool is_loop() const { return Is<std::shared_ptr<LoopState>>(); }
  bool is_sequence() const;  // a list or a tuple
  bool is_tuple() const;
  bool is_generator() const;

  // REQUIRE: the matching is_*() is true.
  const Text& text() const { return *std::get<std::shared_ptr<const Text>>(v_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(v_); }
  const Dict& dict() const { return *std::get<std::shared_ptr<const Dict>>(v_); }
  Namespace* name_space() const { return std::get<Namespace*>(v_); }
  const std::shared_ptr<const Callable>& callable() const {
    return std::get<std::shared_ptr<const Callable>>(v_);
  }
  LoopState& loop() const { return *std::get<std::shared_ptr<LoopState>>(v_); }
  std::string_view undefined_name() const {
    const auto& name = std::get<Undefined>(v_).name;
    return name != nullptr ? std::string_view(*name) : std::string_view();
  }
  int64_t as_int() const { return is_bool() ? int64_t{std::get<bool>(v_)} : std::get<int64_t>(v_); }
  double as_double() const {
    if (is_big()) return std::get<std::shared_ptr<const BigInteger>>(v_)->AsDouble();
    return is_double() ? std::get<double>(v_) : static_cast<double>(as_int());
  }
  BigInteger as_big() const {  // REQUIRES is_whole()
    return is_big() ? *std::get<std::shared_ptr<const BigInteger>>(v_) : BigInteger(as_int());
  }
  // The value, or an empty text for a content that is null.
  Value OrText() const;

  static Value FromInteger(BigInteger value);  // an int64_t if it fits
  static Value FromList(std::vector<Value> items, ListKind kind = ListKind::kList);
  // REQUIRES: keys are texts, numbers or None, without duplicates.
  static Value FromDict(std::vector<std::pair<Value, Value>> members);

  // The number of values and bytes of text in it, and its nesting depth.
  uint64_t Weight() const;
  int Depth() const;

  // The name of the type in Python ("str", "int", ...), for messages.
  const char* TypeName() const;

 private:
  template <typename T>
  bool Is() const {
    return std::holds_alternative<T>(v_);
  }
  Variant v_;
};

struct List {
  std::vector<Value> items;
  ListKind kind = ListKind::kList;
  int depth = 1;
  uint64_t weight = 1;
  mutable bool is_spent = false;  // true after a loop over a generator
};

// Dicts are small, so the search is linear.
struct Dict {
  std::vector<std::pair<Value, Value>> members;
  int depth = 1;
  uint64_t weight = 1;
  const Value* Find(std::string_view key) const;
  const Value* Find(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;
  HeldBytes held{sizeof(members)};
  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

struct Macro;      // ast.h
struct Statement;  // ast.h
struct Scope;      // interpreter.h

// A function by name, a method with its object, or a macro with the scope of its definition (null
// after that scope has ended).
struct Callable {
  std::string name;
  bool is_method = false;
  Value self;
  const Macro* macro = nullptr;
  std::shared_ptr<Scope*> home;
};

// The variable `loop`, during and after a loop. The loop's condition is evaluated for an item when
// the loop reaches it or looks ahead to it.
struct LoopState {
  std::vector<Value> items;  // before the condition
  size_t next = 0;           // index of the first item not yet examined
  std::deque<Value> ahead;   // items that satisfy the condition but are not yet reached
  Value current, previous;
  size_t index = 0;
  const Statement* statement = nullptr;
  Scope* outer = nullptr;
  int level = 1;  // of recursion
  int depth = 1;  // of values
  bool has_ended = false;
  bool has_changed = false;
  std::vector<Value> last_changed;  // the arguments of the last loop.changed
  HeldBytes held{sizeof(items)};
};

// Python's bool(value).
bool Truthy(const Value& value);
// Python's ==. Values of types that cannot be compared are unequal.
bool Equal(const Value& a, const Value& b);
// Python's <. Fails for types that have no order.
bool Less(const Value& a, const Value& b);
// Appends str(value) and repr(value).
void AppendStr(const Value& value, Text* out);
void AppendRepr(const Value& value, Text* out);
// The arguments of json.dumps.
struct JsonStyle {
  int indent = -1;  // repetitions of `margin` for each level; < 0: a single line
  std::string margin = " ";
  bool sort_keys = false;
  bool ascii = false;
  std::string item_separator = ", ", key_separator = ": ";
};
// Appends json.dumps(value). Fails for values that JSON cannot represent.
void AppendJson(const Value& value, const JsonStyle& style, Text* out);
// Python's str(value) of a float.
std::string DoubleText(double value);

// Converts JSON to a value. Its strings are untrusted unless `trusted`.
Value FromJson(const Json& json, bool trusted);

}  // namespace minisgl::text::jinja
