// Schoolbook arithmetic on limbs of nine decimal digits, so that text costs no division.
#include "text/jinja/big_integer.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "text/jinja/error.h"

namespace minisgl::text::jinja {
namespace {

constexpr size_t kLimbDigits = 9;

uint64_t MagnitudeOf(int64_t value) {
  return value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
}

}  // namespace

BigInteger::BigInteger(bool negative, Limbs limbs) : negative_(negative), limbs_(std::move(limbs)) {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
  if (limbs_.size() * kLimbDigits > kDigitsMax + kLimbDigits) {
    Fail("a whole number has more than {} digits", kDigitsMax);
  }
}

BigInteger::BigInteger(int64_t value) : negative_(value < 0) {
  for (uint64_t rest = MagnitudeOf(value); rest > 0; rest /= kBase) {
    limbs_.push_back(static_cast<uint32_t>(rest % kBase));
  }
}

BigInteger BigInteger::FromDigits(std::string_view text) {
  const bool negative = text.starts_with('-');
  text.remove_prefix(negative ? 1 : 0);
  Limbs limbs;
  while (!text.empty()) {
    const size_t count = std::min(text.size(), kLimbDigits);
    uint32_t limb = 0;
    for (const char c : text.substr(text.size() - count)) {
      limb = limb * 10 + static_cast<uint32_t>(c - '0');
    }
    limbs.push_back(limb);
    text.remove_suffix(count);
  }
  return {negative, std::move(limbs)};
}

std::string BigInteger::Digits() const {
  if (limbs_.empty()) return "0";
  std::string text = fmt::format("{}{}", negative_ ? "-" : "", limbs_.back());
  for (size_t i = limbs_.size() - 1; i-- > 0;) text += fmt::format("{:09}", limbs_[i]);
  return text;
}

std::string BigInteger::MagnitudeIn(uint32_t base) const {
  std::string reversed;
  Limbs rest = limbs_;
  while (!rest.empty()) {
    uint64_t carry = 0;
    for (size_t i = rest.size(); i-- > 0;) {
      carry = carry * kBase + rest[i];
      rest[i] = static_cast<uint32_t>(carry / base);
      carry %= base;
    }
    reversed += "0123456789abcdef"[carry];
    while (!rest.empty() && rest.back() == 0) rest.pop_back();
  }
  return reversed.empty() ? "0" : std::string(reversed.rbegin(), reversed.rend());
}

std::optional<int64_t> BigInteger::AsInt64() const {
  for (const int64_t bound : {INT64_MIN, INT64_MAX}) {
    const std::strong_ordering order = *this <=> BigInteger(bound);
    if (bound < 0 ? order < 0 : order > 0) return std::nullopt;
  }
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = magnitude * kBase + limbs_[i];
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

double BigInteger::AsDouble() const { return std::strtod(Digits().c_str(), nullptr); }

BigInteger BigInteger::Negated() const { return {!negative_, limbs_}; }

std::strong_ordering BigInteger::CompareLimbs(const Limbs& a, const Limbs& b) {
  if (a.size() != b.size()) return a.size() <=> b.size();
  return std::lexicographical_compare_three_way(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

std::strong_ordering BigInteger::operator<=>(const BigInteger& other) const {
  if (negative_ != other.negative_) return other.negative_ <=> negative_;
  return negative_ ? CompareLimbs(other.limbs_, limbs_) : CompareLimbs(limbs_, other.limbs_);
}

BigInteger::Limbs BigInteger::AddLimbs(const Limbs& a, const Limbs& b) {
  Limbs sum;
  uint32_t carry = 0;
  for (size_t i = 0; i < std::max(a.size(), b.size()) || carry > 0; ++i) {
    const uint32_t limb = carry + (i < a.size() ? a[i] : 0) + (i < b.size() ? b[i] : 0);
    sum.push_back(limb % kBase);
    carry = limb / kBase;
  }
  return sum;
}

BigInteger::Limbs BigInteger::SubtractLimbs(const Limbs& a, const Limbs& b) {
  Limbs rest = a;
  bool borrows = false;
  for (size_t i = 0; i < rest.size(); ++i) {
    const uint32_t taken = (i < b.size() ? b[i] : 0) + (borrows ? 1 : 0);
    borrows = rest[i] < taken;
    rest[i] = rest[i] + (borrows ? kBase : 0) - taken;
  }
  while (!rest.empty() && rest.back() == 0) rest.pop_back();
  return rest;
}

BigInteger::Limbs BigInteger::TimesDigit(const Limbs& a, uint32_t digit) {
  Limbs product;
  uint64_t carry = 0;
  for (size_t i = 0; i < a.size() || carry > 0; ++i) {
    carry += i < a.size() ? uint64_t{a[i]} * digit : 0;
    product.push_back(static_cast<uint32_t>(carry % kBase));
    carry /= kBase;
  }
  while (!product.empty() && product.back() == 0) product.pop_back();
  return product;
}

BigInteger BigInteger::Plus(const BigInteger& other) const {
  if (negative_ == other.negative_) return {negative_, AddLimbs(limbs_, other.limbs_)};
  if (CompareLimbs(limbs_, other.limbs_) >= 0) {
    return {negative_, SubtractLimbs(limbs_, other.limbs_)};
  }
  return {other.negative_, SubtractLimbs(other.limbs_, limbs_)};
}

BigInteger BigInteger::Times(const BigInteger& other) const {
  Limbs product(limbs_.size() + other.limbs_.size(), 0);
  for (size_t i = 0; i < limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t k = 0; k < other.limbs_.size() || carry > 0; ++k) {
      carry += product[i + k];
      if (k < other.limbs_.size()) carry += uint64_t{limbs_[i]} * other.limbs_[k];
      product[i + k] = static_cast<uint32_t>(carry % kBase);
      carry /= kBase;
    }
  }
  return {negative_ != other.negative_, std::move(product)};
}

BigInteger::Division BigInteger::DividedBy(const BigInteger& divisor) const {
  Limbs quotient(limbs_.size(), 0), rest;
  for (size_t i = limbs_.size(); i-- > 0;) {
    rest.insert(rest.begin(), limbs_[i]);
    while (!rest.empty() && rest.back() == 0) rest.pop_back();
    // The largest digit whose product is not above the rest, by halving: 30 products of a digit.
    uint32_t low = 0, high = kBase - 1;
    while (low < high) {
      const uint32_t middle = low + (high - low + 1) / 2;
      if (CompareLimbs(TimesDigit(divisor.limbs_, middle), rest) <= 0) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    quotient[i] = low;
    rest = SubtractLimbs(rest, TimesDigit(divisor.limbs_, low));
  }
  Division out{{negative_ != divisor.negative_, std::move(quotient)}, {negative_, std::move(rest)}};
  if (!out.rest.is_zero() && out.rest.negative_ != divisor.negative_) {
    out.quotient = out.quotient.Plus(BigInteger(-1));
    out.rest = out.rest.Plus(divisor);
  }
  return out;
}

}  // namespace minisgl::text::jinja
