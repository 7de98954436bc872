// Keywords on types, values, numbers and strings.
#include <algorithm>

#include "grammar/json_schema/formats.h"
#include "grammar/json_schema/schema_compiler.h"
#include "grammar/regular_expression.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {

bool SchemaCompiler::NarrowByScalar(const SchemaValue& schema, const SchemaValue::Member& member,
                                    Normal* all) {
  const auto& [name, value] = member;
  const auto narrow = [&](const Normal& by) { *all = algebra_.Intersect(*all, by); };
  if (name == "type") {
    narrow(OfType(schema, value));
  } else if (name == "enum") {
    narrow(OfValues(value));
  } else if (name == "const") {
    narrow(OfValue(value));
  } else if (name == "minimum" || name == "maximum" || name == "exclusiveMinimum" ||
             name == "exclusiveMaximum" || name == "multipleOf") {
    narrow(WithNumbers(Bound(schema, name, value)));
  } else if (name == "pattern") {
    if (!value.is_string()) algebra_.Fail(value, "must be a string");
    narrow(WithStrings(Pattern(value, value.text)));
  } else if (name == "minLength" || name == "maxLength") {
    narrow(WithStrings(Lengths(schema)));
  } else if (name == "format") {
    ExpressionId strings;
    if (Format(value, &strings)) narrow(WithStrings(strings));
  } else {
    return false;
  }
  return true;
}

Normal SchemaCompiler::OfType(const SchemaValue& schema, const SchemaValue& value) {
  const Normal any = algebra_.Any();
  const auto one = [&](const SchemaValue& type) {
    Normal out;
    if (!type.is_string()) {
      algebra_.Fail(type, "a type is a string");
    } else if (type.text == "null") {
      out.null = true;
    } else if (type.text == "boolean") {
      out.false_ = out.true_ = true;
    } else if (type.text == "number") {
      out.number = any.number;
    } else if (type.text == "integer") {
      const bool draft4 = document_->DraftOf(schema) == Draft::k4;
      out.number = draft4 ? algebra_.numbers().IntegerSpellings() : algebra_.numbers().Integers();
    } else if (type.text == "string") {
      out.string = any.string;
    } else if (type.text == "array") {
      out.arrays = any.arrays;
    } else if (type.text == "object") {
      out.objects = any.objects;
    } else {
      algebra_.Fail(type, fmt::format("unknown type \"{}\"", Visible(type.text)));
    }
    return out;
  };
  if (!value.is_array()) return one(value);
  Parts parts;
  for (const SchemaValue& type : value.items)
    parts.push_back(std::make_shared<const Normal>(one(type)));
  return algebra_.Unite(parts);
}

Normal SchemaCompiler::OfValue(const SchemaValue& value) {
  Normal out;
  algebra_.Spend(1);
  switch (value.kind) {
    case SchemaValue::Kind::kNull:
      out.null = true;
      break;
    case SchemaValue::Kind::kFalse:
      out.false_ = true;
      break;
    case SchemaValue::Kind::kTrue:
      out.true_ = true;
      break;
    case SchemaValue::Kind::kNumber: {
      Decimal number;
      if (!ReadNumber(value, &number)) break;
      out.number = value.text.find_first_of(".eE") == std::string::npos
                       ? algebra_.numbers().EqualInteger(number)
                       : algebra_.numbers().Equal(number);
      break;
    }
    case SchemaValue::Kind::kString:
      out.string = algebra_.strings().Text(value.text);
      break;
    case SchemaValue::Kind::kArray: {
      ArrayShape shape;
      for (const SchemaValue& item : value.items)
        shape.prefix.push_back(algebra_.OfNormal(OfValue(item)));
      shape.min = shape.max = value.items.size();
      out.arrays.push_back(std::move(shape));
      break;
    }
    case SchemaValue::Kind::kObject: {
      ObjectShape shape;
      for (const auto& [name, member] : value.members)
        shape.properties.push_back({name, algebra_.OfNormal(OfValue(member)), true, true});
      out.objects.push_back(std::move(shape));
      break;
    }
  }
  return out;
}

Normal SchemaCompiler::OfValues(const SchemaValue& list) {
  if (!list.is_array()) algebra_.Fail(list, "must be an array");
  // Strings together, because there may be many.
  Parts parts;
  std::vector<std::string> texts;
  for (const SchemaValue& value : list.items) {
    if (!algebra_.ok()) break;
    if (value.is_string()) {
      texts.push_back(value.text);
    } else {
      parts.push_back(std::make_shared<const Normal>(OfValue(value)));
    }
  }
  if (!texts.empty() && algebra_.Spend(texts.size())) {
    Normal strings;
    strings.string = algebra_.strings().Texts(texts);
    parts.push_back(std::make_shared<const Normal>(std::move(strings)));
  }
  return algebra_.Unite(parts);
}

