// Python's two ways to format values: `format % values` and format.format(...). Both format numbers
// with a Spec; conversions of the first are translated to one.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

constexpr int64_t kWidthMax = 4096;  // of a field; a larger width would only use memory
constexpr int64_t kPrecisionMax = 300;

// A format specification of Python.
struct Spec {
  Text fill = Text(" ");
  char align = '\0';  // <, >, ^, or = (between the sign and the digits)
  char sign = '-';    // +, - or a space
  bool alternate = false;
  int64_t width = 0;
  char grouping = '\0';
  int64_t precision = -1;
  char type = '\0';
};

int64_t TakeNumber(std::string_view* text, int64_t max, const char* what) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || number > max)
    Fail("a format's {} must be a number of at most {}", what, max);
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return number;
}

bool TakeChar(std::string_view* text, char wanted) {
  if (!text->starts_with(wanted)) return false;
  text->remove_prefix(1);
  return true;
}

bool BeginsNumber(std::string_view text) {
  return !text.empty() && text[0] >= '0' && text[0] <= '9';
}

constexpr std::string_view kAligns = "<>^=";

// Parses [[fill]align][sign][#][0][width][grouping][.precision][type].
Spec ParseSpec(const Text& spec_text) {
  Spec spec;
  std::string_view text = spec_text.bytes();
  const size_t first = text.empty() ? 0 : std::max<size_t>(1, Utf8CharLength(text.substr(0, 4)));
  if (text.size() > first && kAligns.find(text[first]) != std::string_view::npos) {
    spec.fill = spec_text.Substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && kAligns.find(text[0]) != std::string_view::npos) {
    spec.align = text[0];
    text.remove_prefix(1);
  }
  for (const char sign : {'+', '-', ' '}) {
    if (TakeChar(&text, sign)) {
      spec.sign = sign;
      break;
    }
  }
  spec.alternate = TakeChar(&text, '#');
  if (TakeChar(&text, '0') && spec.align == '\0') {
    spec.fill = Text("0");
    spec.align = '=';
  }
  if (BeginsNumber(text)) spec.width = TakeNumber(&text, kWidthMax, "width");
  for (const char grouping : {',', '_'}) {
    if (TakeChar(&text, grouping)) spec.grouping = grouping;
  }
  if (TakeChar(&text, '.')) spec.precision = TakeNumber(&text, kPrecisionMax, "precision");
  if (text.size() == 1) {
    spec.type = text[0];
  } else if (!text.empty()) {
    Fail("the format \"{}\" is not supported", Visible(spec_text.bytes()));
  }
  return spec;
}

Text Padded(const Spec& spec, char default_align, std::string_view sign, const Text& body) {
  const char align = spec.align != '\0' ? spec.align : default_align;
  const auto have = static_cast<int64_t>(sign.size() + CountCharacters(body.bytes()));
  const int64_t missing = std::max<int64_t>(0, spec.width - have);
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  if (align == '=') out.Append(sign);
  for (int64_t i = 0; i < left; ++i) out.Append(spec.fill);
  if (align != '=') out.Append(sign);
  out.Append(body);
  for (int64_t i = left; i < missing; ++i) out.Append(spec.fill);
  return out;
}

// Returns `digits` with a separator between groups of three digits of the integer part.
std::string Grouped(const std::string& digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string WholeDigits(const BigInteger& number, const Spec& spec) {
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      return (number.is_negative() ? number.Negated() : number).Digits();
    case 'x':
      return (spec.alternate ? "0x" : "") + number.MagnitudeIn(16);
    case 'X': {
      std::string digits = number.MagnitudeIn(16);
      for (char& c : digits) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      return (spec.alternate ? "0X" : "") + digits;
    }
    case 'o':
      return (spec.alternate ? "0o" : "") + number.MagnitudeIn(8);
    case 'b':
      return (spec.alternate ? "0b" : "") + number.MagnitudeIn(2);
    default:
      Fail("the format type '{}' is not for whole numbers", Visible(std::string(1, spec.type)));
  }
}

