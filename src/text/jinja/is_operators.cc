// The operators after `is`, which Jinja calls tests: `value is test`.
#include <algorithm>
#include <cmath>
#include <string>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

// Applies a test without arguments, such as of the type; nullopt if `name` is another test.
std::optional<bool> TestKind(std::string_view name, const Value& input) {
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none() || input.is_null_content();
  if (name == "string") return input.is_text();
  if (name == "mapping") return input.is_dict();
  if (name == "iterable")
    return input.is_text() || input.is_list() || input.is_dict() || input.is_undefined() ||
           input.is_loop();
  if (name == "sequence")
    return input.is_text() || input.is_sequence() || input.is_dict() || input.is_undefined();
  if (name == "number") return input.is_number();
  if (name == "integer") return input.is_int() || input.is_big();
  if (name == "float") return input.is_double();
  if (name == "boolean") return input.is_bool();
  if (name == "true") return input.is_bool() && input.as_int() == 1;
  if (name == "false") return input.is_bool() && input.as_int() == 0;
  if (name == "callable") return input.is_callable() || input.is_undefined() || input.is_loop();
  if (name == "escaped") return input.is_text() && input.text().is_markup();
  if (name == "upper") return IsAllUpper(input.is_text() ? input.text().bytes() : "");
  if (name == "lower") return IsAllLower(input.is_text() ? input.text().bytes() : "");
  if ((name == "odd" || name == "even") && input.is_double())
    return std::fmod(std::abs(input.as_double()), 2) == (name == "odd" ? 1 : 0);
  if ((name == "odd" || name == "even") && input.is_big())
    return input.as_big().is_odd() == (name == "odd");
  if (name == "odd" || name == "even")
    return (NeedInt(input, "the tested value") % 2 != 0) == (name == "odd");
  return std::nullopt;
}

// Returns the comparison operator of a test, or "" if it is not a comparison.
std::string_view ComparisonOf(std::string_view name) {
  if (name == "equalto" || name == "eq") return "==";
  if (name == "ne") return "!=";
  if (name == "lt" || name == "lessthan") return "<";
  if (name == "le") return "<=";
  if (name == "gt" || name == "greaterthan") return ">";
  if (name == "ge") return ">=";
  static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
  const auto sign = std::find(std::begin(kSigns), std::end(kSigns), name);
  return sign != std::end(kSigns) ? *sign : "";
}

bool HasTest(std::string_view name) {
  static constexpr std::string_view kOthers[] = {"divisibleby", "sameas", "filter",
                                                 "test",        "odd",    "even"};
  return std::find(std::begin(kOthers), std::end(kOthers), name) != std::end(kOthers) ||
         !ComparisonOf(name).empty() || TestKind(name, Value()).has_value();
}

}  // namespace

bool Interpreter::Test(std::string_view name, const Value& input, const CallArguments& arguments) {
  const bool reads_letters = input.is_text() && (name == "upper" || name == "lower");
  ChargeWork(reads_letters ? uint64_t{16} * input.text().size() : 1);
  if (const std::optional<bool> answer = TestKind(name, input)) return *answer;
  const std::string_view comparison = ComparisonOf(name);
  if (name == "filter" || name == "test") {
    const std::string& wanted = NeedText(input, "the tested name").bytes();
    return name == "filter" ? HasFilter(wanted) : HasTest(wanted);
  }
  if (comparison.empty() && name != "divisibleby" && name != "sameas") {
    Fail("the test \"{}\" is not supported", Visible(name));
  }
  const Value* other = arguments.Find(0, "other");
  if (other == nullptr) Fail("the test \"{}\" needs an argument", name);
  if (!comparison.empty()) return Compare(comparison, input, *other);
  if (name == "sameas" && (input.is_null_content() || other->is_null_content()))
    return Compare("==", input, *other);
  if (name == "sameas")
    return input.TypeName() == other->TypeName() && Compare("==", input, *other);
  return Truthy(Value(!Truthy(Arithmetic("%", input, *other))));
}

}  // namespace minisgl::text::jinja
