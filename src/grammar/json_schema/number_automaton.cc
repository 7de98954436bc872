#include "grammar/json_schema/number_automaton.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expression_table.h"
#include "minisgl/base/check.h"

namespace minisgl::grammar {

namespace {

// Classes of bytes: the digits are 0 to 9.
constexpr uint32_t kMinus = 10, kPlus = 11, kPoint = 12, kE = 13, kOther = 14, kNumClasses = 15;

constexpr uint32_t kDeadState = ByteAutomaton::kNoState;

std::array<uint8_t, 256> ClassesOfBytes() {
  std::array<uint8_t, 256> classes{};
  classes.fill(kOther);
  for (uint8_t digit = 0; digit < 10; ++digit) classes[static_cast<size_t>('0') + digit] = digit;
  classes['-'] = kMinus;
  classes['+'] = kPlus;
  classes['.'] = kPoint;
  classes['e'] = classes['E'] = kE;
  return classes;
}

int Compare(int a, int b) { return a < b ? -1 : a > b ? 1 : 0; }

// A bound of numbers without a sign, to be compared with digits as they are read. The order is -1,
// 0 or 1: the digits read against as many digits of the bound.
class DigitBound {
 public:
  explicit DigitBound(const NumberBound& bound) : bound_(bound) {
    const Decimal& value = bound_.value;
    point_ = static_cast<int64_t>(value.digits.size()) + value.exponent;
    whole_size_ = static_cast<uint32_t>(std::max<int64_t>(point_, 1));
  }

  bool is_zero() const { return bound_.value.is_zero(); }
  bool is_open() const { return bound_.is_open; }
  uint32_t whole_size() const { return whole_size_; }
  int64_t power() const { return point_ - 1; }

  int AddWhole(int order, uint32_t index, int digit) const {
    if (index >= whole_size_) return 1;
    return order != 0 ? order : Compare(digit, WholeDigit(index));
  }
  int EndWhole(int order, uint32_t size) const {
    return size == whole_size_ ? order
                               : Compare(static_cast<int>(size), static_cast<int>(whole_size_));
  }
  int AddFraction(int order, uint32_t index, int digit) const {
    return order != 0 ? order : Compare(digit, DigitAt(point_ + index));
  }
  // `size`: digits behind the number's point; 0 if it is whole.
  int EndFraction(int order, uint32_t size) const {
    return order == 0 && point_ + size < NumDigits() ? -1 : order;
  }
  // Scientific: digit 0 is before the point.
  int AddMantissa(int order, uint32_t index, int digit) const {
    return order != 0 ? order : Compare(digit, DigitAt(index));
  }
  int EndMantissa(int order, uint32_t size) const {
    return order == 0 && size < NumDigits() ? -1 : order;
  }

 private:
  int64_t NumDigits() const { return static_cast<int64_t>(bound_.value.digits.size()); }
  // Digits before the first one and behind the last one are 0.
  int DigitAt(int64_t index) const {
    return index < 0 || index >= NumDigits()
               ? 0
               : bound_.value.digits[static_cast<size_t>(index)] - '0';
  }
  int WholeDigit(uint32_t index) const { return point_ <= 0 ? 0 : DigitAt(index); }

  NumberBound bound_;
  int64_t point_;  // digits before it
  uint32_t whole_size_;
};

// The bounds of what stands behind a sign.
struct Side {
  std::optional<DigitBound> min, max;
  bool is_empty = false;
};

Side SideOf(const std::optional<NumberBound>& min, const std::optional<NumberBound>& max) {
  Side side;
  if (min && !min->value.negative && (!min->value.is_zero() || min->is_open))
    side.min.emplace(*min);
  if (max) {
    side.is_empty = max->value.negative;
    side.max.emplace(*max);
  }
  return side;
}

std::optional<NumberBound> Negated(std::optional<NumberBound> bound) {
  if (bound && !bound->value.is_zero()) bound->value.negative = !bound->value.negative;
  return bound;
}

// Numbers from `first` to `last`.
struct Span {
  int first = 1, last = 0;

