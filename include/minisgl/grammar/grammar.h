// Context-free grammars whose terminals are expressions over bytes, and their compiled form.
//
// A text is accepted if some derivation yields its bytes: no rule of the longest lexeme divides it
// first. Left, right and hidden recursion, rules that match the empty text, and ambiguity are all
// allowed.
//
// How to build one:
//   GrammarBuilder builder;
//   ExpressionSet& e = builder.expressions();
//   const Symbol value = builder.Declare("value");
//   const Symbol comma = builder.Terminal(e.Literal(","));
//   const Symbol more = builder.Repeat(builder.Sequence({comma, value}), 0, kUnbounded);
//   builder.Define(value, {{builder.Terminal(number)},
//                          {builder.Literal("["), value, more, builder.Literal("]")}});
//   auto grammar = CompiledGrammar::Build(std::move(builder), value);
//
// Make a part that is regular and not large (a string with its quotes, a number) one terminal.
// Within a terminal a byte costs one table look-up. At its end sets of items are computed, once for
// each distinct place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "minisgl/grammar/call_grammar.h"
#include "minisgl/grammar/expression.h"
#include "minisgl/grammar/grammar_memory.h"

namespace minisgl {

// A terminal or a rule of one GrammarBuilder.
struct Symbol {
  uint32_t value = UINT32_MAX;
  bool operator==(const Symbol&) const = default;
};

struct GrammarLimits {
  ExpressionLimits expressions;
  size_t symbols_max = 2'000'000;  // symbols in all alternatives
  // Derivatives explored to decide whether an intersection or a complement can still match: for all
  // terminals of a grammar together, and at each place of a text.
  size_t emptiness_work_max = 200'000;
  // Items of one state. A place of a very ambiguous grammar may need more; no text passes it
  // (Matcher::IsAtLimit).
  size_t state_items_max = 4'000;
  // Larger tables are rebuilt from the states in use. Only speed depends on it.
  size_t table_bytes_max = size_t{64} << 20;
  size_t mask_cache_bytes_max = size_t{32} << 20;
  // A bound that this grammar's caches share with other grammars; null: only the bounds above hold.
  std::shared_ptr<GrammarMemory> memory;
};

// Limits as in ExpressionSet: after the first error status() stays one, and Build reports it.
class GrammarBuilder {
 public:
  static constexpr uint32_t kUnbounded = ExpressionSet::kUnbounded;

  explicit GrammarBuilder(const GrammarLimits& limits = {});
  ~GrammarBuilder();
  GrammarBuilder(GrammarBuilder&&) noexcept;
  GrammarBuilder& operator=(GrammarBuilder&&) noexcept;

  ExpressionSet& expressions();
  const Status& status() const;  // also the errors of expressions()

  // Equal expressions are one terminal. A terminal may match the empty text.
  Symbol Terminal(ExpressionId expression);
  Symbol Literal(std::string_view text);
  // Sets where `terminal` comes from, for messages. The first place that is set stays.
  void SetPlace(Symbol terminal, std::string place);
  bool IsTerminal(Symbol symbol) const;
  // The expression of a terminal. REQUIRES IsTerminal(symbol).
  ExpressionId ExpressionOf(Symbol symbol) const;

  // A rule to be defined later; `name` is for messages. A rule without alternatives matches
  // nothing.
  Symbol Declare(std::string name);
  void AddAlternative(Symbol rule, std::span<const Symbol> symbols);
  void AddAlternative(Symbol rule, std::initializer_list<Symbol> symbols);
  // Calls AddAlternative for each. REQUIRES that `rule` comes from Declare.
  void Define(Symbol rule, std::span<const std::vector<Symbol>> alternatives);
  void Define(Symbol rule, std::initializer_list<std::vector<Symbol>> alternatives);

  // Make anonymous rules; a rule of a single symbol is that symbol.
  Symbol Sequence(std::span<const Symbol> symbols);
  Symbol Sequence(std::initializer_list<Symbol> symbols);
  Symbol Choice(std::span<const Symbol> alternatives);
  Symbol Choice(std::initializer_list<Symbol> alternatives);
  Symbol Optional(Symbol symbol) { return Repeat(symbol, 0, 1); }
  // Counted, not unrolled. REQUIRES min <= max.
  Symbol Repeat(Symbol symbol, uint32_t min, uint32_t max);
  Symbol Nothing();  // matches no text
  Symbol Empty();    // matches the empty text

  struct Impl;  // for CompiledGrammar

 private:
  friend class CompiledGrammar;
  std::unique_ptr<Impl> impl_;
};

namespace grammar {
class Machine;
}

// Immutable for its users and thread-safe: the tables that matchers fill in are behind a lock.
class CompiledGrammar {
 public:
  // kBadInput if a limit was reached or `start` matches no text at all. Parts that match nothing
  // are removed, so that a matcher is never at a place from which no text ends.
  static Result<std::shared_ptr<const CompiledGrammar>> Build(
      GrammarBuilder builder, Symbol start, std::vector<std::string> warnings = {});
  ~CompiledGrammar();

  // Warnings of the front end, one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Estimated size of expressions, tables and masks, which grow with use.
  size_t memory_bytes() const;

  // For Matcher and TokenMasks.
  grammar::Machine& machine() const { return *machine_; }

 private:
  CompiledGrammar() = default;
  std::unique_ptr<grammar::Machine> machine_;
  std::vector<std::string> warnings_;
};

enum class GrammarKind {
  kJsonSchema,         // text: a JSON schema
  kJsonObject,         // any JSON object; text is ignored
  kRegularExpression,  // text: an expression that matches the whole answer
  kChoice,             // choices: one of these texts
  kGbnf,               // text: a grammar in llama.cpp's notation
  kCalls,              // calls: calls of tools
};

struct GrammarText {
  GrammarKind kind = GrammarKind::kJsonSchema;
  std::string text;
  std::vector<std::string> choices;
  std::shared_ptr<const CallGrammar> calls = nullptr;
};

// A model's reasoning before the text of a grammar, as bytes. The thought ends at the first `close`
// and may hold any bytes; white space beside a tag belongs to neither side.
struct ThoughtForm {
  std::string open, close;     // close "": there is no thought
  std::string answer;          // a tag that may stand before a text without thought; "": none
  std::string wrap;            // a tag that may stand before a text after a thought; "": none
  bool starts_inside = false;  // `open` stands before the answer: the thought must come
  // Messages with a header each, as gpt-oss writes them, instead of the tags above: any number of
  // thoughts, and the text in a message of the channel `answer_channel`. channel "": there are
  // none.
  struct Channels {
    std::string start, channel, constrain, message, end;  // the tags of a message's parts
    std::string role, answer_channel;
  } channels;
};

// Compiles any kind. kBadInput names what is wrong and its place. Bounded work and memory for
// hostile texts. Thread-safe.
Result<std::shared_ptr<const CompiledGrammar>> CompileGrammar(const GrammarText& grammar,
                                                              const GrammarLimits& limits = {},
                                                              const ThoughtForm& thought = {});

// Returns the result of CompileGrammar, errors included, if it takes about `work_max` expressions
// and derivatives at most; nullopt if it takes more.
std::optional<Result<std::shared_ptr<const CompiledGrammar>>> TryCompileGrammar(
    const GrammarText& grammar, uint64_t work_max, const GrammarLimits& limits = {},
    const ThoughtForm& thought = {});

}  // namespace minisgl
