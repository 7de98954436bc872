// Sets of JSON numbers, as expressions over their spellings.
//
// Every set holds all spellings of its numbers, or none of them, out of those in All(): plain
// ones, and scientific ones with one digit that is not 0 before the point (`1.5e-3`, as programs
// write them), each with a bounded number of digits. So
// intersections, unions and differences of sets are sets of numbers again.
//
// What is generated has fewer spellings: Terminal() spells integers without a point or exponent.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "grammar/json_schema/number_automaton.h"
#include "grammar/json_schema/value.h"
#include "minisgl/grammar/expression.h"

namespace minisgl::grammar {

class NumberLanguage {
 public:
  // exponents: false leaves scientific spellings out, which Multiples() of most numbers needs.
  NumberLanguage(ExpressionSet& set, bool exponents);

  ExpressionId All() const { return all_; }
  // Numbers without a fraction, `1.0` included.
  ExpressionId Integers();
  // Spellings without a point or exponent: the integers of draft 4.
  ExpressionId IntegerSpellings();
  ExpressionId AtLeast(const Decimal& bound);
  ExpressionId MoreThan(const Decimal& bound);
  ExpressionId AtMost(const Decimal& bound) { return Not(MoreThan(bound)); }
  ExpressionId LessThan(const Decimal& bound) { return Not(AtLeast(bound)); }
  ExpressionId Equal(const Decimal& value);
  // The same, where a schema spells an integer without a point or exponent.
  ExpressionId EqualInteger(const Decimal& value);
  // Multiples of 10^power.
  ExpressionId Multiples(int64_t power);
  // Multiples of a positive number. REQUIRES exponents == false unless it is a power of ten. False
  // if the number is too large.
  bool MultiplesOf(const Decimal& divisor, ExpressionId* out);
  ExpressionId Not(ExpressionId numbers) { return set_->Difference(all_, numbers); }

  ExpressionId Both(ExpressionId a, ExpressionId b);
  // `sum`, which is the union of `parts`.
  ExpressionId Sum(std::span<const ExpressionId> parts, ExpressionId sum);
  // `part`, whose numbers are in `whole`, too.
  ExpressionId Part(ExpressionId whole, ExpressionId part);
  // Returns the numbers as they are generated, for use as a terminal: a range as an automaton, all
  // numbers in every spelling that JSON allows, integers without a point, an exponent or the sign
  // of -0. Integers are sets made with Integers() or EqualInteger(); others may hold whole numbers,
  // spelled `1.0`, too.
  ExpressionId Terminal(ExpressionId numbers);

 private:
  ExpressionId Digits() { return set_->Repeat(digit_, 0, ExpressionSet::kUnbounded); }
  ExpressionId Zeros(uint32_t min) { return set_->Repeat(zero_, min, ExpressionSet::kUnbounded); }
  ExpressionId DigitsFrom(char first);  // one digit, at least `first`
  ExpressionId AnyFraction();           // `.` and digits, or nothing
  ExpressionId ZeroFraction();          // `.` and zeros, or nothing
  ExpressionId AllZeros();              // unsigned spellings of 0
  ExpressionId Exponent(int64_t first, int64_t last);
  // Fractions (with their point, or empty) that are more than 0.digits, or at least as much.
  ExpressionId FractionAbove(std::string_view digits, bool or_equal);
  // Unsigned spellings of numbers more than a positive bound, or at least as much.
  ExpressionId UnsignedAbove(const Decimal& bound, bool or_equal);
  ExpressionId PlainAbove(std::string_view whole, std::string_view fraction, bool or_equal);
  ExpressionId Above(const Decimal& bound, bool or_equal);
  ExpressionId MakeAbove(const Decimal& bound, bool or_equal);
  ExpressionId MakeMultiples(int64_t power);
  ExpressionId MakeTerminal(ExpressionId numbers);
  ExpressionId Signed(ExpressionId unsigned_numbers);

  ExpressionSet* set_;
  bool exponents_;
  ExpressionId digit_;
  ExpressionId nonzero_;
  ExpressionId zero_;
  ExpressionId all_unsigned_;
  ExpressionId all_;
  // Made once: schemas repeat them.
  std::map<int64_t, ExpressionId> multiples_;
  std::map<std::tuple<bool, std::string, int64_t, bool>, ExpressionId> above_;
  std::map<ExpressionId, NumberRange> ranges_;  // those that are ranges
  std::map<ExpressionId, ExpressionId> terminals_;
  std::set<ExpressionId> integers_;                         // sets of integers, see Terminal()
  std::map<ExpressionId, std::vector<ExpressionId>> sums_;  // parts of unions
  size_t range_states_ = 0;
};

}  // namespace minisgl::grammar