  bool is_empty() const { return first > last; }
  static Span Of(int first, int last) { return first > last ? Span() : Span{first, last}; }
};

// Builds the states that can be reached. A Place, on which everything that follows depends,
// identifies a state.
class Builder {
 public:
  explicit Builder(const NumberRange& range) : range_(range) {
    sides_[0] = SideOf(range.min, range.max);
    sides_[1] = SideOf(Negated(range.max), Negated(range.min));
    same_sides_ = !range.min && !range.max;
  }

  std::shared_ptr<const ByteAutomaton> Build() {
    auto automaton = std::make_shared<ByteAutomaton>();
    automaton->class_of_byte = ClassesOfBytes();
    automaton->num_classes = kNumClasses;
    IndexOf(Place());
    for (size_t state = 0; state < places_.size(); ++state) {
      const Place place = places_[state];
      automaton->accepting.push_back(IsAccepting(place));
      for (uint32_t byte_class = 0; byte_class < kNumClasses; ++byte_class) {
        automaton->next.push_back(Next(place, byte_class));
      }
    }
    FindDistances(automaton.get());
    return automaton;
  }

 private:
  enum Phase : uint8_t {
    kStart,
    kUnsigned,        // behind a sign
    kZero,            // behind 0, or digits of its fraction
    kDigit,           // behind a digit that is not 0, or digits of its fraction
    kWhole,           // behind two digits and more
    kFraction,        // behind kWhole and a point
    kExponent,        // behind e
    kExponentDigits,  // behind its sign
  };
  struct Place {
    Phase phase = kStart;
    uint8_t side = 0;
    bool has_point = false;
    uint8_t size = 0;  // digits of the part under way
    uint8_t last = 0;  // the last digit of a fraction that is not 0, from 1; 0 if there is none
    int8_t to_min = 0, to_max = 0;  // the order of the digits against a bound's
    // kExponent: rest[0] is the exponents. kExponentDigits: what may follow, by its digits.
    std::array<Span, 4> rest{};
  };

  static uint64_t KeyOf(const Place& place) {
    uint64_t key = place.phase;
    if (place.phase == kExponent) {
      return key << 32 | static_cast<uint64_t>(place.rest[0].first + 1024) << 16 |
             static_cast<uint64_t>(place.rest[0].last + 1024);
    }
    if (place.phase == kExponentDigits) {
      constexpr std::array<int, 4> kBits = {1, 4, 7, 10};
      for (size_t i = 0; i < kBits.size(); ++i) {
        key = key << kBits[i] | static_cast<uint64_t>(place.rest[i].first);
        key = key << kBits[i] | static_cast<uint64_t>(place.rest[i].last);
      }
      return key;
    }
    key = key << 2 | place.side * 2U | (place.has_point ? 1U : 0U);
    key = key << 16 | place.size * 256U | place.last;
    return key << 8 | static_cast<uint64_t>((place.to_min + 1) * 3 + place.to_max + 1);
  }

  uint32_t IndexOf(const Place& place) {
    const uint64_t key = KeyOf(place);
    if (const uint32_t* known = known_.Find(key)) return *known;
    const auto index = static_cast<uint32_t>(places_.size());
    known_.Insert(key, index);
    places_.push_back(place);
    return index;
  }

  const Side& SideAt(const Place& place) const { return sides_[place.side]; }

  // Updates the orders against both bounds by `order`; a missing bound keeps its order.
  template <typename Order>
  static void Compare(const Side& side, Place* place, const Order& order) {
    if (side.min) place->to_min = static_cast<int8_t>(order(*side.min, place->to_min));
    if (side.max) place->to_max = static_cast<int8_t>(order(*side.max, place->to_max));
  }
  static bool IsAbove(const DigitBound& min, int order) {
    return order > 0 || (order == 0 && !min.is_open());
  }
  static bool IsBelow(const DigitBound& max, int order) {
    return order < 0 || (order == 0 && !max.is_open());
  }
  template <typename Order>
  static bool IsWithin(const Side& side, Place place, const Order& order) {
    Compare(side, &place, order);
    return (!side.min || IsAbove(*side.min, place.to_min)) &&
           (!side.max || IsBelow(*side.max, place.to_max));
  }

