// What a template computes with: Python's values as far as templates see them.
//
// Lists, dicts and texts are immutable and shared (the reference runs templates in a sandbox that
// forbids changing them), so no value can hold itself; namespaces, which do change, are owned by
// the interpreter and pointed to. A list or dict nests at most kValueDepthMax deep and weighs at
// most kValueWeightMax, shared parts counted each time they are met; that bounds every walk and its
// destruction.
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
#include "text/jinja/bounds.h"
#include "text/jinja/tracked_text.h"

namespace minisgl::text::jinja {

inline constexpr int kValueDepthMax = 128;
inline constexpr uint64_t kValueWeightMax = uint64_t{64} << 20;  // values and bytes of text

class Value;
enum class ListKind {
  kList,
  kTuple,
  kGenerator,  // what map, select and the like give: true, without length, gone once looped over
  kKeys,       // what the methods of a dict give, which no index reads
  kValues,
  kItems,
};
struct List;
struct Dict;
struct Namespace;
struct Callable;
struct LoopState;

// What was looked up in vain. Lists hold many of them: copies share the name, of which the message
// needs only the beginning.
struct Undefined {
  Undefined() = default;
  explicit Undefined(std::string_view whole_name)
      : name(std::make_shared<const std::string>(whole_name.substr(0, 80))) {}
  std::shared_ptr<const std::string> name;  // null for none
};
struct None {};

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                               std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*,
                               std::shared_ptr<const Callable>, std::shared_ptr<LoopState>>;

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
  bool is_bool() const { return Is<bool>(); }
  bool is_int() const { return Is<int64_t>(); }
  bool is_double() const { return Is<double>(); }
  bool is_number() const { return is_bool() || is_int() || is_double(); }
  bool is_integral() const { return is_bool() || is_int(); }
  bool is_text() const { return Is<std::shared_ptr<const Text>>(); }
  bool is_list() const { return Is<std::shared_ptr<const List>>(); }
  bool is_dict() const { return Is<std::shared_ptr<const Dict>>(); }
  bool is_namespace() const { return Is<Namespace*>(); }
  bool is_callable() const { return Is<std::shared_ptr<const Callable>>(); }
  bool is_loop() const { return Is<std::shared_ptr<LoopState>>(); }
  bool is_sequence() const;  // a list or a tuple
  bool is_tuple() const;
  bool is_generator() const;

  // REQUIRE the matching is_*().
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
    return is_double() ? std::get<double>(v_) : static_cast<double>(as_int());
  }

  static Value FromList(std::vector<Value> items, ListKind kind = ListKind::kList);
  // Keys are texts, numbers or None, each once.
  static Value FromDict(std::vector<std::pair<Value, Value>> members);

  // Values and bytes of text in it, and how deep it nests.
  uint64_t Weight() const;
  int Depth() const;

  // "str", "int", ... as Python names them, for messages.
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
  mutable bool is_spent = false;  // a generator that was looped over
};

// Small, so searched in order.
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

// Something that is called: a function by name, a method with the value it belongs to, or a macro
// with the scope that it was made in (null once that has ended).
struct Callable {
  std::string name;
  bool is_method = false;
  Value self;
  const Macro* macro = nullptr;
  std::shared_ptr<Scope*> home;
};

// `loop` of a loop that runs, or has run. Items are tested against the loop's condition when they
// are met, or looked ahead to.
struct LoopState {
  std::vector<Value> items;  // before the condition
  size_t next = 0;           // of items, the first that was not looked at
  std::deque<Value> ahead;   // passed the condition and not met yet
  Value current, previous;
  size_t index = 0;
  const Statement* statement = nullptr;
  Scope* outer = nullptr;
  int level = 1;  // of recursion
  int depth = 1;  // of values
  bool has_ended = false;
  bool has_changed = false;
  std::vector<Value> last_changed;  // what loop.changed was given
  HeldBytes held{sizeof(items)};
};

bool Truthy(const Value& value);
// Python's ==. Values of kinds that cannot be compared are unequal.
bool Equal(const Value& a, const Value& b);
// Python's <; Fails on kinds that have no order.
bool Less(const Value& a, const Value& b);
// Appends str(value) and repr(value).
void AppendStr(const Value& value, Text* out);
void AppendRepr(const Value& value, Text* out);
// json.dumps(value, ensure_ascii=False, indent=indent); indent < 0: one line. Fails on what JSON
// has not.
struct JsonStyle {
  int indent = -1;  // how often `margin` stands before a level
  std::string margin = " ";
  bool sort_keys = false;
  bool ascii = false;
  std::string item_separator = ", ", key_separator = ": ";
};
void AppendJson(const Value& value, const JsonStyle& style, Text* out);
std::string DoubleText(double value);

// `json` as a value; its texts are untrusted unless `trusted`.
Value FromJson(const Json& json, bool trusted);

}  // namespace minisgl::text::jinja