std::string FloatDigits(double number, const Spec& spec) {
  if (!std::isfinite(number)) {
    const bool is_upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
    return std::isnan(number) ? (is_upper ? "NAN" : "nan") : (is_upper ? "INF" : "inf");
  }
  const int64_t precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case '\0':
      return spec.precision < 0 ? DoubleText(number) : fmt::format("{:.{}g}", number, precision);
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", number, precision);
    case 'e':
      return fmt::format("{:.{}e}", number, precision);
    case 'E':
      return fmt::format("{:.{}E}", number, precision);
    case 'g':
    case 'n':
      return fmt::format("{:.{}g}", number, precision);
    case 'G':
      return fmt::format("{:.{}G}", number, precision);
    case '%':
      return fmt::format("{:.{}f}%", number * 100, precision);
    default:
      Fail("the format type '{}' is not for numbers", Visible(std::string(1, spec.type)));
  }
}

Text FormatNumber(const Value& value, const Spec& spec) {
  constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool is_float =
      value.is_double() || (spec.type != '\0' && kFloatTypes.find(spec.type) != kFloatTypes.npos);
  std::string digits;
  bool is_negative = false;
  if (is_float) {
    const double number = value.as_double();
    is_negative = std::signbit(number) && !std::isnan(number);
    digits = FloatDigits(std::abs(number), spec);
  } else if (spec.type == 'c') {
    const int64_t code = NeedInt(value, "the code of a character");
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      Fail("{} is not a character", code);
    AppendUtf8(static_cast<char32_t>(code), &digits);
    return Padded(spec, '<', "", Text(digits, /*trusted=*/false));
  } else {
    const BigInteger number = value.as_big();
    is_negative = number.is_negative();
    digits = WholeDigits(number, spec);
  }
  if (spec.grouping != '\0') digits = Grouped(digits, spec.grouping);
  const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return Padded(spec, '>', sign, Text(digits));
}

// format(value, spec).
Text FormatValue(Interpreter* run, const Value& value, const Spec& spec, bool has_spec) {
  const bool is_plain_bool = value.is_bool() && spec.type == '\0';
  if (value.is_number() && !is_plain_bool) return FormatNumber(value, spec);
  if (has_spec && !value.is_text() && !is_plain_bool) Fail("{} takes no format", value.TypeName());
  if (spec.type != '\0' && spec.type != 's') {
    Fail("the format type '{}' is not for strings", Visible(std::string(1, spec.type)));
  }
  Text text = run->StrOf(value);
  if (spec.precision >= 0) {
    const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
    const auto count = std::min(static_cast<size_t>(spec.precision), offsets.size() - 1);
    text = text.Substr(0, offsets[count]);
  }
  return Padded(spec, '<', "", text);
}

Text ReprOf(Interpreter* run, const Value& value) {
  run->ChargeWork(value.Weight());
  Text text;
  AppendRepr(value, &text);
  run->ChargeText(text.size());
  return text;
}

// Evaluates `format % values`, conversion by conversion.
class PercentFormatter {
 public:
  PercentFormatter(Interpreter* run, const Text& format, const Value& values)
      : run_(run), format_(format), values_(values) {
    if (values.is_tuple()) {
      positional_ = values.list().items;
    } else {
      positional_.push_back(values);
    }
  }

  Value Run() {
    const std::string& bytes = format_.bytes();
    while (at_ < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.AppendRange(format_, at_, percent);
      at_ = percent;
      if (at_ < bytes.size()) Convert();
      if (out_.size() > TextBytesMax()) break;
    }
    if (values_.is_dict() || (values_.is_list() && !values_.is_tuple())) used_ = positional_.size();
    if (used_ < positional_.size()) Fail("a format has more values than conversions");
    out_.SetMarkup(format_.is_markup());
    return run_->MakeText(std::move(out_));
  }

 private:
  char Take() {
    if (at_ >= format_.size()) Fail("a format ends within a conversion");
    return format_.bytes()[at_++];
  }

  const Value& NextValue() {
    if (used_ >= positional_.size()) Fail("a format takes more values than there are");
    return positional_[used_++];
  }

  int64_t Count(const char* what, int64_t max) {
    if (format_.bytes()[at_] == '*') {
      ++at_;
      const int64_t count = NeedInt(NextValue(), what);
      if (count < 0 || count > max) Fail("a format's {} must be a number of at most {}", what, max);
      return count;
    }
    std::string_view rest = std::string_view(format_.bytes()).substr(at_);
    if (!BeginsNumber(rest)) return 0;
    const size_t before = rest.size();
    const int64_t count = TakeNumber(&rest, max, what);
    at_ += before - rest.size();
    return count;
  }