  bool IsAccepting(const Place& place) const {
    if (place.has_point && place.size == 0) return false;
    const Side& side = SideAt(place);
    switch (place.phase) {
      case kZero:
      case kFraction:
        return IsWithin(side, place, [&](const DigitBound& bound, int order) {
          return bound.EndFraction(order, place.size);
        });
      case kDigit:
        if (range_.integers && place.last > 0) return false;
        return IsWithin(side, place, [&](const DigitBound& bound, int order) {
          if (bound.is_zero() || bound.power() < 0) return 1;
          return bound.power() > 0 ? -1 : bound.EndMantissa(order, place.size + 1U);
        });
      case kWhole:
        return IsWithin(side, place, [&](const DigitBound& bound, int order) {
          return bound.EndFraction(bound.EndWhole(order, place.size), 0);
        });
      case kExponentDigits:
        return !place.rest[0].is_empty();
      default:
        return false;
    }
  }

  uint32_t Next(const Place& place, uint32_t byte_class) {
    if (place.phase == kExponent || place.phase == kExponentDigits) {
      return NextOfExponent(place, byte_class);
    }
    if (byte_class < 10) return AddDigit(place, static_cast<int>(byte_class));
    if (byte_class == kMinus && place.phase == kStart) {
      Place next;
      next.phase = kUnsigned;
      next.side = same_sides_ ? 0 : 1;
      return IndexOf(next);
    }
    if (byte_class == kPoint && !range_.whole_spelling) return AddPoint(place);
    if (byte_class == kE && range_.exponents && !range_.whole_spelling) return BeginExponent(place);
    return kDeadState;
  }

  uint32_t AddPoint(Place place) {
    if (place.has_point || place.phase == kStart || place.phase == kUnsigned) return kDeadState;
    if (place.phase == kWhole) {
      Compare(SideAt(place), &place, [&](const DigitBound& bound, int order) {
        return bound.EndWhole(order, place.size);
      });
      place.phase = kFraction;
      place.size = 0;
    }
    place.has_point = true;
    return IndexOf(place);
  }

  uint32_t AddDigit(Place place, int digit) {
    const Side& side = SideAt(place);
    if (place.phase == kStart || place.phase == kUnsigned) {
      if (side.is_empty) return kDeadState;
      if (range_.whole_spelling && place.phase == kUnsigned && digit == 0) return kDeadState;
      place.phase = digit == 0 ? kZero : kDigit;
      Compare(side, &place, [&](const DigitBound& bound, int) {
        if (digit == 0) return bound.EndWhole(bound.AddWhole(0, 0, 0), 1);
        return bound.AddMantissa(0, 0, digit);
      });
      return IndexOf(place);
    }
    if (!place.has_point && place.phase != kWhole) {
      if (place.phase == kZero) return kDeadState;
      place.phase = kWhole;
      place.size = 1;
    }
    if (place.size == (place.phase == kWhole ? kWholeDigitsMax : kFractionDigitsMax)) {
      return kDeadState;
    }
    if (place.phase != kWhole && digit != 0 && range_.integers) {
      // Only an exponent makes it whole.
      if (place.phase != kDigit || place.size >= kMantissaDigitsMax) return kDeadState;
      place.last = static_cast<uint8_t>(place.size + 1);
    }
    if (place.phase == kZero && digit != 0) place.last = 1;
    Compare(side, &place, [&](const DigitBound& bound, int order) {
      if (place.phase == kWhole) return bound.AddWhole(order, place.size, digit);
      if (place.phase == kDigit) return bound.AddMantissa(order, place.size + 1U, digit);
      return bound.AddFraction(order, place.size, digit);
    });
    ++place.size;
    if (place.phase == kDigit && place.last > 0 && place.size > kMantissaDigitsMax) {
      return kDeadState;
    }
    if (place.phase == kWhole && side.max && place.to_max > 0 &&
        place.size >= side.max->whole_size()) {
      return kDeadState;
    }
    return IndexOf(place);
  }

