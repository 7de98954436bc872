// Functions that a template may call, the attributes of `loop`, and the dispatch of methods.
#include <ctime>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::jinja {
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
    for (const auto& [name, member] : value.dict().members) {
      run->ChargeSearch(space->members.size(), name.bytes());
      space->Set(name.bytes(), member);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    run->ChargeItems(2);
    run->ChargeSearch(space->members.size(), name);
    space->Set(name, value);
  }
  return Value(space);
}

Value MakeDict(Interpreter* run, const CallArguments& arguments) {
  std::vector<std::pair<Text, Value>> members;
  for (const Value& value : arguments.positional) {
    if (!value.is_dict()) Fail("dict takes names with values, or a dict");
    run->ChargeItems(value.dict().members.size());
    run->ChargeKeys(value.dict());
    members = value.dict().members;
  }
  for (const auto& [name, value] : arguments.named) {
    bool is_known = false;
    run->ChargeSearch(members.size(), name);
    for (auto& [key, member] : members) {
      if (key.bytes() == name) {
        member = value;
        is_known = true;
      }
    }
    if (is_known) continue;
    run->ChargeItems(2);
    members.emplace_back(Text(name), value);
  }
  return Value::FromDict(std::move(members));
}

Value StrftimeNow(Interpreter* run, const CallArguments& arguments) {
  const std::string format =
      NeedText(arguments.Get(0, "format", Value()), "strftime_now's format").bytes();
  if (format.empty() || format.size() > 256) Fail("strftime_now's format must have 1 to 256 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return run->MakeText(Text(std::string_view(buffer, length)));
}

}  // namespace

Value Interpreter::CallFunction(const std::string& name, const CallArguments& arguments) {
  if (name == "raise_exception") {
    throw Error(
        Visible(StrOf(arguments.Get(0, "message", Value(Text("raise_exception")))).bytes(), 1000));
  }
  if (name == "range") return Range(this, arguments);
  if (name == "namespace") return MakeNamespace(this, arguments);
  if (name == "dict") return MakeDict(this, arguments);
  return StrftimeNow(this, arguments);
}

Value Interpreter::CallMethod(const Value& self, std::string_view name,
                              const CallArguments& arguments) {
  if (self.is_text()) return CallTextMethod(this, self.text(), name, arguments);
  if (self.is_dict()) return CallDictMethod(this, self, name, arguments);
  if (self.is_loop()) {  // loop.cycle(...)
    if (arguments.positional.empty()) Fail("loop.cycle needs values");
    return arguments.positional[self.loop().index % arguments.positional.size()];
  }
  return CallListMethod(this, self.list(), name, arguments);
}

Value Interpreter::LoopAttribute(const Value& value, std::string_view name) {
  const LoopState& loop = value.loop();
  const auto index = static_cast<int64_t>(loop.index),
             length = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value(index + 1);
  if (name == "index0") return Value(index);
  if (name == "revindex") return Value(length - index);
  if (name == "revindex0") return Value(length - index - 1);
  if (name == "first") return Value(index == 0);
  if (name == "last") return Value(index + 1 == length);
  if (name == "length") return Value(length);
  if (name == "depth") return Value(int64_t{loop.nesting});
  if (name == "depth0") return Value(int64_t{loop.nesting - 1});
  if (name == "previtem")
    return index > 0 ? loop.items[index - 1] : Value(Undefined{"loop.previtem"});
  if (name == "nextitem")
    return index + 1 < length ? loop.items[index + 1] : Value(Undefined{"loop.nextitem"});
  return Value(Undefined{fmt::format("loop.{}", name)});
}

}  // namespace minisgl::jinja