bool SchemaCompiler::ReadNumber(const SchemaValue& value, Decimal* out) {
  if (!value.is_number()) {
    algebra_.Fail(value, "must be a number");
  } else if (!ParseDecimal(value.text, out)) {
    algebra_.Fail(value, "the number has too many digits or too large an exponent");
  }
  return algebra_.ok();
}

uint64_t SchemaCompiler::ReadCount(const SchemaValue& schema, std::string_view keyword,
                                   uint64_t otherwise) {
  const SchemaValue* value = Get(schema, keyword);
  if (value == nullptr) return otherwise;
  Decimal number;
  uint64_t count = 0;
  if (!value->is_number() || !ParseDecimal(value->text, &number) ||
      !DecimalToCount(number, &count)) {
    algebra_.Fail(*value, "must be a whole number that is not negative");
    return otherwise;
  }
  return count;
}

ExpressionId SchemaCompiler::Bound(const SchemaValue& schema, std::string_view keyword,
                                   const SchemaValue& value) {
  NumberLanguage& numbers = algebra_.numbers();
  // In draft 4, the exclusive ones are true or false and say how to read the others.
  const bool old_style = !document_->NamesDraft(schema) || document_->DraftOf(schema) == Draft::k4;
  if (keyword.starts_with("exclusive") && value.is_bool() && old_style) return numbers.All();
  Decimal number;
  if (!ReadNumber(value, &number)) return numbers.All();
  const auto exclusive = [&](std::string_view name) {
    const SchemaValue* flag = schema.Find(name);
    return old_style && flag != nullptr && flag->is_true();
  };
  if (keyword == "exclusiveMinimum") return numbers.MoreThan(number);
  if (keyword == "exclusiveMaximum") return numbers.LessThan(number);
  if (keyword == "minimum")
    return exclusive("exclusiveMinimum") ? numbers.MoreThan(number) : numbers.AtLeast(number);
  if (keyword == "maximum")
    return exclusive("exclusiveMaximum") ? numbers.LessThan(number) : numbers.AtMost(number);
  ExpressionId multiples = numbers.All();
  if (number.negative || number.is_zero()) {
    algebra_.Fail(value, "must be more than 0");
  } else if (!numbers.MultiplesOf(number, &multiples)) {
    algebra_.Fail(value, "\"multipleOf\" of so large a number is not supported");
  }
  return multiples;
}

ExpressionId SchemaCompiler::Pattern(const SchemaValue& value, std::string_view text) {
  const auto known = patterns_.find(text);
  if (known != patterns_.end()) return known->second;
  RegularExpressionOptions options;
  options.search = true;
  options.code_points = [this](const CodePointSet& set) {
    return algebra_.strings().Characters(set);
  };
  const Result<ExpressionId> parsed = ParseRegularExpression(text, options, algebra_.set());
  if (!parsed.ok()) {
    algebra_.Fail(value,
                  fmt::format("the pattern is not supported: {}", parsed.status().message()));
    return algebra_.set().Nothing();
  }
  patterns_.emplace(std::string(text), parsed.value());
  return parsed.value();
}

ExpressionId SchemaCompiler::Lengths(const SchemaValue& schema) {
  constexpr uint64_t kMost = ExpressionSet::kUnbounded;
  const uint64_t min = ReadCount(schema, "minLength", 0);
  const uint64_t max = std::min(ReadCount(schema, "maxLength", kMost), kMost);
  if (min > max || min == kMost) return algebra_.set().Nothing();
  return algebra_.strings().Length(static_cast<uint32_t>(min), static_cast<uint32_t>(max));
}

bool SchemaCompiler::Format(const SchemaValue& value, ExpressionId* strings) {
  if (!value.is_string()) {
    algebra_.Fail(value, "must be a string");
    return false;
  }
  const StandardFormat* format = FindFormat(value.text);
  if (format == nullptr) return false;  // not of the standard: an annotation
  if (format->expression.empty()) {
    algebra_.Fail(value, fmt::format("the format \"{}\" is not supported", value.text));
    return false;
  }
  const std::string key = "format " + value.text;
  const auto known = patterns_.find(key);
  if (known != patterns_.end()) {
    *strings = known->second;
    return true;
  }
  RegularExpressionOptions options;
  options.code_points = [this](const CodePointSet& set) {
    return algebra_.strings().Characters(set);
  };
  std::vector<ExpressionId> conditions;
  for (std::string_view part : {format->expression, format->condition}) {
    if (part.empty()) continue;
    Result<ExpressionId> parsed = ParseRegularExpression(part, options, algebra_.set());
    if (!parsed.ok()) {
      algebra_.Fail(value, parsed.status().message());
      return false;
    }
    conditions.push_back(*parsed);
  }
  *strings = algebra_.set().And(conditions);
  patterns_.emplace(key, *strings);
  return true;
}

}  // namespace minisgl::grammar
