// Statements, scopes and the bounds of work.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"

namespace minisgl::jinja {

// Counts one node: its visit, and its depth for as long as it runs.
class Interpreter::Nest {
 public:
  explicit Nest(Interpreter* run) : run_(run) {
    run_->ChargeVisits(1);
    if (run_->depth_ >= kCallDepthMax)
      Fail("it nests more than {} deep while it runs", kCallDepthMax);
    ++run_->depth_;
  }
  ~Nest() { --run_->depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  Interpreter* run_;
};

const Value* CallArguments::Find(size_t index, std::string_view name) const {
  if (index < positional.size()) return &positional[index];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Value CallArguments::Get(size_t index, std::string_view name, Value fallback) const {
  const Value* value = Find(index, name);
  return value != nullptr ? *value : std::move(fallback);
}

Interpreter::Interpreter(std::vector<std::pair<std::string, Value>> variables) {
  for (auto& [name, value] : variables)
    root_.variables.insert_or_assign(std::move(name), std::move(value));
}

Interpreter::~Interpreter() = default;

Text Interpreter::Run(const Block& block) {
  RunBlock(block);
  return std::move(output_);
}

void Interpreter::ChargeVisits(int64_t count) {
  visits_ += count;
  if (visits_ > kVisitsMax) Fail("it does more than {} steps; it may never end", kVisitsMax);
}

void Interpreter::ChargeWork(uint64_t bytes) {
  bytes_ += std::min(bytes, kWorkBytesMax);
  if (bytes_ > kWorkBytesMax) Fail("it builds more than {} MiB of values", kWorkBytesMax >> 20);
}

void Interpreter::ChargeText(uint64_t bytes) {
  if (bytes > kTextBytesMax) Fail("a text is longer than {} MiB", kTextBytesMax >> 20);
  ChargeWork(bytes);
}

void Interpreter::ChargeKeys(const Dict& dict) {
  uint64_t bytes = 0;
  for (const auto& member : dict.members) bytes += member.first.footprint();
  ChargeWork(bytes);
}

void Interpreter::ChargeSearch(size_t count, std::string_view key) {
  // Only keys of one length are compared, 16 bytes in about a step.
  ChargeWork(uint64_t{count} * (1 + key.size() / 16));
}

void Interpreter::ChargeComparison(const Value& a, const Value& b) {
  // The members of dicts are put in order first.
  const uint64_t weight = std::min(a.Weight(), b.Weight());
  ChargeWork(a.is_text() ? weight : 8 * weight);
}

Value Interpreter::MakeText(Text text) {
  ChargeText(text.size());
  ChargeWork(text.footprint() - text.size());
  return Value(std::move(text));
}

Value Interpreter::MakeList(std::vector<Value> items, bool is_tuple) {
  ChargeItems(items.size());
  return Value::FromList(std::move(items), is_tuple);
}

Namespace* Interpreter::NewNamespace() {
  ChargeItems(4);
  return &namespaces_.emplace_back();
}

Text Interpreter::StrOf(const Value& value) {
  ChargeWork(value.Weight());
  Text text;
  AppendStr(value, &text);
  ChargeText(text.size());
  ChargeWork(text.footprint() - text.size());
  return text;
}

Interpreter::Flow Interpreter::RunBlock(const Block& block) {
  for (const auto& statement : block) {
    const Flow flow = RunStatement(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement) try {
  const Nest nest(this);
  switch (statement.kind) {
    case Statement::Kind::kData:
      Output(Value(statement.text));
      break;
    case Statement::Kind::kOutput:
      Output(Eval(*statement.expr));
      break;
    case Statement::Kind::kIf:
      return RunIf(statement);
    case Statement::Kind::kFor:
      return RunFor(statement);
    case Statement::Kind::kSet:
      Assign(statement.target, Eval(*statement.expr));
      break;
    case Statement::Kind::kSetBlock:
    case Statement::Kind::kFilter:
      RunSetBlock(statement);
      break;
    case Statement::Kind::kMacro:
      SetVariable(statement.macro->name,
                  Value(std::make_shared<const Callable>(
                      Callable{statement.macro->name, false, {}, statement.macro.get()})));
      break;
    case Statement::Kind::kCall:
      RunCall(statement);
      break;
    case Statement::Kind::kWith:
      return RunWith(statement);
    case Statement::Kind::kScope:
      return RunBlock(statement.body);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
} catch (Error& error) {
  error.SetLine(statement.line);
  throw;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement) {
  for (const auto& [condition, body] : statement.branches) {
    if (condition == nullptr || Truthy(Eval(*condition))) return RunBlock(body);
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement) {
  const auto loop = std::make_shared<LoopState>();
  loop->items = Elements(Eval(*statement.expr));
  if (statement.condition != nullptr) {
    Scope scope{scope_, {}};
    scope_ = &scope;
    std::vector<Value> kept;
    for (Value& item : loop->items) {
      ChargeVisits(1);
      Assign(statement.target, item);
      if (Truthy(Eval(*statement.condition))) kept.push_back(std::move(item));
    }
    loop->items = std::move(kept);
    scope_ = scope.parent;
  }
  for (const Value& item : loop->items) loop->depth = std::max(loop->depth, item.Depth() + 1);
  if (loop->items.empty()) return RunBlock(statement.other);
  loop->nesting = ++loop_nesting_;
  const Flow flow = RunIterations(statement, loop);
  --loop_nesting_;
  return flow;
}

Interpreter::Flow Interpreter::RunIterations(const Statement& statement,
                                             const std::shared_ptr<LoopState>& loop) {
  for (size_t i = 0; i < loop->items.size(); ++i) {
    ChargeVisits(1);
    loop->index = i;
    Scope scope{scope_, {}};
    scope_ = &scope;
    SetVariable("loop", Value(std::shared_ptr<const LoopState>(loop)));
    Assign(statement.target, loop->items[i]);
    const Flow flow = RunBlock(statement.body);
    scope_ = scope.parent;
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

void Interpreter::RunSetBlock(const Statement& statement) {
  Value value = MakeText(Capture(statement.body));
  if (statement.expr != nullptr) value = EvalFilter(*statement.expr, &value);
  if (statement.kind == Statement::Kind::kFilter) {
    Output(value);
  } else {
    Assign(statement.target, value);
  }
}

void Interpreter::RunCall(const Statement& statement) {
  callers_.push_back({statement.macro.get(), scope_});
  const Value caller(
      std::make_shared<const Callable>(Callable{"caller", false, {}, statement.macro.get()}));
  Output(EvalCall(*statement.expr, &caller));
  callers_.pop_back();
}

Interpreter::Flow Interpreter::RunWith(const Statement& statement) {
  Scope scope{scope_, {}};
  std::vector<Value> values;
  for (const auto& binding : statement.bindings) values.push_back(Eval(*binding.second));
  scope_ = &scope;
  for (size_t i = 0; i < values.size(); ++i) Assign(statement.bindings[i].first, values[i]);
  const Flow flow = RunBlock(statement.body);
  scope_ = scope.parent;
  return flow;
}

Text Interpreter::Capture(const Block& block) {
  Text text;
  Text* const outer = out_;
  out_ = &text;
  RunBlock(block);
  out_ = outer;
  return text;
}

void Interpreter::Output(const Value& value) {
  if (value.is_text()) {
    ChargeWork(value.text().footprint());
    out_->Append(value.text());
  } else {
    out_->Append(StrOf(value));
  }
  if (out_->size() > kTextBytesMax) Fail("its output is longer than {} MiB", kTextBytesMax >> 20);
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.tuple.empty()) {
    const std::vector<Value> items = Elements(value);
    if (items.size() != target.tuple.size()) {
      Fail("{} values cannot be assigned to {} names", items.size(), target.tuple.size());
    }
    for (size_t i = 0; i < items.size(); ++i) Assign(target.tuple[i], items[i]);
  } else if (target.attribute.empty()) {
    SetVariable(target.name, value);
  } else {
    const Value* const space = FindVariable(target.name);
    if (space == nullptr || !space->is_namespace()) {
      Fail("only attributes of a namespace can be set, and \"{}\" is none", Visible(target.name));
    }
    ChargeSearch(space->name_space()->members.size(), target.attribute);
    space->name_space()->Set(target.attribute, value);
  }
}

const Value* Interpreter::FindVariable(std::string_view name) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    const auto found = scope->variables.find(name);
    if (found != scope->variables.end()) return &found->second;
  }
  return nullptr;
}

void Interpreter::SetVariable(std::string_view name, Value value) {
  const auto found = scope_->variables.find(name);
  if (found != scope_->variables.end()) {
    found->second = std::move(value);
  } else {
    scope_->variables.emplace(name, std::move(value));
  }
}

// Nests as a node does: map("map", ...) is a filter within a filter in one node.
Value Interpreter::Filter(std::string_view name, const Value& input,
                          const CallArguments& arguments) {
  const Nest nest(this);
  return ApplyFilter(this, name, input, arguments);
}

Value Interpreter::CallMacro(const Macro& macro, Scope* outer, const CallArguments& arguments,
                             const Value* caller) {
  const Nest nest(this);
  Scope scope{outer, {}};
  if (arguments.positional.size() > macro.parameters.size()) {
    Fail("macro {} takes {} arguments (found {})", Visible(macro.name), macro.parameters.size(),
         arguments.positional.size());
  }
  for (const auto& [name, value] : arguments.named) {
    const bool is_known = std::any_of(
        macro.parameters.begin(), macro.parameters.end(),
        [&, key = std::string_view(name)](const Parameter& p) { return p.name == key; });
    if (!is_known && name != "caller")
      Fail("macro {} has no argument \"{}\"", Visible(macro.name), Visible(name));
  }
  Scope* const calling = scope_;
  scope_ = &scope;
  if (caller != nullptr) SetVariable("caller", *caller);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (const Value* given = arguments.Find(i, parameter.name)) {
      SetVariable(parameter.name, *given);
    } else if (parameter.fallback != nullptr) {
      SetVariable(parameter.name, Eval(*parameter.fallback));
    } else {
      SetVariable(parameter.name, Value(Undefined{parameter.name}));
    }
  }
  const int loop_nesting = std::exchange(loop_nesting_, 0);
  Text text = Capture(macro.body);
  loop_nesting_ = loop_nesting;
  scope_ = calling;
  return MakeText(std::move(text));
}

Value Interpreter::CallCaller(const Macro& macro, const CallArguments& arguments) {
  for (auto caller = callers_.rbegin(); caller != callers_.rend(); ++caller) {
    if (caller->macro == &macro) return CallMacro(macro, caller->scope, arguments, nullptr);
  }
  Fail("caller() is called after its block has ended");
}

}  // namespace minisgl::jinja
