// Arithmetic of numbers, and of texts and lists that are joined or repeated.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// The result of whole numbers; nullopt if it is a sum, difference or product that no int64_t holds.
// A larger power is refused: a few characters spell one of any length.
std::optional<Value> IntArithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflows = false;
  if (op == "/" || op == "//" || op == "%") {
    if (b == 0) Fail("division by zero");
    if (op == "/") return Value(static_cast<double>(a) / static_cast<double>(b));
    if (b == -1) {
      overflows = __builtin_sub_overflow(int64_t{0}, a, &out);
      if (op == "%") return Value(int64_t{0});
    } else {
      out = op == "//" ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
    }
  } else if (op == "+") {
    overflows = __builtin_add_overflow(a, b, &out);
  } else if (op == "-") {
    overflows = __builtin_sub_overflow(a, b, &out);
  } else if (op == "*") {
    overflows = __builtin_mul_overflow(a, b, &out);
  } else {
    if (b < 0) {
      if (a == 0) Fail("division by zero");
      return Value(std::pow(static_cast<double>(a), static_cast<double>(b)));
    }
    out = 1;
    for (int64_t i = 0; i < b && !overflows && out != 0 && !(a == 1); ++i) {
      if (a == -1) {
        out = b % 2 == 0 ? 1 : -1;
        break;
      }
      overflows = __builtin_mul_overflow(out, a, &out);
    }
  }
  if (!overflows) return Value(out);
  if (op != "+" && op != "-" && op != "*") {
    Fail("a whole number is too large ({} {} {})", a, op, b);
  }
  return std::nullopt;
}

Value DoubleArithmetic(std::string_view op, double a, double b) {
  if ((op == "/" || op == "//" || op == "%") && b == 0) Fail("division by zero");
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  if (op == "**") return Value(std::pow(a, b));
  const double remainder = std::fmod(a, b);
  return Value(remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder);
}

Value BigArithmetic(std::string_view op, const BigInteger& a, const BigInteger& b) {
  if ((op == "/" || op == "//" || op == "%") && b.is_zero()) Fail("division by zero");
  if (op == "+") return Value::FromInteger(a.Plus(b));
  if (op == "-") return Value::FromInteger(a.Plus(b.Negated()));
  if (op == "*") return Value::FromInteger(a.Times(b));
  if (op == "/") return Value(a.AsDouble() / b.AsDouble());
  if (op == "//") return Value::FromInteger(a.DividedBy(b).quotient);
  if (op == "%") return Value::FromInteger(a.DividedBy(b).rest);
  Fail("a power of whole numbers is too large");
}

}  // namespace

Value Interpreter::AddTexts(const Text& a, const Text& b) {
  ChargeText(a.size() + b.size());
  const bool is_markup = a.is_markup() || b.is_markup();
  Text text = is_markup && !a.is_markup() ? EscapeHtml(a) : a;
  text.Append(is_markup && !b.is_markup() ? EscapeHtml(b) : b);
  text.SetMarkup(is_markup);
  return MakeText(std::move(text));
}

// Charges the digits that the operation looks at.
Value Interpreter::WholeArithmetic(std::string_view op, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    if (const std::optional<Value> value = IntArithmetic(op, a.as_int(), b.as_int())) return *value;
  }
  const BigInteger x = a.as_big(), y = b.as_big();
  ChargeWork(30 * (x.num_limbs() + 1) * (y.num_limbs() + 1));
  return BigArithmetic(op, x, y);
}

Value Interpreter::Arithmetic(std::string_view op, const Value& a, const Value& b) {
  if (a.is_null_content() || b.is_null_content()) return Arithmetic(op, a.OrText(), b.OrText());
  for (const Value* value : {&a, &b}) {
    if (value->is_undefined()) Fail("'{}' is undefined", Visible(value->undefined_name()));
  }
  if (a.is_whole() && b.is_whole()) return WholeArithmetic(op, a, b);
  if (a.is_number() && b.is_number()) {
    return DoubleArithmetic(op, a.as_double(), b.as_double());
  }
  if (op == "%" && a.is_text()) return FormatPercent(this, a.text(), b);
  if (op == "+" && a.is_text() && b.is_text()) return AddTexts(a.text(), b.text());
  if (op == "+" && a.is_sequence() && b.is_sequence() && a.is_tuple() == b.is_tuple()) {
    ChargeItems(a.list().items.size());
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return MakeList(std::move(items), a.is_tuple() ? ListKind::kTuple : ListKind::kList);
  }
  if (op == "*" && (a.is_integral() || b.is_integral())) {
    const Value& repeated = a.is_integral() ? b : a;
    const auto count =
        static_cast<uint64_t>(std::max<int64_t>(0, (a.is_integral() ? a : b).as_int()));
    const uint64_t weight = std::max<uint64_t>(1, repeated.Weight());
    if (count > 0 && weight > std::numeric_limits<uint64_t>::max() / 64 / count)
      Fail("a repetition is too large");
    if (repeated.is_text()) {
      // Copies of a text with a single run merge into one run.
      const Text& text_once = repeated.text();
      ChargeText(count * (text_once.runs().size() > 1 ? text_once.footprint() : text_once.size()));
      ChargeVisits(static_cast<int64_t>(count / 64));
      Text text;
      for (uint64_t i = 0; i < count && !repeated.text().empty(); ++i) text.Append(repeated.text());
      text.SetMarkup(repeated.text().is_markup());
      return Value(std::move(text));
    }
    if (repeated.is_sequence()) {
      ChargeItems(count * repeated.list().items.size());
      std::vector<Value> items;
      for (uint64_t i = 0; i < count && !repeated.list().items.empty(); ++i) {
        items.insert(items.end(), repeated.list().items.begin(), repeated.list().items.end());
      }
      return Value::FromList(std::move(items),
                             repeated.is_tuple() ? ListKind::kTuple : ListKind::kList);
    }
  }
  Fail("{} {} {} is not possible", a.TypeName(), op, b.TypeName());
}

}  // namespace minisgl::text::jinja
