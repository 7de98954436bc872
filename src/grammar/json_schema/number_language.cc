#include "grammar/json_schema/number_language.h"

#include <algorithm>
#include <memory>
#include <string>

namespace minisgl::grammar {
namespace {

constexpr uint32_t kNoEnd = ExpressionSet::kUnbounded;
constexpr uint64_t kAutomatonStates = 20'000;  // of the multiples of a number
// Upper bound on the states of all ranges in one grammar. Ranges beyond it stay expressions.
constexpr size_t kRangeStatesMax = 50'000;
constexpr size_t kEmptinessWork = 4'000;

// The numbers from `first` to `last` with as many digits as these have, zeros in front.
// REQUIRES first.size() == last.size(), first <= last.
ExpressionId PaddedRange(ExpressionSet& set, std::string_view first, std::string_view last) {
  if (first.empty()) return set.Empty();
  const auto digits = [&](char from, char to) {
    return set.Bytes(ByteSet::Range(static_cast<uint8_t>(from), static_cast<uint8_t>(to)));
  };
  const auto count = static_cast<uint32_t>(first.size() - 1);
  if (first[0] == last[0]) {
    return set.Concat(
        {digits(first[0], first[0]), PaddedRange(set, first.substr(1), last.substr(1))});
  }
  std::vector<ExpressionId> parts;
  parts.push_back(set.Concat(
      {digits(first[0], first[0]), PaddedRange(set, first.substr(1), std::string(count, '9'))}));
  if (first[0] + 1 < last[0]) {
    parts.push_back(
        set.Concat({digits(static_cast<char>(first[0] + 1), static_cast<char>(last[0] - 1)),
                    set.Repeat(digits('0', '9'), count, count)}));
  }
  parts.push_back(set.Concat(
      {digits(last[0], last[0]), PaddedRange(set, std::string(count, '0'), last.substr(1))}));
  return set.Or(parts);
}

// One to three digits of a number from `first` to `last`. REQUIRES 0 <= first <= last <= 999.
ExpressionId UnsignedExponent(ExpressionSet& set, int64_t first, int64_t last) {
  std::vector<ExpressionId> widths;
  int64_t limit = 9;
  for (int width = 1; width <= 3; ++width, limit = limit * 10 + 9) {
    if (first > limit) continue;
    widths.push_back(PaddedRange(set, fmt::format("{:0{}}", first, width),
                                 fmt::format("{:0{}}", std::min(last, limit), width)));
  }
  return set.Or(widths);
}

// The digits of a positive number before and behind the point.
void SplitAtPoint(const Decimal& number, std::string* whole, std::string* fraction) {
  const int64_t point = static_cast<int64_t>(number.digits.size()) + number.exponent;
  if (point <= 0) {
    *whole = "0";
    *fraction = std::string(static_cast<size_t>(-point), '0') + number.digits;
  } else if (number.exponent >= 0) {
    *whole = number.digits + std::string(static_cast<size_t>(number.exponent), '0');
    fraction->clear();
  } else {
    *whole = number.digits.substr(0, static_cast<size_t>(point));
    *fraction = number.digits.substr(static_cast<size_t>(point));
  }
}

// Builds the automaton of plain spellings whose digits, the point moved `scale` to the right, are a
// multiple of `divisor`.
class MultiplesBuilder {
 public:
  MultiplesBuilder(uint32_t divisor, uint32_t scale) : divisor_(divisor), scale_(scale) {
    automaton_.num_classes = kClasses;
    automaton_.class_of_byte.fill(kOther);
    for (int digit = 0; digit < 10; ++digit) {
      automaton_.class_of_byte[static_cast<size_t>('0' + digit)] = static_cast<uint8_t>(digit);
    }
    automaton_.class_of_byte['-'] = kMinus;
    automaton_.class_of_byte['.'] = kPoint;
    const size_t states = size_t{kFirstRemainder} + size_t{divisor} * (scale + 2);
    automaton_.next.assign(states * kClasses, ByteAutomaton::kNoState);
    automaton_.accepting.assign(states, false);
  }

  std::shared_ptr<const ByteAutomaton> Build() {
    Next(kStart, kMinus) = kSign;
    for (uint32_t start : {kStart, kSign}) {
      Next(start, 0) = kZero;
      for (uint32_t digit = 1; digit < 10; ++digit) Next(start, digit) = Whole(digit % divisor_);
    }
    automaton_.accepting[kZero] = true;
    Next(kZero, kPoint) = Fraction(0, 0);
    automaton_.accepting[kTail] = true;
    Next(kTail, 0) = kTail;
    for (uint32_t remainder = 0; remainder < divisor_; ++remainder) AddRemainder(remainder);
    return std::make_shared<const ByteAutomaton>(std::move(automaton_));
  }

