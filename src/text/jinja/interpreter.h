// Runs a parsed template within bounds. One interpreter serves one rendering; it owns the
// namespaces.
//
// Bounds: node visits, the bytes that are built or copied, those that are held (bounds.h), nesting.
// Breaking one throws Error with the template's line, as everything else that the template does
// wrong.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/bounds.h"
#include "text/jinja/value.h"

namespace minisgl::text::jinja {

// Names are copied and hashed at each visit of a node, which counts as one step.
inline constexpr size_t kNameBytesMax = 256;
inline constexpr int64_t kVisitsMax = 1'000'000;
inline constexpr uint64_t kWorkBytesMax = uint64_t{512} << 20;  // all texts and lists together
inline constexpr int64_t kRangeMax = 100'000;
inline constexpr int kCallDepthMax =
    500;  // nodes within nodes within macros; real templates stay below 60

// Arguments of a call, evaluated.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The argument at `index` or called `name`; null where there is none.
  const Value* Find(size_t index, std::string_view name) const;
  Value Get(size_t index, std::string_view name, Value fallback) const;
};

struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
};

// A nesting of names: a template's, an iteration's or a macro's. Names are found outwards.
struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string, Value, NameHash, std::equal_to<>> variables;
  std::shared_ptr<Scope*> handle;  // for macros made here; made with the first

  ~Scope() {
    if (handle != nullptr) *handle = nullptr;
  }
};

class Interpreter {
 public:
  // `variables` are what the template may read besides the functions; `now` is what strftime_now
  // reads in place of the clock; a true `*cancelled` (may be null) breaks a bound.
  explicit Interpreter(std::vector<std::pair<std::string, Value>> variables,
                       std::optional<int64_t> now = std::nullopt,
                       const std::atomic<bool>* cancelled = nullptr);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // The template's output. Called once.
  Text Run(const Block& block);

  // For filters, tests and functions.
  void ChargeVisits(int64_t count);
  void ChargeText(uint64_t bytes);  // of one text, which may not be longer than TextBytesMax()
  void ChargeItems(size_t count) { ChargeWork(uint64_t{count} * 64); }
  void ChargeWork(uint64_t bytes);
  void ChargeKeys(const Dict& dict);                      // a copy of its keys
  void ChargeSearch(size_t count, std::string_view key);  // for `key` among `count` others
  void ChargeKeySearch(const Dict& dict, const Value& key);
  void ChargeComparison(const Value& a, const Value& b);
  Value MakeText(Text text);
  Value MakeList(std::vector<Value> items, ListKind kind = ListKind::kList);
  // What a filter gives that Jinja2 makes lazily.
  Value MakeGenerator(std::vector<Value> items) {
    return MakeList(std::move(items), ListKind::kGenerator);
  }
  Namespace* NewNamespace();
  // value.name or value[name], as a template reads it; Undefined where there is none.
  Value Attribute(const Value& value, std::string_view name, bool item_first);
  Value Item(const Value& value, const Value& index);
  // The elements that a loop over `value` meets.
  std::vector<Value> Elements(const Value& value);
  Value Filter(std::string_view name, const Value& input, const CallArguments& arguments);
  bool Test(std::string_view name, const Value& input, const CallArguments& arguments);
  Value Arithmetic(std::string_view op, const Value& a, const Value& b);
  Value AddTexts(const Text& a, const Text& b);
  Text StrOf(const Value& value);
  int64_t Now() const;  // seconds since 1970

 private:
  enum class Flow { kNext, kBreak, kContinue };
  // The body of a {% call %} that runs now, and the scope that it sees.
  struct Caller {
    const Macro* macro = nullptr;
    Scope* scope = nullptr;
  };
  class Nest;  // counts depth and visits for one node

  Flow RunBlock(const Block& block);
  Flow RunStatement(const Statement& statement);
  Flow RunIf(const Statement& statement);
  Flow RunFor(const Statement& statement);
  Flow RunLoop(const Statement& statement, std::vector<Value> items, int level);
  Flow RunIterations(const Statement& statement, const std::shared_ptr<LoopState>& loop,
                     bool* had_whole_one);
  // The next item that passes the loop's condition, looked ahead to where `ahead` is empty.
  bool LookAhead(LoopState* loop);
  size_t CountAhead(LoopState* loop);  // the items to come
  void DefineMacro(const Macro& macro);
  void RunSetBlock(const Statement& statement);
  void RunCall(const Statement& statement);
  Flow RunWith(const Statement& statement);
  Text Capture(const Block& block);
  Text CaptureInScope(const Block& block);
  void Output(const Value& value);
  void Assign(const Target& target, const Value& value);
  const Value* FindVariable(std::string_view name) const;
  void SetVariable(std::string_view name, Value value);

