// Regular expressions over bytes, with intersection and complement, and their derivatives.
//
// An ExpressionSet interns its expressions: equal ones, after the constructors' simplification,
// have equal ids. The derivative of an expression by a byte is the expression of what may follow
// that byte, so expressions are the states of an automaton that is built as far as it is used.
//
// Nothing here recurses on its input. Memory and work are bounded: once a limit is reached,
// status() is an error and stays one, and constructors return Nothing(). Building code may
// therefore check status() once, at its end.
//
// Not thread-safe.
#pragma once

#include <array>
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
#include "minisgl/grammar/code_point_set.h"

namespace minisgl {

namespace grammar {
struct ExpressionTable;
}

enum class ExpressionId : uint32_t {};

// A set of bytes.
struct ByteSet {
  std::array<uint64_t, 4> words{};

  static ByteSet All() { return {{~0ULL, ~0ULL, ~0ULL, ~0ULL}}; }
  static ByteSet Range(uint8_t first, uint8_t last);  // inclusive
  bool Contains(uint8_t byte) const { return (words[byte >> 6] >> (byte & 63) & 1) != 0; }
  void Add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  int size() const;
  bool operator==(const ByteSet&) const = default;
};

struct ExpressionLimits {
  size_t nodes_max = 2'000'000;  // distinct expressions, derivatives included
  // Operands of all nodes (4 bytes each), counted as they are interned.
  size_t operands_max = 8'000'000;
  // Alternatives of one Or or And.
  size_t width_max = 5'000;
  // Nesting of operands; a Concat is as deep as its deepest operand, however long it is.
  int depth_max = 500;
  // Work: expressions made, derivatives computed, and CountWork.
  uint64_t work_max = UINT64_MAX;
  bool* out_of_work = nullptr;  // set to true if work_max was reached
};

// A deterministic automaton over bytes, for languages whose expressions would be too large (the
// multiples of 77 in decimal). State 0 is the first.
struct ByteAutomaton {
  static constexpr uint32_t kNoState = UINT32_MAX;
  std::array<uint8_t, 256> class_of_byte{};
  uint32_t num_classes = 1;
  std::vector<uint32_t> next;   // state * num_classes + class: the next state, or kNoState
  std::vector<bool> accepting;  // by state
  // [states] bytes of the shortest text from a state; kNoText if there is none. The set computes
  // missing ones.
  static constexpr uint16_t kNoText = UINT16_MAX;
  std::vector<uint16_t> distances;
};

class ExpressionSet {
 public:
  static constexpr uint32_t kUnbounded = UINT32_MAX;  // Repeat without an upper bound

  explicit ExpressionSet(const ExpressionLimits& limits = {});
  ~ExpressionSet();
  ExpressionSet(ExpressionSet&&) noexcept;
  ExpressionSet& operator=(ExpressionSet&&) noexcept;

  // kBadInput once a limit was reached.
  const Status& status() const;
  // Counts work that was done outside the set towards ExpressionLimits::work_max.
  void CountWork(uint64_t work);

  ExpressionId Nothing() const { return ExpressionId{0}; }   // matches no text
  ExpressionId Empty() const { return ExpressionId{1}; }     // matches the empty text
  ExpressionId Anything() const { return ExpressionId{2}; }  // every run of bytes, UTF-8 or not

  ExpressionId Bytes(const ByteSet& bytes);  // one byte of the set
  ExpressionId Literal(std::string_view text);
  // The UTF-8 of one code point of the set: never surrogates or overlong forms.
  ExpressionId CodePoints(const CodePointSet& set);
  ExpressionId Concat(std::span<const ExpressionId> parts);
  ExpressionId Concat(std::initializer_list<ExpressionId> parts);
  ExpressionId Or(std::span<const ExpressionId> alternatives);
  ExpressionId Or(std::initializer_list<ExpressionId> alternatives);
  ExpressionId And(std::span<const ExpressionId> conditions);
  ExpressionId And(std::initializer_list<ExpressionId> conditions);
  // Every run of bytes that `operand` does not match, invalid UTF-8 included: intersect it with
  // the form that the text must have.
  ExpressionId Not(ExpressionId operand);
  ExpressionId Difference(ExpressionId all_of, ExpressionId none_of);
  // `operand` from `min` to `max` times; kUnbounded: no upper bound. Counted, not unrolled.
  // REQUIRES min <= max.
  ExpressionId Repeat(ExpressionId operand, uint32_t min, uint32_t max);
  ExpressionId Optional(ExpressionId operand) { return Repeat(operand, 0, 1); }
  // One of `texts`, as a trie with shared ends. Fast for 50,000 texts and more.
  ExpressionId Strings(std::vector<std::string> texts);

  // The texts that `automaton` accepts. One interned expression a state: the derivative by a byte
  // is the next state's. REQUIRES that every next state exists.
  ExpressionId Automaton(std::shared_ptr<const ByteAutomaton> automaton);

  // True if `expression` matches the empty text.
  bool IsNullable(ExpressionId expression) const;
  // The expression of the texts that may follow `byte` in `expression`.
  ExpressionId Derivative(ExpressionId expression, uint8_t byte);
  // True if `expression` matches `text`. For tests and constants, not for speed.
  bool Matches(ExpressionId expression, std::string_view text);

  // True if no text matches. Explores at most `work_max` derivatives (each distinct expression
  // once; answers are remembered). kBadInput if that does not decide it.
  Result<bool> IsEmptyLanguage(ExpressionId expression, size_t work_max = 100'000);
  // AreDisjoint: true if no text matches both `a` and `b`. IsContained: true if every text of
  // `part` matches `whole`. Limited as IsEmptyLanguage.
  Result<bool> AreDisjoint(ExpressionId a, ExpressionId b, size_t work_max = 100'000);
  Result<bool> IsContained(ExpressionId part, ExpressionId whole, size_t work_max = 100'000);
  // Returns a shortest text that matches; nullopt if there is none. Limited as IsEmptyLanguage.
  Result<std::optional<std::string>> ShortestText(ExpressionId expression,
                                                  size_t work_max = 100'000);

  size_t size() const;          // expressions interned
  size_t memory_bytes() const;  // estimate; grows with derivatives

 private:
  friend class CompiledGrammar;
  std::unique_ptr<grammar::ExpressionTable> impl_;
};

}  // namespace minisgl