 private:
  static constexpr uint32_t kMinus = 10, kPoint = 11, kOther = 12, kClasses = 13;
  static constexpr uint32_t kStart = 0, kSign = 1, kZero = 2, kTail = 3, kFirstRemainder = 4;

  uint32_t& Next(uint32_t state, uint32_t byte_class) {
    return automaton_.next[size_t{state} * kClasses + byte_class];
  }
  uint32_t Whole(uint32_t remainder) const { return kFirstRemainder + remainder; }
  // Behind the point, after `count` digits.
  uint32_t Fraction(uint32_t count, uint32_t remainder) const {
    return kFirstRemainder + divisor_ * (count + 1) + remainder;
  }
  uint32_t After(uint32_t remainder, uint32_t digit) const {
    return static_cast<uint32_t>((uint64_t{remainder} * 10 + digit) % divisor_);
  }
  // True if `remainder` is none once `count` zeros follow.
  bool Divides(uint32_t remainder, uint32_t count) const {
    for (; count > 0; --count) remainder = After(remainder, 0);
    return remainder == 0;
  }

  void AddRemainder(uint32_t remainder) {
    automaton_.accepting[Whole(remainder)] = Divides(remainder, scale_);
    Next(Whole(remainder), kPoint) = Fraction(0, remainder);
    for (uint32_t digit = 0; digit < 10; ++digit) {
      Next(Whole(remainder), digit) = Whole(After(remainder, digit));
    }
    for (uint32_t count = 0; count <= scale_; ++count) {
      const uint32_t state = Fraction(count, remainder);
      automaton_.accepting[state] = count > 0 && Divides(remainder, scale_ - count);
      if (count == scale_) {
        if (remainder == 0) Next(state, 0) = kTail;
        continue;
      }
      for (uint32_t digit = 0; digit < 10; ++digit) {
        Next(state, digit) = Fraction(count + 1, After(remainder, digit));
      }
    }
  }

  ByteAutomaton automaton_;
  uint32_t divisor_;
  uint32_t scale_;
};

}  // namespace

NumberLanguage::NumberLanguage(ExpressionSet& set, bool exponents)
    : set_(&set), exponents_(exponents) {
  digit_ = DigitsFrom('0');
  nonzero_ = DigitsFrom('1');
  zero_ = set.Literal("0");
  const ExpressionId point = set.Literal(".");
  const auto up_to = [&](ExpressionId digit, uint32_t max) {
    return set.Optional(set.Concat({point, set.Repeat(digit, 1, max)}));
  };
  const ExpressionId whole =
      set.Or({zero_, set.Concat({nonzero_, set.Repeat(digit_, 0, kWholeDigitsMax - 1)})});
  std::vector<ExpressionId> spellings{set.Concat({whole, up_to(digit_, kFractionDigitsMax)})};
  if (exponents) {
    const ExpressionId exponent = Exponent(-kExponentMax, kExponentMax);
    spellings.push_back(set.Concat({nonzero_, up_to(digit_, kMantissaDigitsMax), exponent}));
    spellings.push_back(set.Concat({zero_, up_to(zero_, kMantissaDigitsMax), exponent}));
  }
  all_unsigned_ = set.Or(spellings);
  all_ = Signed(all_unsigned_);
  NumberRange all;
  all.exponents = exponents;
  ranges_.emplace(all_, all);
}

ExpressionId NumberLanguage::DigitsFrom(char first) {
  return set_->Bytes(ByteSet::Range(static_cast<uint8_t>(first), '9'));
}

ExpressionId NumberLanguage::Signed(ExpressionId unsigned_numbers) {
  return set_->Concat({set_->Optional(set_->Literal("-")), unsigned_numbers});
}

ExpressionId NumberLanguage::AnyFraction() {
  return set_->Optional(set_->Concat({set_->Literal("."), digit_, Digits()}));
}

ExpressionId NumberLanguage::ZeroFraction() {
  return set_->Optional(set_->Concat({set_->Literal("."), Zeros(1)}));
}

ExpressionId NumberLanguage::AllZeros() {
  const ExpressionId zeros = set_->Concat({zero_, ZeroFraction()});
  if (!exponents_) return zeros;
  return set_->Concat({zeros, set_->Optional(Exponent(-kExponentMax, kExponentMax))});
}

ExpressionId NumberLanguage::Exponent(int64_t first, int64_t last) {
  first = std::max(first, -kExponentMax);
  last = std::min(last, kExponentMax);
  if (!exponents_ || first > last) return set_->Nothing();
  std::vector<ExpressionId> signs;
  if (last >= 0) {
    signs.push_back(set_->Concat({set_->Optional(set_->Literal("+")),
                                  UnsignedExponent(*set_, std::max<int64_t>(first, 0), last)}));
  }
  if (first <= 0) {
    signs.push_back(set_->Concat(
        {set_->Literal("-"), UnsignedExponent(*set_, std::max<int64_t>(-last, 0), -first)}));
  }
  ByteSet e;
  e.Add('e');
  e.Add('E');
  return set_->Concat({set_->Bytes(e), set_->Or(signs)});
}

ExpressionId NumberLanguage::FractionAbove(std::string_view digits, bool or_equal) {
  if (digits.empty()) {
    if (or_equal) return AnyFraction();
    return set_->Concat({set_->Literal("."), Zeros(0), nonzero_, Digits()});
  }
  std::vector<ExpressionId> ways;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] == '9') continue;
    ways.push_back(set_->Concat({set_->Literal(digits.substr(0, i)),
                                 DigitsFrom(static_cast<char>(digits[i] + 1)), Digits()}));
  }
  const ExpressionId rest = or_equal ? Digits() : set_->Concat({Zeros(0), nonzero_, Digits()});
  ways.push_back(set_->Concat({set_->Literal(digits), rest}));
  return set_->Concat({set_->Literal("."), set_->Or(ways)});
}