  uint32_t BeginExponent(const Place& place) {
    const bool is_mantissa = (place.phase == kZero && place.last == 0) || place.phase == kDigit;
    if (!is_mantissa || place.size > kMantissaDigitsMax || (place.has_point && place.size == 0)) {
      return kDeadState;
    }
    Place next;
    next.phase = kExponent;
    next.rest[0] = ExponentsOf(place);
    return next.rest[0].is_empty() ? kDeadState : IndexOf(next);
  }

  Span ExponentsOf(const Place& place) const {
    constexpr int kMax = static_cast<int>(kExponentMax);
    if (place.phase == kZero) return IsAccepting(place) ? Span{-kMax, kMax} : Span();
    const Side& side = SideAt(place);
    int first = place.last > 0 ? place.last : -kMax, last = kMax;
    if (range_.integers && place.last == 0) first = 0;
    if (side.min && !side.min->is_zero()) {
      const int order = side.min->EndMantissa(place.to_min, place.size + 1U);
      const auto power = static_cast<int>(side.min->power());
      first = std::max(first, IsAbove(*side.min, order) ? power : power + 1);
    }
    if (side.max) {
      if (side.max->is_zero()) return {};
      const int order = side.max->EndMantissa(place.to_max, place.size + 1U);
      const auto power = static_cast<int>(side.max->power());
      last = std::min(last, IsBelow(*side.max, order) ? power : power - 1);
    }
    return Span::Of(first, last);
  }

  uint32_t NextOfExponent(const Place& place, uint32_t byte_class) {
    const Span exponents = place.rest[0];
    if (place.phase == kExponentDigits) {
      return byte_class < 10 ? AddExponentDigit(place.rest, static_cast<int>(byte_class))
                             : kDeadState;
    }
    const bool is_negative = byte_class == kMinus;
    const std::array<Span, 4> numerals =
        is_negative ? Numerals(Span::Of(std::max(-exponents.last, 0), -exponents.first))
                    : Numerals(Span::Of(std::max(exponents.first, 0), exponents.last));
    if (byte_class < 10) return AddExponentDigit(numerals, static_cast<int>(byte_class));
    return is_negative || byte_class == kPlus ? IndexOfRest(numerals) : kDeadState;
  }

  // The values that 0, 1, 2 and 3 digits can spell, with leading zeros.
  static std::array<Span, 4> Numerals(Span values) {
    return {Span(), Span::Of(values.first, std::min(values.last, 9)),
            Span::Of(values.first, std::min(values.last, 99)), values};
  }

  uint32_t AddExponentDigit(const std::array<Span, 4>& before, int digit) {
    std::array<Span, 4> rest{};
    for (int i = 0, power = 1; i < 3; ++i, power *= 10) {
      const Span& values = before[static_cast<size_t>(i) + 1];
      if (values.is_empty()) continue;
      rest[static_cast<size_t>(i)] = Span::Of(std::max(values.first - digit * power, 0),
                                              std::min(values.last - digit * power, power - 1));
    }
    return IndexOfRest(rest);
  }

  uint32_t IndexOfRest(const std::array<Span, 4>& rest) {
    if (std::all_of(rest.begin(), rest.end(), [](const Span& one) { return one.is_empty(); })) {
      return kDeadState;
    }
    Place place;
    place.phase = kExponentDigits;
    place.rest = rest;
    return IndexOf(place);
  }

