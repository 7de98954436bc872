// `value is test`.
#include <string>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::jinja {
namespace {

// Tests of kind, which take no argument; nullopt for any other name.
std::optional<bool> TestKind(std::string_view name, const Value& input) {
  if (name == "defined") return !input.is_undefined();
  if (name == "undefined") return input.is_undefined();
  if (name == "none") return input.is_none();
  if (name == "string") return input.is_text();
  if (name == "mapping") return input.is_dict();
  if (name == "iterable")
    return input.is_text() || input.is_list() || input.is_dict() || input.is_undefined();
  if (name == "sequence")
    return input.is_text() || input.is_list() || input.is_dict() || input.is_undefined();
  if (name == "number") return input.is_number();
  if (name == "integer") return input.is_int();
  if (name == "float") return input.is_double();
  if (name == "boolean") return input.is_bool();
  if (name == "true") return input.is_bool() && input.as_int() == 1;
  if (name == "false") return input.is_bool() && input.as_int() == 0;
  if (name == "callable") return input.is_callable();
  if (name == "upper")
    return input.is_text() && !input.text().empty() &&
           ChangeCase(input.text(), LetterCase::kUpper).bytes() == input.text().bytes();
  if (name == "lower")
    return input.is_text() && !input.text().empty() &&
           ChangeCase(input.text(), LetterCase::kLower).bytes() == input.text().bytes();
  if (name == "odd" || name == "even")
    return (NeedInt(input, "the tested value") % 2 != 0) == (name == "odd");
  return std::nullopt;
}

// The comparison that a test spells, "" for none.
std::string_view ComparisonOf(std::string_view name) {
  if (name == "equalto" || name == "eq") return "==";
  if (name == "ne") return "!=";
  if (name == "lt" || name == "lessthan") return "<";
  if (name == "le") return "<=";
  if (name == "gt" || name == "greaterthan") return ">";
  if (name == "ge") return ">=";
  return name == "in" ? "in" : "";
}

}  // namespace

bool Interpreter::Test(std::string_view name, const Value& input, const CallArguments& arguments) {
  ChargeWork(input.is_text() ? input.text().size() : 1);
  if (const std::optional<bool> answer = TestKind(name, input)) return *answer;
  const std::string_view comparison = ComparisonOf(name);
  if (comparison.empty() && name != "divisibleby" && name != "sameas") {
    Fail("the test \"{}\" is not supported", Visible(name));
  }
  const Value* other = arguments.Find(0, "other");
  if (other == nullptr) Fail("the test \"{}\" needs an argument", name);
  if (!comparison.empty()) return Compare(comparison, input, *other);
  if (name == "sameas")
    return input.TypeName() == other->TypeName() && Compare("==", input, *other);
  return Truthy(Value(!Truthy(Arithmetic("%", input, *other))));
}

}  // namespace minisgl::jinja