  // Formats %[(name)][flags][width][.precision]type.
  void Convert() {
    run_->ChargeVisits(1);
    ++at_;
    std::optional<Value> named;
    if (at_ < format_.size() && format_.bytes()[at_] == '(') {
      const size_t end = format_.bytes().find(')', at_);
      if (end == std::string::npos) Fail("a name in a format has no end");
      if (!values_.is_dict()) Fail("a format with names needs a dict");
      const std::string name = format_.bytes().substr(at_ + 1, end - at_ - 1);
      run_->ChargeSearch(values_.dict().members.size(), name);
      const Value* value = values_.dict().Find(name);
      if (value == nullptr) Fail("a format names \"{}\", which is not given", Visible(name));
      named = *value;
      at_ = end + 1;
    }
    Spec spec;
    spec.align = '>';
    bool has_zero = false;
    for (char flag = Take();; flag = Take()) {
      if (flag == '-') {
        spec.align = '<';
      } else if (flag == '0') {
        has_zero = true;
      } else if (flag == '#') {
        spec.alternate = true;
      } else if (flag == '+' || (flag == ' ' && spec.sign != '+')) {
        spec.sign = flag;
      } else if (flag != ' ') {
        --at_;
        break;
      }
    }
    spec.width = Count("width", kWidthMax);
    if (at_ < format_.size() && format_.bytes()[at_] == '.') {
      ++at_;
      if (at_ >= format_.size()) Fail("a format ends within a conversion");
      spec.precision = Count("precision", kPrecisionMax);
    }
    char type = Take();
    while (type == 'l' || type == 'h' || type == 'L') type = Take();
    if (type == '%') {
      out_.Append("%");
      return;
    }
    if (has_zero && spec.align != '<') {
      spec.fill = Text("0");
      spec.align = '=';
    }
    out_.Append(Converted(named.has_value() ? *named : NextValue(), type, spec));
  }

  Text Converted(const Value& value, char type, Spec spec) {
    constexpr std::string_view kWhole = "diuoxX", kNumber = "eEfFgG";
    if (type == 's' || type == 'r' || type == 'a' || (type == 'c' && value.is_text())) {
      Text text = type == 'r' || type == 'a' ? ReprOf(run_, value) : run_->StrOf(value);
      if (type == 'c' && CountCharacters(text.bytes()) != 1) Fail("%c takes one character");
      const bool is_markup = value.is_text() && value.text().is_markup();
      if (format_.is_markup() && !is_markup) text = EscapeHtml(text);
      if (spec.align == '=') {
        spec.align = '>';
        spec.fill = Text(" ");
      }
      return FormatValue(run_, Value(std::move(text)), spec, false);
    }
    if (!value.is_number())
      Fail("%{} needs a number (found {})", Visible(std::string(1, type)), value.TypeName());
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (kWhole.find(type) != kWhole.npos) {
      Value number = value;
      if (value.is_double()) {
        if (!std::isfinite(value.as_double())) Fail("%{} needs a finite number", type);
        number = Value::FromInteger(
            BigInteger::FromDigits(fmt::format("{:.0f}", std::trunc(value.as_double()))));
      } else if (value.is_bool()) {
        number = Value(value.as_int());
      }
      if (spec.precision >= 0) return Precise(number, spec);
      return FormatNumber(number, spec);
    }
    if (kNumber.find(type) == kNumber.npos && type != 'c')
      Fail("the conversion %{} is not supported", Visible(std::string(1, type)));
    return FormatNumber(value.is_bool() ? Value(value.as_int()) : value, spec);
  }

  // Formats a whole number with at least `precision` digits.
  Text Precise(const Value& number, Spec spec) {
    Spec digits = spec;
    digits.width = spec.precision + (number.as_big().is_negative() || spec.sign != '-' ? 1 : 0);
    digits.precision = -1;
    digits.fill = Text("0");
    digits.align = '=';
    spec.precision = -1;
    if (spec.align == '=') return Padded(spec, '>', "", FormatNumber(number, digits));
    return FormatValue(
        run_, Value(FormatNumber(number, digits)),
        [&] {
          spec.type = '\0';
          return spec;
        }(),
        false);
  }

  Interpreter* run_;
  const Text& format_;
  const Value& values_;
  std::vector<Value> positional_;
  size_t used_ = 0, at_ = 0;
  Text out_;
};

class BraceFormatter {
 public:
  BraceFormatter(Interpreter* run, const CallArguments& arguments)
      : run_(run), arguments_(arguments) {}