ExpressionId NumberLanguage::PlainAbove(std::string_view whole, std::string_view fraction,
                                        bool or_equal) {
  if (whole.size() > kWholeDigitsMax) return set_->Nothing();
  const auto size = static_cast<uint32_t>(whole.size());
  const uint32_t more = whole == "0" ? 0 : size;
  std::vector<ExpressionId> ways;
  ways.push_back(set_->Concat({nonzero_, set_->Repeat(digit_, more, kNoEnd), AnyFraction()}));
  for (uint32_t i = 0; more > 0 && i < size; ++i) {
    if (whole[i] == '9') continue;
    ways.push_back(set_->Concat({set_->Literal(whole.substr(0, i)),
                                 DigitsFrom(static_cast<char>(whole[i] + 1)),
                                 set_->Repeat(digit_, size - i - 1, size - i - 1), AnyFraction()}));
  }
  ways.push_back(set_->Concat({set_->Literal(whole), FractionAbove(fraction, or_equal)}));
  return set_->Or(ways);
}

ExpressionId NumberLanguage::UnsignedAbove(const Decimal& bound, bool or_equal) {
  std::string whole, fraction;
  SplitAtPoint(bound, &whole, &fraction);
  std::vector<ExpressionId> ways{PlainAbove(whole, fraction, or_equal)};
  if (exponents_) {
    const int64_t power = static_cast<int64_t>(bound.digits.size()) + bound.exponent - 1;
    ways.push_back(set_->Concat({nonzero_, AnyFraction(), Exponent(power + 1, kExponentMax)}));
    std::vector<ExpressionId> mantissas;
    if (bound.digits[0] != '9') {
      mantissas.push_back(
          set_->Concat({DigitsFrom(static_cast<char>(bound.digits[0] + 1)), AnyFraction()}));
    }
    const std::string_view digits = bound.digits;
    mantissas.push_back(set_->Concat(
        {set_->Literal(digits.substr(0, 1)), FractionAbove(digits.substr(1), or_equal)}));
    ways.push_back(set_->Concat({set_->Or(mantissas), Exponent(power, power)}));
  }
  return set_->Or(ways);
}

ExpressionId NumberLanguage::Above(const Decimal& bound, bool or_equal) {
  const auto key = std::make_tuple(bound.negative, bound.digits, bound.exponent, or_equal);
  const auto [at, added] = above_.emplace(key, set_->Nothing());
  if (!added) return at->second;
  at->second = MakeAbove(bound, or_equal);
  NumberRange above = ranges_.at(all_);
  above.min = {bound, !or_equal};
  ranges_.emplace(at->second, above);
  NumberRange below = ranges_.at(all_);
  below.max = {bound, or_equal};
  ranges_.emplace(Not(at->second), below);
  return at->second;
}

