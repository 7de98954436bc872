// Evaluation of expressions: comparisons, attributes, items, slices and calls.
#include <algorithm>
#include <cmath>
#include <limits>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

[[noreturn]] void FailUndefined(const Value& value) {
  Fail("'{}' is undefined", Visible(value.undefined_name()));
}

// Returns the begin or end of a Python slice of a sequence of `size` elements.
int64_t ClampIndex(const Value& index, int64_t size, int64_t fallback, int64_t low, int64_t high) {
  if (index.is_none() || index.is_undefined()) return fallback;
  const int64_t at = NeedInt(index, "a slice's index");
  return std::clamp(at < 0 ? std::max(at, -size - 1) + size : at, low, high);
}

// Returns the indices that a slice selects, in order.
std::vector<size_t> SlicePlaces(size_t count, const Value& begin, const Value& end,
                                const Value& step) {
  const auto size = static_cast<int64_t>(count);
  const int64_t stride =
      step.is_none() || step.is_undefined() ? 1 : NeedInt(step, "a slice's step");
  if (stride == 0) Fail("a slice's step is 0");
  std::vector<size_t> places;
  if (stride > 0) {
    const int64_t first = ClampIndex(begin, size, 0, 0, size),
                  last = ClampIndex(end, size, size, 0, size);
    for (int64_t i = first; i < last; i += std::min(stride, size + 1))
      places.push_back(static_cast<size_t>(i));
  } else {
    const int64_t first = ClampIndex(begin, size, size - 1, -1, size - 1);
    const int64_t last = ClampIndex(end, size, -1, -1, size - 1);
    for (int64_t i = first; i > last; i += std::max(stride, -size - 1))
      places.push_back(static_cast<size_t>(i));
  }
  return places;
}

}  // namespace

const Text& NeedText(const Value& value, std::string_view what) {
  if (value.is_undefined()) FailUndefined(value);
  if (!value.is_text()) Fail("{} must be a string (found {})", what, value.TypeName());
  return value.text();
}

int64_t NeedInt(const Value& value, std::string_view what) {
  if (value.is_undefined()) FailUndefined(value);
  if (value.is_big()) Fail("{} is too large ({})", what, value.as_big().Digits().substr(0, 40));
  if (!value.is_integral()) Fail("{} must be a whole number (found {})", what, value.TypeName());
  return value.as_int();
}

Value Interpreter::Eval(const Expr& expr) {
  ChargeVisits(1);
  if (depth_ >= kCallDepthMax) Fail("evaluation nests more than {} deep", kCallDepthMax);
  ++depth_;
  try {
    Value value = EvalNode(expr);
    --depth_;
    return value;
  } catch (Error& error) {
    error.SetLine(expr.line);
    throw;
  }
}

Value Interpreter::EvalNode(const Expr& expr) {
  const auto child = [&](size_t i) -> Value {
    return expr.children[i] != nullptr ? Eval(*expr.children[i]) : Value(None{});
  };
  switch (expr.kind) {
    case Expr::Kind::kConstant:
      return expr.value;
    case Expr::Kind::kName:
      return EvalName(expr);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return MakeList(EvalAll(expr.children),
                      expr.kind == Expr::Kind::kTuple ? ListKind::kTuple : ListKind::kList);
    case Expr::Kind::kDict:
      return EvalDict(expr);
    case Expr::Kind::kAttribute:
      return OrBehind(expr, Attribute(child(0), expr.name, /*item_first=*/false), nullptr);
    case Expr::Kind::kItem: {
      const Value base = child(0), index = child(1);
      return OrBehind(expr, Item(base, index), &index);
    }
    case Expr::Kind::kSlice:
      return EvalSlice(expr);
    case Expr::Kind::kCall:
      return EvalCall(expr, nullptr);
    case Expr::Kind::kFilter:
      return EvalFilter(expr, nullptr);
    case Expr::Kind::kTest: {
      const Value input = child(0);
      return Value(Test(expr.name, input, EvalArguments(expr.arguments)));
    }
    case Expr::Kind::kNot:
      return Value(!Truthy(child(0)));
    case Expr::Kind::kNegative:
    case Expr::Kind::kPositive: {
      const Value value = child(0);
      if (value.is_undefined()) FailUndefined(value);
      if (!value.is_number()) Fail("a sign before {}", value.TypeName());
      if (value.is_double())
        return Value(expr.kind == Expr::Kind::kNegative ? -value.as_double() : value.as_double());
      return Arithmetic(expr.kind == Expr::Kind::kNegative ? "-" : "+", Value(int64_t{0}), value);
    }
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr: {
      Value value;
      for (const ExprPtr& operand : expr.children) {
        value = Eval(*operand);
        if (Truthy(value) == (expr.kind == Expr::Kind::kOr)) break;
      }
      return value;
    }
    case Expr::Kind::kConcat:
      return EvalConcat(expr);
    case Expr::Kind::kArithmetic: {
      Value value = child(0);
      for (size_t i = 0; i < expr.ops.size(); ++i)
        value = Arithmetic(expr.ops[i], value, child(i + 1));
      return value;
    }
    case Expr::Kind::kCompare:
      return EvalCompare(expr);
    case Expr::Kind::kConditional:
      if (Truthy(child(1))) return child(0);
      return expr.children[2] != nullptr ? child(2) : Value(Undefined{"the else of an if"});
  }
  return Value();
}

