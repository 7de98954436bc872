// Whole numbers that no int64_t holds, as Python's int.
//
// A number has at most kDigitsMax digits, the most that Python converts to text. The functions that
// could exceed it throw Error. Sums take time linear in the digits, products and quotients
// quadratic time.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace minisgl::text::jinja {

class BigInteger {
 public:
  static constexpr size_t kDigitsMax = 4300;

  explicit BigInteger(int64_t value);
  // REQUIRES: `text` is decimal digits behind at most one minus sign.
  static BigInteger FromDigits(std::string_view text);

  std::string Digits() const;
  // The magnitude in base 2, 8 or 16.
  std::string MagnitudeIn(uint32_t base) const;
  // The value, if an int64_t holds it.
  std::optional<int64_t> AsInt64() const;
  // The nearest double; an infinity if the number is too large for one.
  double AsDouble() const;
  bool is_negative() const { return negative_; }
  bool is_zero() const { return limbs_.empty(); }
  bool is_odd() const { return !is_zero() && limbs_[0] % 2 != 0; }
  size_t num_limbs() const { return limbs_.size(); }  // of nine digits

  BigInteger Negated() const;
  BigInteger Plus(const BigInteger& other) const;
  BigInteger Times(const BigInteger& other) const;
  struct Division;
  // Python's // and %: rounded down, and the rest has the sign of `divisor`, which is not 0.
  Division DividedBy(const BigInteger& divisor) const;

  std::strong_ordering operator<=>(const BigInteger& other) const;
  bool operator==(const BigInteger& other) const = default;

 private:
  using Limbs = std::vector<uint32_t>;
  static constexpr uint32_t kBase = 1'000'000'000;

  BigInteger(bool negative, Limbs limbs);
  static std::strong_ordering CompareLimbs(const Limbs& a, const Limbs& b);
  static Limbs AddLimbs(const Limbs& a, const Limbs& b);
  static Limbs SubtractLimbs(const Limbs& a, const Limbs& b);  // REQUIRES: a >= b
  static Limbs TimesDigit(const Limbs& a, uint32_t digit);

  bool negative_ = false;
  Limbs limbs_;  // the lowest first, without zeros at the end: 0 has none
};

struct BigInteger::Division {
  BigInteger quotient, rest;
};

}  // namespace minisgl::text::jinja
