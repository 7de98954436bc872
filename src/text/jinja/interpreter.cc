// Execution of statements: scopes, loops, macros, and the accounting of work.
#include "text/jinja/interpreter.h"

#include <algorithm>
#include <ctime>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"

namespace minisgl::text::jinja {

// Counts the visit of a node, and a nesting level during its lifetime.
class Interpreter::Nest {
 public:
  explicit Nest(Interpreter* run) : run_(run) {
    run_->ChargeVisits(1);
    if (run_->depth_ >= kCallDepthMax) Fail("evaluation nests more than {} deep", kCallDepthMax);
    ++run_->depth_;
  }
  ~Nest() { --run_->depth_; }
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;

 private:
  Interpreter* run_;
};

namespace {

uint64_t WeightOf(const std::vector<std::pair<std::string, Value>>& variables) {
  uint64_t weight = 0;
  for (const auto& [name, value] : variables) weight += value.Weight();
  return weight;
}

}  // namespace

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

Interpreter::Interpreter(std::vector<std::pair<std::string, Value>> variables,
                         std::optional<int64_t> now, const std::atomic<bool>* cancelled)
    : memory_(WeightOf(variables)), now_(now), cancelled_(cancelled) {
  for (auto& [name, value] : variables)
    root_.variables.insert_or_assign(std::move(name), std::move(value));
}

Interpreter::~Interpreter() = default;

Text Interpreter::Run(const Block& block) {
  RunBlock(block);
  return std::move(output_);
}

int64_t Interpreter::Now() const { return now_.value_or(std::time(nullptr)); }

void Interpreter::ChargeVisits(int64_t count) {
  visits_ += count;
  if (cancelled_ != nullptr && cancelled_->load(std::memory_order_relaxed))
    Fail("it was cancelled");
  if (visits_ > kVisitsMax) Fail("it takes more than {} steps; it may not terminate", kVisitsMax);
}

void Interpreter::ChargeWork(uint64_t bytes) {
  bytes_ += std::min(bytes, kWorkBytesMax);
  if (bytes_ > kWorkBytesMax) Fail("it builds more than {} MiB of values", kWorkBytesMax >> 20);
  if (memory_.IsBroken()) {
    Fail("it holds more than {} MiB of values at one time", memory_.held_max() >> 20);
  }
}

void Interpreter::ChargeText(uint64_t bytes) {
  if (bytes > TextBytesMax()) Fail("a text is longer than {} MiB", TextBytesMax() >> 20);
  ChargeWork(bytes);
}

void Interpreter::ChargeKeys(const Dict& dict) {
  uint64_t bytes = 0;
  for (const auto& member : dict.members) bytes += member.first.Weight();
  ChargeWork(bytes);
}

void Interpreter::ChargeSearch(size_t count, std::string_view key) {
  // Visiting a member costs about two steps. Only keys of equal length are compared, at about 16
  // bytes per step.
  ChargeWork(uint64_t{count} * (2 + key.size() / 16));
}

void Interpreter::ChargeKeySearch(const Dict& dict, const Value& key) {
  ChargeSearch(dict.members.size(), key.is_text() ? key.text().bytes() : std::string_view());
}

void Interpreter::ChargeComparison(const Value& a, const Value& b) {
  // A factor for dicts, whose members are sorted first.
  const uint64_t weight = std::min(a.Weight(), b.Weight());
  ChargeWork(a.is_text() ? weight : 8 * weight);
}

Value Interpreter::MakeText(Text text) {
  ChargeText(text.footprint());
  return Value(std::move(text));
}

Value Interpreter::MakeList(std::vector<Value> items, ListKind kind) {
  ChargeItems(items.size());
  return Value::FromList(std::move(items), kind);
}

Namespace* Interpreter::NewNamespace() {
  ChargeItems(4);
  return &namespaces_.emplace_back();
}

Text Interpreter::StrOf(const Value& value) {
  ChargeWork(value.Weight());
  Text text;
  AppendStr(value, &text);
  ChargeText(text.footprint());
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
      DefineMacro(*statement.macro);
      break;
    case Statement::Kind::kCall:
      RunCall(statement);
      break;
    case Statement::Kind::kWith:
      return RunWith(statement);
    case Statement::Kind::kScope:
      out_->Append(CaptureInScope(statement.body));
      break;
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
  return RunLoop(statement, Elements(Eval(*statement.expr)), 1);
}

Interpreter::Flow Interpreter::RunLoop(const Statement& statement, std::vector<Value> items,
                                       int level) {
  const auto loop = std::make_shared<LoopState>();
  loop->items = std::move(items);
  loop->held.Add(sizeof(LoopState) + loop->items.capacity() * sizeof(Value));
  loop->statement = &statement;
  loop->outer = scope_;
  loop->level = level;
  for (const Value& item : loop->items) loop->depth = std::max(loop->depth, item.Depth() + 1);
  // However the loop ends, its state then refers to no scope and holds no values that refer to it.
  struct End {
    LoopState* loop;
    ~End() {
      loop->has_ended = true;
      loop->last_changed.clear();
    }
  } const end{loop.get()};
  bool had_whole_one = false;
  RunIterations(statement, loop, &had_whole_one);
  if (had_whole_one || statement.other.empty()) return Flow::kNext;
  Scope scope{scope_, {}, {}};
  scope_ = &scope;
  const Flow flow = RunBlock(statement.other);
  scope_ = scope.parent;
  return flow;
}

bool Interpreter::LookAhead(LoopState* loop) {
  if (!loop->ahead.empty()) return true;
  const ExprPtr& condition = loop->statement->condition;
  Scope* const scope_before = scope_;
  bool found = false;
  while (!found && loop->next < loop->items.size()) {
    Value item = loop->items[loop->next++];
    if (condition != nullptr) {
      ChargeVisits(1);
      Scope scope{loop->outer, {}, {}};
      scope_ = &scope;
      Assign(loop->statement->target, item);
      found = Truthy(Eval(*condition));
      scope_ = scope_before;
      if (!found) continue;
    }
    found = true;
    loop->ahead.push_back(std::move(item));
  }
  return found;
}

size_t Interpreter::CountAhead(LoopState* loop) {
  if (loop->statement->condition == nullptr)
    return loop->ahead.size() + loop->items.size() - loop->next;
  std::deque<Value> ahead;
  while (LookAhead(loop)) {
    ahead.push_back(std::move(loop->ahead.front()));
    loop->ahead.pop_front();
  }
  loop->ahead = std::move(ahead);
  return loop->ahead.size();
}

// `had_whole_one` is set if an iteration was completed. As in the reference, an iteration ended by
// break or continue does not suppress the else.
Interpreter::Flow Interpreter::RunIterations(const Statement& statement,
                                             const std::shared_ptr<LoopState>& loop,
                                             bool* had_whole_one) {
  for (size_t i = 0; LookAhead(loop.get()); ++i) {
    ChargeVisits(1);
    loop->index = i;
    if (i > 0) loop->previous = std::move(loop->current);
    loop->current = std::move(loop->ahead.front());
    loop->ahead.pop_front();
    Scope scope{scope_, {}, {}};
    scope_ = &scope;
    SetVariable("loop", Value(loop));
    Assign(statement.target, loop->current);
    const Flow flow = RunBlock(statement.body);
    scope_ = scope.parent;
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) *had_whole_one = true;
  }
  return Flow::kNext;
}