Value Interpreter::EvalName(const Expr& expr) {
  if (const Value* value = FindVariable(expr.name)) return *value;
  static constexpr std::string_view kFunctions[] = {
      "raise_exception", "range", "namespace", "dict", "strftime_now", "joiner", "cycler"};
  if (std::find(std::begin(kFunctions), std::end(kFunctions), expr.name) != std::end(kFunctions)) {
    return Value(std::make_shared<const Callable>(Callable{expr.name, false, {}, nullptr, {}}));
  }
  return Value(Undefined{expr.name});
}

Value Interpreter::OrBehind(const Expr& expr, Value member, const Value* index) {
  const Expr& base = *expr.children[0];
  if (!member.is_undefined() || behind_name_.empty() || base.kind != Expr::Kind::kName ||
      base.name != behind_name_ || (index != nullptr && !index->is_text())) {
    return member;
  }
  const auto whole = root_.variables.find(behind_name_);
  const bool is_shadowed =
      whole == root_.variables.end() || FindVariable(behind_name_) != &whole->second;
  if (is_shadowed) return member;
  return Attribute(behind_, index != nullptr ? index->text().bytes() : expr.name,
                   /*item_first=*/true);
}

std::vector<Value> Interpreter::EvalAll(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  values.reserve(exprs.size());
  for (const ExprPtr& expr : exprs) values.push_back(Eval(*expr));
  return values;
}

CallArguments Interpreter::EvalArguments(const Arguments& arguments) {
  CallArguments out;
  out.positional = EvalAll(arguments.positional);
  for (const auto& [name, expr] : arguments.named) out.named.emplace_back(name, Eval(*expr));
  if (arguments.more_positional != nullptr) {
    for (Value& value : Elements(Eval(*arguments.more_positional)))
      out.positional.push_back(std::move(value));
  }
  if (arguments.more_named != nullptr) {
    const Value more = Eval(*arguments.more_named);
    if (!more.is_dict()) Fail("** needs a dict (found {})", more.TypeName());
    ChargeKeys(more.dict());
    for (const auto& [key, value] : more.dict().members) {
      const std::string& name = NeedText(key, "an argument's name").bytes();
      if (name.size() > kNameBytesMax) Fail("an argument's name has {} bytes", name.size());
      ChargeSearch(out.named.size(), name);
      if (out.Find(out.positional.size(), name) != nullptr)
        Fail("the argument \"{}\" is given twice", Visible(name));
      out.named.emplace_back(name, value);
    }
  }
  return out;
}

Value Interpreter::EvalDict(const Expr& expr) {
  DictBuilder builder(this);
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = Eval(*expr.children[i]);
    builder.Add(std::move(key), Eval(*expr.children[i + 1]));
  }
  return builder.Build();
}