  NumberRange range_;
  std::array<Side, 2> sides_;  // without a sign, and behind one
  bool same_sides_ = false;
  std::vector<Place> places_;  // by state
  KeyMap known_;
};

// Digits that are counted, for numbers that nothing is asked of.
std::shared_ptr<const ByteAutomaton> MakeAnyNumber() {
  constexpr uint32_t kDigitsMax = 400, kExponentDigits = 6;
  // States: the start, behind a sign, behind 0, digits before the point, the point, digits behind
  // it, e, its sign, its digits.
  constexpr uint32_t kStart = 0, kSigned = 1, kZero = 2, kWhole = 3, kPointAt = kWhole + kDigitsMax,
                     kFraction = kPointAt + 1, kEAt = kFraction + kDigitsMax, kSignAt = kEAt + 1,
                     kDigits = kSignAt + 1, kNumStates = kDigits + kExponentDigits;
  auto automaton = std::make_shared<ByteAutomaton>();
  automaton->class_of_byte = ClassesOfBytes();
  automaton->num_classes = kNumClasses;
  automaton->next.assign(size_t{kNumStates} * kNumClasses, kDeadState);
  automaton->accepting.assign(kNumStates, false);
  const auto next = [&](uint32_t state, uint32_t byte_class) -> uint32_t& {
    return automaton->next[size_t{state} * kNumClasses + byte_class];
  };
  // `count` states, the first one behind a digit: each accepts.
  const auto add_digits = [&](uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      automaton->accepting[first + i] = true;
      for (uint32_t digit = 0; digit < 10 && i + 1 < count; ++digit) {
        next(first + i, digit) = first + i + 1;
      }
    }
  };
  add_digits(kWhole, kDigitsMax);
  add_digits(kFraction, kDigitsMax);
  add_digits(kDigits, kExponentDigits);
  automaton->accepting[kZero] = true;
  next(kStart, kMinus) = kSigned;
  for (const uint32_t state : {kStart, kSigned}) {
    next(state, 0) = kZero;
    for (uint32_t digit = 1; digit < 10; ++digit) next(state, digit) = kWhole;
  }
  for (uint32_t state = kZero; state < kEAt; ++state) {
    if (state < kPointAt) next(state, kPoint) = kPointAt;
    if (state != kPointAt) next(state, kE) = kEAt;
  }
  next(kEAt, kPlus) = next(kEAt, kMinus) = kSignAt;
  for (uint32_t digit = 0; digit < 10; ++digit) {
    next(kPointAt, digit) = kFraction;
    next(kEAt, digit) = next(kSignAt, digit) = kDigits;
  }
  FindDistances(automaton.get());
  return automaton;
}

// The nearer bound: the larger one of two minima, the smaller one of two maxima.
std::optional<NumberBound> Nearer(const std::optional<NumberBound>& a,
                                  const std::optional<NumberBound>& b, int sign) {
  if (!a || !b) return a ? a : b;
  const int order = CompareDecimals(a->value, b->value) * sign;
  if (order == 0) return a->is_open ? a : b;
  return order > 0 ? a : b;
}

}  // namespace

NumberRange IntersectionOf(const NumberRange& a, const NumberRange& b) {
  return {Nearer(a.min, b.min, 1), Nearer(a.max, b.max, -1), a.integers || b.integers,
          a.whole_spelling || b.whole_spelling, a.exponents && b.exponents};
}

std::shared_ptr<const ByteAutomaton> AutomatonOf(const NumberRange& range) {
  if (range.min || range.max) return Builder(range).Build();
  using Known = std::array<std::shared_ptr<const ByteAutomaton>, 8>;
  static const Known known = [] {
    Known made;
    for (size_t i = 0; i < made.size(); ++i) {
      NumberRange one;
      one.integers = (i & 1) != 0;
      one.whole_spelling = (i & 2) != 0;
      one.exponents = (i & 4) != 0;
      made[i] = Builder(one).Build();
    }
    return made;
  }();
  return known[(range.integers ? 1U : 0U) | (range.whole_spelling ? 2U : 0U) |
               (range.exponents ? 4U : 0U)];
}

std::shared_ptr<const ByteAutomaton> AutomatonOfAnyNumber() {
  static const std::shared_ptr<const ByteAutomaton> made = MakeAnyNumber();
  return made;
}

}  // namespace minisgl::grammar