void Interpreter::DefineMacro(const Macro& macro) {
  if (scope_->handle == nullptr) scope_->handle = std::make_shared<Scope*>(scope_);
  SetVariable(macro.name, Value(std::make_shared<const Callable>(
                              Callable{macro.name, false, {}, &macro, scope_->handle})));
}

void Interpreter::RunSetBlock(const Statement& statement) {
  Value value = MakeText(CaptureInScope(statement.body));
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
      std::make_shared<const Callable>(Callable{"caller", false, {}, statement.macro.get(), {}}));
  Output(EvalCall(*statement.expr, &caller));
  callers_.pop_back();
}

Interpreter::Flow Interpreter::RunWith(const Statement& statement) {
  Scope scope{scope_, {}, {}};
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

Text Interpreter::CaptureInScope(const Block& block) {
  Scope scope{scope_, {}, {}};
  scope_ = &scope;
  Text text = Capture(block);
  scope_ = scope.parent;
  return text;
}

void Interpreter::CheckDefined(const Value& value) const {
  if (requires_defined_ && value.is_undefined()) {
    Fail("'{}' is undefined", Visible(value.undefined_name()));
  }
}

void Interpreter::Output(const Value& value) {
  CheckDefined(value);
  if (value.is_text()) {
    ChargeWork(value.text().footprint());
    out_->Append(value.text());
  } else {
    out_->Append(StrOf(value));
  }
  if (out_->footprint() > TextBytesMax())
    Fail("its output is longer than {} MiB", TextBytesMax() >> 20);
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
    SetMember(this, space->name_space(), target.attribute, value);
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

// Counts a nesting level, as for a node: map("map", ...) nests filters inside one node.
Value Interpreter::Filter(std::string_view name, const Value& input,
                          const CallArguments& arguments) {
  const Nest nest(this);
  if (name != "default" && name != "d") CheckDefined(input);
  return ApplyFilter(this, name, input, arguments);
}

// Defines the macro's parameters in the current scope. Other arguments go into varargs and kwargs
// if the macro uses them.
void Interpreter::BindParameters(const Macro& macro, const CallArguments& arguments) {
  const size_t count = macro.parameters.size();
  std::vector<Value> more_positional;
  if (arguments.positional.size() > count) {
    if (!macro.takes_varargs) {
      Fail("macro {} takes {} arguments (found {})", Visible(macro.name), count,
           arguments.positional.size());
    }
    more_positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(count),
                           arguments.positional.end());
  }
  std::vector<std::pair<Value, Value>> more_named;
  for (const auto& [name, value] : arguments.named) {
    const auto known =
        std::find_if(macro.parameters.begin(), macro.parameters.end(),
                     [key = std::string_view(name)](const Parameter& p) { return p.name == key; });
    if (known != macro.parameters.end()) {
      const auto place = static_cast<size_t>(known - macro.parameters.begin());
      if (place < arguments.positional.size())
        Fail("macro {} is given \"{}\" twice", Visible(macro.name), Visible(name));
    } else if (name == "caller" && macro.takes_caller) {
      SetVariable("caller", value);
    } else if (macro.takes_kwargs) {
      more_named.emplace_back(Value(Text(name)), value);
    } else {
      Fail("macro {} has no argument \"{}\"", Visible(macro.name), Visible(name));
    }
  }
  if (macro.takes_varargs)
    SetVariable("varargs", MakeList(std::move(more_positional), ListKind::kTuple));
  if (macro.takes_kwargs) SetVariable("kwargs", Value::FromDict(std::move(more_named)));
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (const Value* given = arguments.Find(i, parameter.name)) {
      SetVariable(parameter.name, *given);
    } else if (parameter.fallback != nullptr) {
      SetVariable(parameter.name, Eval(*parameter.fallback));
    } else {
      SetVariable(parameter.name, Value(Undefined{parameter.name}));
    }
  }
}

