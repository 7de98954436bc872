// The built-in functions of a template, the attributes of `loop`, and the dispatch of methods.
#include <cmath>
#include <ctime>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

Value Range(Interpreter* run, const CallArguments& arguments) {
  const size_t count = arguments.positional.size();
  if (count < 1 || count > 3 || !arguments.named.empty()) Fail("range takes one to three numbers");
  int64_t first = 0, last = NeedInt(arguments.positional[0], "range's end"), step = 1;
  if (count > 1) {
    first = last;
    last = NeedInt(arguments.positional[1], "range's end");
  }
  if (count > 2) step = NeedInt(arguments.positional[2], "range's step");
  if (step == 0) Fail("range's step is 0");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    if (static_cast<int64_t>(items.size()) == kRangeMax)
      Fail("range gives more than {} numbers", kRangeMax);
    items.push_back(Value(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return run->MakeList(std::move(items));
}

// namespace(name=value, ...) and namespace({name: value, ...}).
Value MakeNamespace(Interpreter* run, const CallArguments& arguments) {
  Namespace* space = run->NewNamespace();
  for (const Value& value : arguments.positional) {
    if (!value.is_dict()) Fail("namespace takes names with values, or a dict");
    run->ChargeItems(value.dict().members.size());
    run->ChargeKeys(value.dict());
    for (const auto& [key, member] : value.dict().members) {
      const std::string& name = NeedText(key, "a namespace's name").bytes();
      SetMember(run, space, name, member);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    run->ChargeItems(2);
    SetMember(run, space, name, value);
  }
  return Value(space);
}

Value MakeDict(Interpreter* run, const CallArguments& arguments) {
  DictBuilder builder(run);
  if (arguments.positional.size() > 1) Fail("dict takes one dict or list of pairs");
  for (const Value& value : arguments.positional) builder.AddAll(value);
  for (const auto& [name, value] : arguments.named) builder.Add(Value(Text(name)), value);
  return builder.Build();
}

// Members of the namespaces that joiner() and cycler() return. A template cannot set names with an
// underscore in front.
constexpr std::string_view kSeparator = "_separator", kWasCalled = "_was_called";
constexpr std::string_view kItems = "_items", kAt = "_at";

// A function that returns nothing the first time, and then the separator.
Value MakeJoiner(Interpreter* run, const CallArguments& arguments) {
  Namespace* const space = run->NewNamespace();
  space->Set(kSeparator, arguments.Get(0, "sep", Value(Text(", "))));
  space->Set(kWasCalled, Value(false));
  return Value(
      std::make_shared<const Callable>(Callable{"joiner", true, Value(space), nullptr, {}}));
}

// An object that goes round its values: next(), current and reset().
Value MakeCycler(Interpreter* run, const CallArguments& arguments) {
  if (arguments.positional.empty()) Fail("cycler needs values");
  Namespace* const space = run->NewNamespace();
  space->Set(kItems, run->MakeList(arguments.positional));
  space->Set(kAt, Value(int64_t{0}));
  return Value(space);
}

Value CycledItem(const Namespace& space) {
  const auto& items = space.Find(kItems)->list().items;
  return items[static_cast<size_t>(space.Find(kAt)->as_int()) % items.size()];
}

// Calls a joiner, or a method of a cycler.
Value CallNamespace(Namespace* space, std::string_view name) {
  if (name == "joiner") {
    const bool is_first = !Truthy(*space->Find(kWasCalled));
    space->Set(kWasCalled, Value(true));
    return is_first ? Value(Text()) : *space->Find(kSeparator);
  }
  const int64_t at = space->Find(kAt)->as_int();
  Value item = CycledItem(*space);
  space->Set(kAt, Value(name == "next" ? at + 1 : int64_t{0}));
  return name == "next" ? item : Value(None{});
}

// Converts a format to one for strftime: replaces the directives that Python's datetime formats
// itself, for a time without a zone in whole seconds.
std::string StrftimeFormat(const std::string& format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if (format[i] != '%' || (next != 'f' && next != 'z' && next != 'Z' && next != '%')) {
      out += format[i];
      continue;
    }
    if (next == '%') out += "%%";
    if (next == 'f') out += "000000";
    ++i;
  }
  return out;
}

Value StrftimeNow(Interpreter* run, const CallArguments& arguments) {
  const Text format = NeedText(arguments.Get(0, "format", Value()), "strftime_now's format");
  if (format.size() > 256) Fail("strftime_now's format must have at most 256 bytes");
  const std::time_t now = run->Now();
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t length =
      std::strftime(buffer, sizeof buffer, StrftimeFormat(format.bytes()).c_str(), &local);
  return run->MakeText(Text(std::string_view(buffer, length), format.AllTrusted()));
}

}  // namespace

bool IsCycler(const Namespace& space) { return space.Find(kItems) != nullptr; }

Value CurrentOf(const Namespace& cycler) { return CycledItem(cycler); }

Value Interpreter::CallFunction(const std::string& name, const CallArguments& arguments) {
  if (name == "raise_exception") {
    throw Error(
        Visible(StrOf(arguments.Get(0, "message", Value(Text("raise_exception")))).bytes(), 1000));
  }
  if (name == "range") return Range(this, arguments);
  if (name == "namespace") return MakeNamespace(this, arguments);
  if (name == "dict") return MakeDict(this, arguments);
  if (name == "joiner") return MakeJoiner(this, arguments);
  if (name == "cycler") return MakeCycler(this, arguments);
  return StrftimeNow(this, arguments);
}

Value Interpreter::CallMethod(const Value& self, std::string_view name,
                              const CallArguments& arguments) {
  if (self.is_text()) return CallTextMethod(this, self.text(), name, arguments);
  if (self.is_dict()) return CallDictMethod(this, self, name, arguments);
  if (self.is_namespace()) return CallNamespace(self.name_space(), name);
  if (self.is_double()) return Value(std::trunc(self.as_double()) == self.as_double());
  if (self.is_loop()) return CallLoopMethod(&self.loop(), name, arguments);
  return CallListMethod(this, self.list(), name, arguments);
}

// loop.cycle(...) and loop.changed(...).
Value Interpreter::CallLoopMethod(LoopState* loop, std::string_view name,
                                  const CallArguments& arguments) {
  if (name == "cycle") {
    if (arguments.positional.empty()) Fail("loop.cycle needs values");
    return arguments.positional[loop->index % arguments.positional.size()];
  }
  if (loop->has_ended) Fail("loop.changed is called after the loop has ended");
  const std::vector<Value>& values = arguments.positional;
  ChargeItems(values.size());
  bool is_same = loop->has_changed && values.size() == loop->last_changed.size();
  for (size_t i = 0; is_same && i < values.size(); ++i) {
    ChargeComparison(values[i], loop->last_changed[i]);
    is_same = Equal(values[i], loop->last_changed[i]);
  }
  loop->has_changed = true;
  loop->last_changed = values;
  return Value(!is_same);
}

Value Interpreter::LoopAttribute(const Value& value, std::string_view name) {
  LoopState& loop = value.loop();
  const auto index = static_cast<int64_t>(loop.index);
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "first") return Value(index == 0);
  if (name == "depth") return Value(int64_t{loop.level});
  if (name == "depth0") return Value(int64_t{loop.level - 1});
  if (name == "previtem") return index > 0 ? loop.previous : Value(Undefined{"loop.previtem"});
  // The other attributes look ahead, which is impossible after the loop: its scope no longer
  // exists.
  if (loop.has_ended && loop.statement->condition != nullptr && loop.next < loop.items.size())
    Fail("loop.{} is read after the loop has ended", Visible(name));
  if (name == "last") return Value(!LookAhead(&loop));
  if (name == "nextitem")
    return LookAhead(&loop) ? loop.ahead.front() : Value(Undefined{"loop.nextitem"});
  if (name != "revindex" && name != "revindex0" && name != "length")
    return Value(Undefined{fmt::format("loop.{}", name)});
  const auto to_come = static_cast<int64_t>(CountAhead(&loop));
  if (name == "length") return Value(index + 1 + to_come);
  return Value(name == "revindex" ? to_come + 1 : to_come);
}

}  // namespace minisgl::text::jinja