Value Interpreter::EvalConcat(const Expr& expr) {
  Text text;
  for (const ExprPtr& operand : expr.children) {
    const Value value = Eval(*operand);
    CheckDefined(value);
    text.Append(StrOf(value));
    if (text.size() > TextBytesMax()) break;
  }
  return MakeText(std::move(text));
}

Value Interpreter::EvalCompare(const Expr& expr) {
  Value left = Eval(*expr.children[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = Eval(*expr.children[i + 1]);
    if (!Compare(expr.ops[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

bool Interpreter::Compare(std::string_view op, const Value& a, const Value& b) {
  if (op == "in") return Contains(b, a);
  if (op == "not in") return !Contains(b, a);
  ChargeComparison(a, b);
  if (op == "==") return Equal(a, b);
  if (op == "!=") return !Equal(a, b);
  if (a.is_undefined()) FailUndefined(a);
  if (b.is_undefined()) FailUndefined(b);
  if (op == "<") return Less(a, b);
  if (op == ">") return Less(b, a);
  return op == "<=" ? Less(a, b) || Equal(a, b) : Less(b, a) || Equal(a, b);
}

bool Interpreter::Contains(const Value& container, const Value& item) {
  if (container.is_text()) {
    ChargeWork(container.text().size());
    const Text& wanted = NeedText(item, "the substring of 'in'");
    return Find(container.text().bytes(), wanted.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (item.is_dict() || (item.is_list() && !item.is_tuple()))
      Fail("{} cannot be a dict's key", item.TypeName());
    ChargeKeySearch(container.dict(), item);
    return container.dict().Find(item) != nullptr;
  }
  if (container.is_list()) {
    const std::vector<Value> items = Elements(container);
    return std::any_of(items.begin(), items.end(), [&](const Value& other) {
      ChargeComparison(other, item);
      return Equal(other, item);
    });
  }
  if (container.is_undefined()) return false;
  Fail("'in' needs a string, a list or a dict (found {})", container.TypeName());
}

Value Interpreter::EvalSlice(const Expr& expr) {
  const Value base = Eval(*expr.children[0]).OrText();
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) {
    parts[i] = expr.children[i + 1] != nullptr ? Eval(*expr.children[i + 1]) : Value(None{});
  }
  if (base.is_sequence()) {
    const auto& items = base.list().items;
    ChargeItems(items.size());
    std::vector<Value> taken;
    for (size_t place : SlicePlaces(items.size(), parts[0], parts[1], parts[2]))
      taken.push_back(items[place]);
    return MakeList(std::move(taken), base.is_tuple() ? ListKind::kTuple : ListKind::kList);
  }
  if (base.is_undefined()) FailUndefined(base);
  if (!base.is_text()) Fail("a slice needs a string or a list (found {})", base.TypeName());
  ChargeWork(uint64_t{16} * base.text().size());
  const std::vector<size_t> offsets = CharacterOffsets(base.text().bytes());
  Text taken;
  for (size_t place : SlicePlaces(offsets.size() - 1, parts[0], parts[1], parts[2])) {
    taken.AppendRange(base.text(), offsets[place], offsets[place + 1]);
  }
  taken.SetMarkup(base.text().is_markup());
  return MakeText(std::move(taken));
}

Value Interpreter::EvalFilter(const Expr& expr, const Value* block_text) {
  Value input;
  if (expr.children[0] != nullptr) {
    // The innermost filter of a block has no operand; the block's text is its input.
    const Expr& operand = *expr.children[0];
    input = block_text != nullptr && operand.kind == Expr::Kind::kFilter
                ? EvalFilter(operand, block_text)
                : Eval(operand);
  } else if (block_text != nullptr) {
    input = *block_text;
  }
  return Filter(expr.name, input, EvalArguments(expr.arguments));
}

Value Interpreter::EvalCall(const Expr& expr, const Value* caller) {
  const Value callee = Eval(*expr.children[0]);
  if (callee.is_undefined()) FailUndefined(callee);
  if (callee.is_loop()) return CallLoop(&callee.loop(), EvalArguments(expr.arguments));
  if (!callee.is_callable()) Fail("{} cannot be called", callee.TypeName());
  const CallArguments arguments = EvalArguments(expr.arguments);
  const Callable& function = *callee.callable();
  if (function.macro != nullptr && function.name == "caller")
    return CallCaller(*function.macro, arguments);
  if (function.macro != nullptr) {
    if (*function.home == nullptr)
      Fail("macro {} is called after the block that made it", Visible(function.name));
    return CallMacro(*function.macro, *function.home, arguments, caller);
  }
  if (function.is_method) return CallMethod(function.self, function.name, arguments);
  return CallFunction(function.name, arguments);
}

Value Interpreter::Attribute(const Value& value, std::string_view name, bool item_first) {
  if (value.is_null_content()) return Attribute(value.OrText(), name, item_first);
  if (value.is_undefined()) FailUndefined(value);
  const auto method = [&]() -> Value {
    return Value(
        std::make_shared<const Callable>(Callable{std::string(name), true, value, nullptr, {}}));
  };
  const bool has_method = HasMethod(value, name);
  if (has_method && !item_first) return method();
  if (value.is_dict()) {
    ChargeSearch(value.dict().members.size(), name);
    if (const Value* member = value.dict().Find(name)) return *member;
  } else if (value.is_namespace()) {
    ChargeSearch(value.name_space()->members.size(), name);
    if (const Value* member = value.name_space()->Find(name)) return *member;
    if (name == "current" && IsCycler(*value.name_space())) return CurrentOf(*value.name_space());
  } else if (value.is_loop()) {
    return LoopAttribute(value, name);
  } else if (value.is_list() && value.list().kind == ListKind::kGroup) {
    if (name == "grouper") return value.list().items[0];
    if (name == "list") return value.list().items[1];
  }
  if (has_method) return method();
  return Value(Undefined{name});
}

Value Interpreter::Item(const Value& value, const Value& index) {
  if (value.is_null_content()) return Item(value.OrText(), index);
  if (value.is_undefined()) FailUndefined(value);
  if (index.is_text()) return Attribute(value, index.text().bytes(), /*item_first=*/true);
  if (value.is_dict()) {
    ChargeKeySearch(value.dict(), index);
    const Value* member = value.dict().Find(index);
    return member != nullptr ? *member : Value(Undefined{StrOf(index).bytes()});
  }
  if (!index.is_integral() || !(value.is_sequence() || value.is_text()))
    return Value(Undefined{StrOf(index).bytes()});
  std::vector<size_t> offsets;
  if (value.is_text()) {
    ChargeWork(uint64_t{16} * value.text().size());
    offsets = CharacterOffsets(value.text().bytes());
  }
  const auto size =
      static_cast<int64_t>(value.is_list() ? value.list().items.size() : offsets.size() - 1);
  int64_t at = index.as_int();
  if (at < 0) at = at < -size ? size : at + size;
  if (at >= size) return Value(Undefined{fmt::format("element {}", index.as_int())});
  if (value.is_list()) return value.list().items[static_cast<size_t>(at)];
  Text character = value.text().Substr(offsets[at], offsets[at + 1]);
  character.SetMarkup(value.text().is_markup());
  return MakeText(std::move(character));
}

std::vector<Value> Interpreter::Elements(const Value& value) {
  std::vector<Value> elements;
  if (value.is_list()) {
    if (value.list().is_spent) return elements;
    value.list().is_spent = value.is_generator();
    ChargeItems(value.list().items.size());
    elements = value.list().items;
  } else if (value.is_dict()) {
    ChargeItems(value.dict().members.size());
    for (const auto& member : value.dict().members) {
      ChargeWork(member.first.Weight());
      elements.push_back(member.first);
    }
  } else if (value.is_text()) {
    ChargeItems(4 * value.text().size());
    const std::string_view bytes = value.text().bytes();
    for (size_t at = 0, length = 0; at < bytes.size(); at += length) {
      ChargeWork(1);
      FirstCodePoint(bytes.substr(at), &length);
      elements.push_back(Value(value.text().Substr(at, at + length)));
    }
  } else if (!value.is_undefined()) {
    Fail("{} cannot be looped over", value.TypeName());
  }
  return elements;
}

}  // namespace minisgl::text::jinja
