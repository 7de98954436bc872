// Runs a parsed template within bounds. An interpreter is used for one rendering and owns its
// namespaces.
//
// Bounded are node visits, bytes built or copied, bytes held (bounds.h), and nesting. Exceeding a
// bound throws Error with the template's line, like every other error of a template.
//
// Implemented in interpreter.cc (statements), evaluate.cc (expressions), arithmetic.cc,
// is_operators.cc and builtins.cc; the functions below the class in filters*.cc, methods.cc,
// string_format.cc and letter_case.cc.
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

// Names are bounded because each visit of a node copies and hashes them as one step.
inline constexpr size_t kNameBytesMax = 256;
inline constexpr int64_t kVisitsMax = 1'000'000;
inline constexpr uint64_t kWorkBytesMax = uint64_t{512} << 20;  // all texts and lists together
inline constexpr int64_t kRangeMax = 100'000;
// Nested nodes, including nodes of called macros; real templates stay below 60.
inline constexpr int kCallDepthMax = 500;

// The evaluated arguments of a call.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // Returns the argument at `index`, otherwise the one named `name`, otherwise null.
  const Value* Find(size_t index, std::string_view name) const;
  // The same with `fallback` instead of null.
  Value Get(size_t index, std::string_view name, Value fallback) const;
};

struct NameHash {
  using is_transparent = void;
  size_t operator()(std::string_view name) const { return std::hash<std::string_view>()(name); }
};

// The variables of a template, of an iteration or of a macro call. Lookup proceeds to the parent.
struct Scope {
  Scope* parent = nullptr;
  std::unordered_map<std::string, Value, NameHash, std::equal_to<>> variables;
  // Shared with the macros defined here, and set to null at the end of the scope. Created with the
  // first macro.
  std::shared_ptr<Scope*> handle;

  ~Scope() {
    if (handle != nullptr) *handle = nullptr;
  }
};

class Interpreter {
 public:
  // `variables` are visible to the template in addition to the built-in functions. `now` replaces
  // the clock of strftime_now. Rendering fails if `*cancelled` (may be null) becomes true.
  explicit Interpreter(std::vector<std::pair<std::string, Value>> variables,
                       std::optional<int64_t> now = std::nullopt,
                       const std::atomic<bool>* cancelled = nullptr);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // From now on a missing variable is an error where it is written or filtered, `default` aside.
  void RequireDefined() { requires_defined_ = true; }
  // From now on a member that the variable `name` lacks is looked up in the dict `members`.
  void SetMembersBehind(std::string name, Value members) {
    behind_name_ = std::move(name);
    behind_ = std::move(members);
  }
  // Runs the template and returns its output. Called once.
  Text Run(const Block& block);

  // Accounting for filters, tests and functions; call before the work. Throw if a bound is
  // exceeded.
  void ChargeVisits(int64_t count);
  void ChargeText(uint64_t bytes);  // one text, which must not be longer than TextBytesMax()
  void ChargeItems(size_t count) { ChargeWork(uint64_t{count} * 64); }  // elements of a list
  void ChargeWork(uint64_t bytes);                        // bytes built, copied or scanned
  void ChargeKeys(const Dict& dict);                      // a copy of its keys
  void ChargeSearch(size_t count, std::string_view key);  // a search for `key` among `count` keys
  void ChargeKeySearch(const Dict& dict, const Value& key);
  void ChargeComparison(const Value& a, const Value& b);
  // Create values and charge for them.
  Value MakeText(Text text);
  Value MakeList(std::vector<Value> items, ListKind kind = ListKind::kList);
  // For the result of a filter that is lazy in Jinja2.
  Value MakeGenerator(std::vector<Value> items) {
    return MakeList(std::move(items), ListKind::kGenerator);
  }
  Namespace* NewNamespace();
  // value.name, or value["name"] if `item_first`; Undefined if absent.
  Value Attribute(const Value& value, std::string_view name, bool item_first);
  // value[index]; Undefined if absent.
  Value Item(const Value& value, const Value& index);
  // Returns the elements for a loop over `value`. A generator is empty afterwards.
  std::vector<Value> Elements(const Value& value);
  Value Filter(std::string_view name, const Value& input, const CallArguments& arguments);
  bool Test(std::string_view name, const Value& input, const CallArguments& arguments);
  Value Arithmetic(std::string_view op, const Value& a, const Value& b);
  Value AddTexts(const Text& a, const Text& b);
  Text StrOf(const Value& value);  // str(value)
  int64_t Now() const;             // seconds since 1970