ExpressionId NumberLanguage::MakeAbove(const Decimal& bound, bool or_equal) {
  const ExpressionId minus = set_->Literal("-");
  ExpressionId above;
  if (bound.is_zero()) {
    above = or_equal ? set_->Or({all_unsigned_, set_->Concat({minus, AllZeros()})})
                     : set_->Difference(all_unsigned_, AllZeros());
  } else if (!bound.negative) {
    above = UnsignedAbove(bound, or_equal);
  } else {
    // -x is above -bound if x is not above the bound, or not at it.
    const ExpressionId nearer = set_->Difference(all_unsigned_, UnsignedAbove(bound, !or_equal));
    above = set_->Or({all_unsigned_, set_->Concat({minus, nearer})});
  }
  return set_->And({all_, above});
}

ExpressionId NumberLanguage::AtLeast(const Decimal& bound) { return Above(bound, true); }
ExpressionId NumberLanguage::MoreThan(const Decimal& bound) { return Above(bound, false); }

ExpressionId NumberLanguage::Equal(const Decimal& value) {
  if (value.is_zero()) return set_->And({all_, Signed(AllZeros())});
  std::string whole, fraction;
  SplitAtPoint(value, &whole, &fraction);
  std::vector<ExpressionId> ways;
  if (fraction.empty()) {
    ways.push_back(set_->Concat({set_->Literal(whole), ZeroFraction()}));
  } else {
    ways.push_back(set_->Concat({set_->Literal(whole + "." + fraction), Zeros(0)}));
  }
  if (exponents_) {
    const int64_t power = static_cast<int64_t>(value.digits.size()) + value.exponent - 1;
    const ExpressionId mantissa =
        value.digits.size() == 1
            ? set_->Concat({set_->Literal(value.digits), ZeroFraction()})
            : set_->Concat({set_->Literal(value.digits.substr(0, 1) + "." + value.digits.substr(1)),
                            Zeros(0)});
    ways.push_back(set_->Concat({mantissa, Exponent(power, power)}));
  }
  return set_->And(
      {all_, set_->Concat({set_->Literal(value.negative ? "-" : ""), set_->Or(ways)})});
}

ExpressionId NumberLanguage::EqualInteger(const Decimal& value) {
  const ExpressionId equal = Equal(value);
  integers_.insert(equal);
  return equal;
}

ExpressionId NumberLanguage::Integers() {
  const ExpressionId integers = Multiples(0);
  integers_.insert(integers);
  return integers;
}

ExpressionId NumberLanguage::IntegerSpellings() {
  const ExpressionId spellings =
      set_->And({all_, Signed(set_->Or({zero_, set_->Concat({nonzero_, Digits()})}))});
  NumberRange range = ranges_.at(all_);
  range.whole_spelling = true;
  ranges_.emplace(spellings, range);
  integers_.insert(spellings);
  return spellings;
}

ExpressionId NumberLanguage::Both(ExpressionId a, ExpressionId b) {
  if (a == all_ || a == b) return b;
  if (b == all_) return a;
  const ExpressionId both = set_->And({a, b});
  if (integers_.contains(a) || integers_.contains(b)) integers_.insert(both);
  const auto of_a = ranges_.find(a), of_b = ranges_.find(b);
  if (of_a != ranges_.end() && of_b != ranges_.end()) {
    ranges_.emplace(both, IntersectionOf(of_a->second, of_b->second));
  }
  return both;
}

ExpressionId NumberLanguage::Sum(std::span<const ExpressionId> parts, ExpressionId sum) {
  std::vector<ExpressionId> some;
  bool integers = true, any_integers = false;
  for (const ExpressionId part : parts) {
    if (part == set_->Nothing()) continue;
    some.push_back(part);
    const bool is_integers = integers_.contains(part);
    integers = integers && is_integers;
    any_integers = any_integers || is_integers || sums_.contains(part);
  }
  if (some.size() < 2 || sum == all_) return sum;
  if (integers) {
    integers_.insert(sum);
  } else if (any_integers) {
    sums_.emplace(sum, std::move(some));
  }
  return sum;
}

ExpressionId NumberLanguage::Part(ExpressionId whole, ExpressionId part) {
  if (integers_.contains(whole)) integers_.insert(part);
  return part;
}