Value Interpreter::CallMacro(const Macro& macro, Scope* outer, const CallArguments& arguments,
                             const Value* caller) {
  const Nest nest(this);
  Scope scope{outer, {}, {}};
  Scope* const calling = scope_;
  scope_ = &scope;
  if (caller != nullptr) {
    if (!macro.takes_caller) Fail("macro {} does not use its caller", Visible(macro.name));
    SetVariable("caller", *caller);
  }
  BindParameters(macro, arguments);
  Text text = Capture(macro.body);
  scope_ = calling;
  return MakeText(std::move(text));
}

// loop(items) inside a recursive loop: runs its body over `items`.
Value Interpreter::CallLoop(LoopState* loop, const CallArguments& arguments) {
  const Nest nest(this);
  if (!loop->statement->is_recursive || loop->has_ended)
    Fail("only a recursive loop that runs can be called");
  if (arguments.positional.size() != 1) Fail("loop takes one argument");
  std::vector<Value> items = Elements(arguments.positional[0]);
  Text text;
  Text* const out = std::exchange(out_, &text);
  Scope* const calling = std::exchange(scope_, loop->outer);
  RunLoop(*loop->statement, std::move(items), loop->level + 1);
  scope_ = calling;
  out_ = out;
  return MakeText(std::move(text));
}

void SetMember(Interpreter* run, Namespace* space, std::string_view name, const Value& value) {
  if (name.starts_with("_"))
    Fail("a namespace cannot hold \"{}\": it begins with an underscore", Visible(name));
  if (name.size() > kNameBytesMax) Fail("a namespace's name has {} bytes", name.size());
  run->ChargeSearch(space->members.size(), name);
  space->Set(name, value);
}

void DictBuilder::Add(Value key, Value value) {
  if (!key.is_text() && !key.is_number() && !key.is_none())
    Fail("{} cannot be a dict's key", key.TypeName());
  run_->ChargeSearch(members_.size(), key.is_text() ? key.text().bytes() : std::string_view());
  const auto same = std::find_if(members_.begin(), members_.end(), [&](const auto& member) {
    return key.is_text()
               ? member.first.is_text() && member.first.text().bytes() == key.text().bytes()
               : Equal(member.first, key);
  });
  if (same != members_.end()) {
    same->second = std::move(value);
    return;
  }
  run_->ChargeItems(2);
  members_.emplace_back(std::move(key), std::move(value));
}

void DictBuilder::AddAll(const Value& dict_or_pairs) {
  if (dict_or_pairs.is_dict()) {
    run_->ChargeItems(dict_or_pairs.dict().members.size());
    run_->ChargeKeys(dict_or_pairs.dict());
    if (members_.empty()) {
      members_ = dict_or_pairs.dict().members;
      return;
    }
    for (const auto& [key, value] : dict_or_pairs.dict().members) Add(key, value);
    return;
  }
  for (const Value& pair : run_->Elements(dict_or_pairs)) {
    const std::vector<Value> parts = run_->Elements(pair);
    if (parts.size() != 2) Fail("dict takes pairs (found {} values)", parts.size());
    Add(parts[0], parts[1]);
  }
}

Value Interpreter::CallCaller(const Macro& macro, const CallArguments& arguments) {
  for (auto caller = callers_.rbegin(); caller != callers_.rend(); ++caller) {
    if (caller->macro == &macro) return CallMacro(macro, caller->scope, arguments, nullptr);
  }
  Fail("caller() is called after its block has ended");
}

}  // namespace minisgl::text::jinja