  // `nested`: the format is a specification, which may contain fields, but not nested ones.
  Text Run(const Text& format, bool nested) {
    const std::string_view bytes = format.bytes();
    Text out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.AppendRange(format, at, brace);
      at = brace;
      if (at == bytes.size()) break;
      if (out.size() > TextBytesMax()) Fail("a text is longer than {} MiB", TextBytesMax() >> 20);
      if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {
        out.AppendRange(format, at, at + 1);
        at += 2;
        continue;
      }
      if (bytes[at] == '}') Fail("a format has a single '}}'");
      const size_t end = FieldEnd(bytes, at);
      if (nested && bytes.substr(at + 1, end - at - 1).find('{') != bytes.npos)
        Fail("a format's fields nest too deep");
      out.Append(Field(format, at + 1, end));
      at = end + 1;
    }
    return out;
  }

 private:
  static size_t FieldEnd(std::string_view bytes, size_t begin) {
    int depth = 0;
    for (size_t at = begin; at < bytes.size(); ++at) {
      if (bytes[at] == '{') ++depth;
      if (bytes[at] == '}' && --depth == 0) return at;
    }
    Fail("a field of a format has no end");
  }

  // Formats a field: name[.attribute | [index]]*[!conversion][:specification].
  Text Field(const Text& format, size_t begin, size_t end) {
    run_->ChargeVisits(1);
    const std::string_view bytes = format.bytes();
    const size_t name_end = std::min({bytes.find_first_of("!:", begin), end});
    Value value = Named(bytes.substr(begin, name_end - begin));
    size_t at = name_end;
    if (at < end && bytes[at] == '!') {
      const char conversion = at + 1 < end ? bytes[at + 1] : '\0';
      if (conversion == 'r' || conversion == 'a') {
        value = Value(ReprOf(run_, value));
      } else if (conversion == 's') {
        value = Value(run_->StrOf(value));
      } else {
        Fail("a format's conversion must be !r or !s");
      }
      at += 2;
    }
    if (at < end && bytes[at] != ':') Fail("a field of a format is malformed after its conversion");
    const bool has_spec = at < end && at + 1 < end;
    Spec spec;
    if (has_spec) spec = ParseSpec(Run(format.Substr(at + 1, end), /*nested=*/true));
    return FormatValue(run_, value, spec, has_spec);
  }

  Value Named(std::string_view field) {
    const size_t name_end = std::min(field.find_first_of(".["), field.size());
    const std::string_view name = field.substr(0, name_end);
    Value value;
    int64_t index = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = error == std::errc() && end == name.data() + name.size();
    if (name.empty()) index = next_++;
    if (name.empty() || is_index) {
      (name.empty() ? counts_ : numbers_) = true;
      if (counts_ && numbers_) Fail("a format mixes numbered and unnumbered fields");
      if (index < 0 || index >= static_cast<int64_t>(arguments_.positional.size()))
        Fail("a format takes more values than there are");
      value = arguments_.positional[static_cast<size_t>(index)];
    } else {
      const Value* found = arguments_.Find(arguments_.positional.size(), name);
      if (found == nullptr) Fail("a format names \"{}\", which is not given", Visible(name));
      value = *found;
    }
    for (std::string_view rest = field.substr(name_end); !rest.empty();) {
      run_->ChargeVisits(1);
      const bool is_item = rest[0] == '[';
      const size_t part_end =
          is_item ? rest.find(']') : std::min(rest.find_first_of(".[", 1), rest.size());
      if (part_end == rest.npos || (!is_item && rest[0] != '.'))
        Fail("a field of a format is malformed");
      const std::string_view part = rest.substr(1, part_end - 1);
      int64_t place = 0;
      const auto number = std::from_chars(part.data(), part.data() + part.size(), place);
      const bool is_number = number.ec == std::errc() && number.ptr == part.data() + part.size();
      value = !is_item    ? run_->Attribute(value, part, /*item_first=*/false)
              : is_number ? run_->Item(value, Value(place))
                          : run_->Item(value, Value(Text(part)));
      rest.remove_prefix(part_end + (is_item ? 1 : 0));
    }
    return value;
  }

  Interpreter* run_;
  const CallArguments& arguments_;
  int64_t next_ = 0;
  bool counts_ = false, numbers_ = false;  // has seen {} and {0}
};

}  // namespace

Value FormatPercent(Interpreter* run, const Text& format, const Value& values) {
  return PercentFormatter(run, format, values).Run();
}

Value FormatBraces(Interpreter* run, const Text& format, const CallArguments& arguments) {
  return run->MakeText(BraceFormatter(run, arguments).Run(format, /*nested=*/false));
}

}  // namespace minisgl::text::jinja