  Value Eval(const Expr& expr);
  Value EvalNode(const Expr& expr);
  Value EvalName(const Expr& expr);
  Value EvalCompare(const Expr& expr);
  Value EvalConcat(const Expr& expr);
  Value EvalDict(const Expr& expr);
  Value EvalSlice(const Expr& expr);
  Value EvalFilter(const Expr& expr, const Value* block_text);
  Value EvalCall(const Expr& expr, const Value* caller);
  CallArguments EvalArguments(const Arguments& arguments);
  std::vector<Value> EvalAll(const std::vector<ExprPtr>& exprs);
  bool Compare(std::string_view op, const Value& a, const Value& b);
  bool Contains(const Value& container, const Value& item);
  void BindParameters(const Macro& macro, const CallArguments& arguments);
  Value CallMacro(const Macro& macro, Scope* outer, const CallArguments& arguments,
                  const Value* caller);
  Value CallLoop(LoopState* loop, const CallArguments& arguments);
  Value CallCaller(const Macro& macro, const CallArguments& arguments);
  Value CallFunction(const std::string& name, const CallArguments& arguments);
  Value CallMethod(const Value& self, std::string_view name, const CallArguments& arguments);
  Value CallLoopMethod(LoopState* loop, std::string_view name, const CallArguments& arguments);
  Value LoopAttribute(const Value& loop, std::string_view name);

  const MemoryBounds memory_;
  const std::optional<int64_t> now_;
  const std::atomic<bool>* const cancelled_;
  std::deque<Namespace> namespaces_;
  Scope root_;
  Scope* scope_ = &root_;
  Text output_;
  Text* out_ = &output_;
  int64_t visits_ = 0;
  uint64_t bytes_ = 0;
  int depth_ = 0;
  std::vector<Caller> callers_;
};

using FilterHandler = Value (*)(Interpreter*, const Value& input, const CallArguments&);
// The filter of lists and dicts that is called so, null for none (filters_sequence.cc).
FilterHandler SequenceFilter(std::string_view name);

bool HasFilter(std::string_view name);

// The filter itself (filters.cc); everyone else calls Interpreter::Filter, which counts its
// nesting.
Value ApplyFilter(Interpreter* run, std::string_view name, const Value& input,
                  const CallArguments& arguments);

// Methods of texts, dicts and lists (methods.cc). `name` is one that HasMethod(self, name).
bool HasMethod(const Value& self, std::string_view name);
Value CallTextMethod(Interpreter* run, const Text& self, std::string_view name,
                     const CallArguments& arguments);
Value CallDictMethod(Interpreter* run, const Value& self, std::string_view name,
                     const CallArguments& arguments);
Value CallListMethod(Interpreter* run, const List& self, std::string_view name,
                     const CallArguments& arguments);

// `format % values` and format.format(...), as Python has them (format.cc).
Value FormatPercent(Interpreter* run, const Text& format, const Value& values);
Value FormatBraces(Interpreter* run, const Text& format, const CallArguments& arguments);

// Shared by filters and methods.
Text Replace(Interpreter* run, const Text& text, const Text& from, const Text& to,
             int64_t count_max);
enum class LetterCase {
  kUpper,
  kLower,
  kCapitalize,
  kTitle,  // str.title(): after whatever is no letter
  kSwap,
  kTitleWords,  // the filter: after white space, '-' and opening brackets
};
Text ChangeCase(Interpreter* run, const Text& text, LetterCase letter_case);  // letter_case.cc
bool IsLetter(char32_t c);
bool IsNumeral(char32_t c);
// isupper and islower: a cased letter, and none of the other case.
bool IsAllUpper(std::string_view text);
bool IsAllLower(std::string_view text);
std::vector<Value> SplitLines(Interpreter* run, const Text& text, bool keeps_ends);
Text Join(Interpreter* run, const std::vector<Value>& items, const Text& separator);
std::vector<Value> DictItems(Interpreter* run, const Dict& dict);

// Fails on names that the reference refuses.
void SetMember(Interpreter* run, Namespace* space, std::string_view name, const Value& value);

// Gathers the members of a dict; a key that is there already keeps its place.
class DictBuilder {
 public:
  explicit DictBuilder(Interpreter* run) : run_(run) {}
  // Fails where `key` cannot be one: lists and dicts.
  void Add(Value key, Value value);
  void AddAll(const Value& dict_or_pairs);
  Value Build() { return Value::FromDict(std::move(members_)); }

 private:
  Interpreter* run_;
  std::vector<std::pair<Value, Value>> members_;
};

// The text that `value` must be; Fails naming `what` otherwise.
const Text& NeedText(const Value& value, std::string_view what);
int64_t NeedInt(const Value& value, std::string_view what);

}  // namespace minisgl::text::jinja