 private:
  enum class Flow { kNext, kBreak, kContinue };  // how a block ended
  // The body of a running {% call %}, and its scope.
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
  // Ensures that `ahead` contains the next item that satisfies the loop's condition; false if there
  // is none.
  bool LookAhead(LoopState* loop);
  size_t CountAhead(LoopState* loop);  // number of items to come
  void DefineMacro(const Macro& macro);
  void RunSetBlock(const Statement& statement);
  void RunCall(const Statement& statement);
  Flow RunWith(const Statement& statement);
  Text Capture(const Block& block);
  Text CaptureInScope(const Block& block);
  void Output(const Value& value);
  // Fails if `value` is missing and must not be.
  void CheckDefined(const Value& value) const;
  void Assign(const Target& target, const Value& value);
  const Value* FindVariable(std::string_view name) const;
  void SetVariable(std::string_view name, Value value);

  Value Eval(const Expr& expr);
  Value EvalNode(const Expr& expr);
  Value WholeArithmetic(std::string_view op, const Value& a, const Value& b);
  Value EvalName(const Expr& expr);
  // `member`, or if it is missing, the one behind the name that `expr` reads it of. `index`: the
  // key of an item; null: `expr` names an attribute.
  Value OrBehind(const Expr& expr, Value member, const Value* index);
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
  bool requires_defined_ = false;
  std::string behind_name_;
  Value behind_;
  std::vector<Caller> callers_;
};

using FilterHandler = Value (*)(Interpreter*, const Value& input, const CallArguments&);
// Returns a filter of lists and dicts by name, or null (filters_sequence.cc).
FilterHandler SequenceFilter(std::string_view name);

bool HasFilter(std::string_view name);

// Applies a filter (filters.cc). Called only by Interpreter::Filter, which counts the nesting.
Value ApplyFilter(Interpreter* run, std::string_view name, const Value& input,
                  const CallArguments& arguments);

// True for what cycler() returns (builtins.cc).
bool IsCycler(const Namespace& space);
Value CurrentOf(const Namespace& cycler);

// Methods of strings, dicts and lists (methods.cc). The calls REQUIRE: HasMethod(self, name).
bool HasMethod(const Value& self, std::string_view name);
Value CallTextMethod(Interpreter* run, const Text& self, std::string_view name,
                     const CallArguments& arguments);
Value CallDictMethod(Interpreter* run, const Value& self, std::string_view name,
                     const CallArguments& arguments);
Value CallListMethod(Interpreter* run, const List& self, std::string_view name,
                     const CallArguments& arguments);

// Python's `format % values` and format.format(...) (string_format.cc).
Value FormatPercent(Interpreter* run, const Text& format, const Value& values);
Value FormatBraces(Interpreter* run, const Text& format, const CallArguments& arguments);

// Shared by filters and methods.
Text Replace(Interpreter* run, const Text& text, const Text& from, const Text& to,
             int64_t count_max);
enum class LetterCase {
  kUpper,
  kLower,
  kCapitalize,
  kTitle,  // str.title(): words begin after any character that is not a letter
  kSwap,
  kFold,        // str.casefold()
  kTitleWords,  // the filter: words begin after white space, '-' and opening brackets
};
Text ChangeCase(Interpreter* run, const Text& text, LetterCase letter_case);  // letter_case.cc
bool IsLetter(char32_t c);
bool IsNumeral(char32_t c);
bool IsNumeric(char32_t c);    // a numeral, fraction, Roman numeral or other number
bool IsPrintable(char32_t c);  // as in Python: no control character, and the space alone of blanks
// isupper and islower: true if the text has a letter of that case and none of the other.
bool IsAllUpper(std::string_view text);
bool IsAllLower(std::string_view text);
std::vector<Value> SplitLines(Interpreter* run, const Text& text, bool keeps_ends);
Text Join(Interpreter* run, const std::vector<Value>& items, const Text& separator);
std::vector<Value> DictItems(Interpreter* run, const Dict& dict);

// Sets a member of a namespace. Fails for names that the reference rejects.
void SetMember(Interpreter* run, Namespace* space, std::string_view name, const Value& value);

// Builds a dict. Setting an existing key replaces its value and keeps its place.
class DictBuilder {
 public:
  explicit DictBuilder(Interpreter* run) : run_(run) {}
  // Fails if `key` cannot be a key, such as a list or a dict.
  void Add(Value key, Value value);
  void AddAll(const Value& dict_or_pairs);
  Value Build() { return Value::FromDict(std::move(members_)); }

 private:
  Interpreter* run_;
  std::vector<std::pair<Value, Value>> members_;
};

// Return the text or number in `value`; fail, naming `what`, if it has another type.
const Text& NeedText(const Value& value, std::string_view what);
int64_t NeedInt(const Value& value, std::string_view what);

}  // namespace minisgl::text::jinja