ExpressionId NumberLanguage::Terminal(ExpressionId numbers) {
  if (numbers == all_) return set_->Automaton(AutomatonOfAnyNumber());
  if (const auto known = terminals_.find(numbers); known != terminals_.end()) return known->second;
  const ExpressionId terminal = MakeTerminal(numbers);
  terminals_.emplace(numbers, terminal);
  return terminal;
}

ExpressionId NumberLanguage::MakeTerminal(ExpressionId numbers) {
  const bool integers = integers_.contains(numbers);
  const auto known = ranges_.find(numbers);
  if (known != ranges_.end() && range_states_ < kRangeStatesMax) {
    NumberRange range = known->second;
    range.whole_spelling = range.whole_spelling || integers;
    std::shared_ptr<const ByteAutomaton> automaton = AutomatonOf(range);
    if (integers && automaton->distances[0] == ByteAutomaton::kNoText) {
      automaton = AutomatonOf(known->second);  // of more digits than a plain spelling has
    }
    range_states_ += automaton->accepting.size();
    set_->CountWork(automaton->accepting.size());
    return set_->Automaton(std::move(automaton));
  }
  if (integers) {
    const ExpressionId positive = set_->Concat({nonzero_, Digits()});
    const ExpressionId plain = set_->And({numbers, set_->Or({zero_, Signed(positive)})});
    const Result<bool> empty = set_->IsEmptyLanguage(plain, kEmptinessWork);
    return empty.ok() && *empty ? numbers : plain;
  }
  const auto sum = sums_.find(numbers);
  if (sum == sums_.end()) return numbers;
  const std::vector<ExpressionId> parts = sum->second;
  std::vector<ExpressionId> terminals;
  // A part may be a sum that has this one as a part.
  sums_.erase(sum);
  for (const ExpressionId part : parts) terminals.push_back(Terminal(part));
  return set_->Or(terminals);
}

ExpressionId NumberLanguage::Multiples(int64_t power) {
  const auto [at, added] = multiples_.emplace(power, set_->Nothing());
  if (!added) return at->second;
  at->second = MakeMultiples(power);
  if (power == 0) {
    NumberRange range = ranges_.at(all_);
    range.integers = true;
    ranges_.emplace(at->second, range);
  }
  return at->second;
}

ExpressionId NumberLanguage::MakeMultiples(int64_t power) {
  const ExpressionId any_whole = set_->Or({zero_, set_->Concat({nonzero_, Digits()})});
  std::vector<ExpressionId> ways{AllZeros()};
  if (power >= 0) {
    const auto zeros = static_cast<uint32_t>(power);
    ways.push_back(
        set_->Concat({nonzero_, Digits(), set_->Repeat(zero_, zeros, zeros), ZeroFraction()}));
  } else {
    const auto digits = static_cast<uint32_t>(-power);
    ways.push_back(set_->Concat(
        {any_whole, set_->Optional(set_->Concat(
                        {set_->Literal("."), set_->Repeat(digit_, 1, digits), Zeros(0)}))}));
  }
  for (uint32_t count = 0; exponents_ && count <= kMantissaDigitsMax; ++count) {
    // A mantissa whose digits after `count` are zeros.
    const ExpressionId fraction =
        count == 0
            ? ZeroFraction()
            : set_->Concat({set_->Literal("."), set_->Repeat(digit_, count, count), Zeros(0)});
    ways.push_back(set_->Concat({nonzero_, fraction, Exponent(count + power, kExponentMax)}));
  }
  return set_->And({all_, Signed(set_->Or(ways))});
}

bool NumberLanguage::MultiplesOf(const Decimal& divisor, ExpressionId* out) {
  if (divisor.digits == "1") {
    *out = Multiples(divisor.exponent);
    return true;
  }
  const auto scale = static_cast<uint32_t>(std::max<int64_t>(-divisor.exponent, 0));
  uint64_t factor = 0;
  Decimal whole = divisor;
  whole.exponent = std::max<int64_t>(divisor.exponent, 0);
  if (scale > 30 || !DecimalToCount(whole, &factor)) return false;
  if (factor > kAutomatonStates || factor * (scale + 2) > kAutomatonStates) return false;
  MultiplesBuilder builder(static_cast<uint32_t>(factor), scale);
  *out = set_->And({all_, set_->Automaton(builder.Build())});
  return true;
}

}  // namespace minisgl::grammar
