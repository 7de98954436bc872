// The table of filters (`value | filter`), and the filters of strings and numbers. Filters of lists
// and dicts are in filters_sequence.cc.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

// Returns the input of a string filter: str(value), marked as escaped HTML if the value is.
Text SoftText(Interpreter* run, const Value& input) {
  Text text = run->StrOf(input);
  text.SetMarkup(input.is_text() && input.text().is_markup());
  return text;
}

// Returns `text` as a value, marked as escaped HTML if `input` is.
Value AsMarkupLike(Interpreter* run, const Value& input, Text text) {
  text.SetMarkup(input.is_text() && input.text().is_markup());
  return run->MakeText(std::move(text));
}

// String filters accept any value and convert it with str(value).
template <LetterCase letter_case>
Value CaseFilter(Interpreter* run, const Value& input, const CallArguments&) {
  Text text = ChangeCase(run, run->StrOf(input), letter_case);
  if (letter_case == LetterCase::kTitleWords) return run->MakeText(std::move(text));
  return AsMarkupLike(run, input, std::move(text));
}

Value TrimFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value chars = arguments.Get(0, "chars", Value(None{}));
  const std::string set = chars.is_none() ? "" : NeedText(chars, "trim's characters").bytes();
  run->ChargeWork(uint64_t{16} * set.size());
  const Text text = run->StrOf(input);
  const bool strips_nothing = !chars.is_none() && set.empty();
  return AsMarkupLike(run, input, strips_nothing ? text : Strip(text, set, true, true));
}

Value StringFilter(Interpreter* run, const Value& input, const CallArguments&) {
  return input.is_text() ? input : run->MakeText(run->StrOf(input));
}

Value SafeFilter(Interpreter* run, const Value& input, const CallArguments&) {
  Text text = run->StrOf(input);
  text.SetMarkup(true);
  return run->MakeText(std::move(text));
}

template <bool always>
Value EscapeFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (!always && input.is_text() && input.text().is_markup()) return input;
  Text text = EscapeHtml(run->StrOf(input));
  text.SetMarkup(true);
  return run->MakeText(std::move(text));
}

Value ReplaceFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value *from = arguments.Find(0, "old"), *to = arguments.Find(1, "new");
  if (from == nullptr || to == nullptr) Fail("replace needs two strings");
  const Value count = arguments.Get(2, "count", Value(None{}));
  return run->MakeText(Replace(run, run->StrOf(input), run->StrOf(*from), run->StrOf(*to),
                               count.is_none() ? -1 : NeedInt(count, "replace's count")));
}

Value IndentFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value width = arguments.Get(0, "width", Value(int64_t{4}));
  const bool first = Truthy(arguments.Get(1, "first", Value(false)));
  const bool blank = Truthy(arguments.Get(2, "blank", Value(false)));
  Text margin;
  if (width.is_text()) {
    margin = width.text();
  } else {
    const int64_t count = NeedInt(width, "indent's width");
    if (count > 1024) Fail("indent's width is {}; at most 1024 are supported", count);
    margin.Append(std::string(static_cast<size_t>(std::max<int64_t>(0, count)), ' '));
  }
  Text text = NeedText(input.OrText(), "the input of indent");
  text.Append("\n");
  const std::vector<Value> lines = SplitLines(run, text, /*keeps_ends=*/false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    if (i == 0 ? first : (blank || !lines[i].text().empty())) out.Append(margin);
    out.Append(lines[i].text());
    if (out.size() > TextBytesMax()) break;
  }
  return AsMarkupLike(run, input, std::move(out));
}

Value ToJsonFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  JsonStyle style;
  style.ascii = Truthy(arguments.Get(0, "ensure_ascii", Value(false)));
  const Value indent = arguments.Get(1, "indent", Value(None{}));
  if (indent.is_text()) {
    if (indent.text().size() > 32) Fail("tojson's indent is longer than 32 bytes");
    style.margin = indent.text().bytes();
    style.indent = 1;
    style.item_separator = ',';
  } else if (!indent.is_none()) {
    const int64_t width = NeedInt(indent, "tojson's indent");
    if (width > 32) Fail("tojson's indent is {}; at most 32 are supported", width);
    style.indent = static_cast<int>(std::max<int64_t>(0, width));
    style.item_separator = ',';
  }
  const Value separators = arguments.Get(2, "separators", Value(None{}));
  if (separators.is_sequence() && separators.list().items.size() == 2) {
    style.item_separator = NeedText(separators.list().items[0], "a separator").bytes();
    style.key_separator = NeedText(separators.list().items[1], "a separator").bytes();
  }
  style.sort_keys = Truthy(arguments.Get(3, "sort_keys", Value(false)));
  run->ChargeWork(input.Weight());
  Text text;
  AppendJson(input, style, &text);
  return run->MakeText(std::move(text));
}

Value LengthFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_text()) {
    run->ChargeWork(uint64_t{8} * input.text().size());
    return Value(static_cast<int64_t>(CountCharacters(input.text().bytes())));
  }
  if (input.is_list() && !input.is_generator())
    return Value(static_cast<int64_t>(input.list().items.size()));
  if (input.is_dict()) return Value(static_cast<int64_t>(input.dict().members.size()));
  if (input.is_undefined()) return Value(int64_t{0});
  Fail("{} has no length", input.TypeName());
}

Value DefaultFilter(Interpreter*, const Value& input, const CallArguments& arguments) {
  const bool also_false = Truthy(arguments.Get(1, "boolean", Value(false)));
  const bool is_missing = input.is_undefined() || (also_false && !Truthy(input));
  return is_missing ? arguments.Get(0, "default_value", Value(Text())) : input;
}

// Returns the number that Python's int() and float() would read, without surrounding white space, a
// plus sign, and underscores between digits; "" if the text is not a number.
std::string Digits(Interpreter* run, const Text& text) {
  run->ChargeWork(text.size());
  const std::string stripped = Strip(text, "", true, true).bytes();
  std::string digits;
  for (size_t i = 0; i < stripped.size(); ++i) {
    const auto is_part = [&](size_t at) {
      return at < stripped.size() && std::isalnum(static_cast<unsigned char>(stripped[at])) != 0;
    };
    if (i == 0 && stripped[i] == '+') {
      if (!is_part(1) && !stripped.substr(1).starts_with(".")) return "";
    } else if (stripped[i] == '_') {
      if (i == 0 || !is_part(i - 1) || !is_part(i + 1)) return "";
    } else {
      digits += stripped[i];
    }
  }
  return digits;
}

std::optional<double> ReadDouble(const std::string& digits) {
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

Value IntFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value fallback = arguments.Get(0, "default", Value(int64_t{0}));
  const auto from_double = [&](double number) {
    if (!std::isfinite(number)) return fallback;
    return Value::FromInteger(BigInteger::FromDigits(fmt::format("{:.0f}", std::trunc(number))));
  };
  if (input.is_undefined()) return Value(NeedInt(input, "int's value"));
  if (input.is_integral()) return Value(input.as_int());
  if (input.is_big()) return input;
  if (input.is_double()) return from_double(input.as_double());
  if (!input.is_text()) return fallback;
  const int64_t base = NeedInt(arguments.Get(1, "base", Value(int64_t{10})), "int's base");
  if (base < 2 || base > 36) Fail("int's base is {}; it must be 2 to 36", base);
  std::string digits = Digits(run, input.text());
  const std::string_view prefix = base == 16 ? "0x" : base == 8 ? "0o" : base == 2 ? "0b" : "";
  const size_t sign = digits.starts_with("-") ? 1 : 0;
  if (!prefix.empty() && std::string_view(digits).substr(sign).starts_with(prefix))
    digits.erase(sign, 2);
  int64_t whole = 0;
  const char* const end = digits.data() + digits.size();
  const auto as_int = std::from_chars(digits.data(), end, whole, static_cast<int>(base));
  if (as_int.ec == std::errc() && as_int.ptr == end) return Value(whole);
  const bool is_whole = as_int.ec == std::errc::result_out_of_range && as_int.ptr == end;
  if (is_whole && base == 10) return Value::FromInteger(BigInteger::FromDigits(digits));
  const std::optional<double> number = ReadDouble(digits);
  return number.has_value() ? from_double(*number) : fallback;
}

Value FloatFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value fallback = arguments.Get(0, "default", Value(0.0));
  if (input.is_undefined()) return Value(NeedInt(input, "float's value"));
  if (input.is_number()) return Value(input.as_double());
  if (!input.is_text()) return fallback;
  const std::optional<double> number = ReadDouble(Digits(run, input.text()));
  return number.has_value() ? Value(*number) : fallback;
}

Value AbsFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_double()) return Value(std::abs(input.as_double()));
  if (input.is_big()) {
    return input.as_big().is_negative() ? run->Arithmetic("-", Value(int64_t{0}), input) : input;
  }
  const int64_t number = NeedInt(input, "abs's number");
  return number < 0 ? run->Arithmetic("-", Value(int64_t{0}), input) : Value(number);
}

Value RoundFilter(Interpreter*, const Value& input, const CallArguments& arguments) {
  if (!input.is_number()) Fail("round needs a number (found {})", input.TypeName());
  const int64_t precision =
      NeedInt(arguments.Get(0, "precision", Value(int64_t{0})), "round's precision");
  const std::string method =
      NeedText(arguments.Get(1, "method", Value(Text("common"))), "round's method").bytes();
  if (method != "common" && method != "ceil" && method != "floor")
    Fail("round's method must be common, ceil or floor");
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  if (method == "ceil") return Value(std::ceil(input.as_double() * scale) / scale);
  if (method == "floor") return Value(std::floor(input.as_double() * scale) / scale);
  if (input.is_integral() && precision >= 0) return Value(input.as_int());
  if (input.is_big() && precision >= 0) return input;
  if (!std::isfinite(input.as_double())) return input;
  if (precision < 0) {  // rounds halves to even
    const double rounded = std::nearbyint(input.as_double() * scale) / scale;
    return input.is_integral() ? Value(static_cast<int64_t>(rounded)) : Value(rounded);
  }
  if (precision > 300) return input;
  // Round by formatting the exact value: the double 2.675 is slightly less than 2.675.
  return Value(*ReadDouble(fmt::format("{:.{}f}", input.as_double(), precision)));
}

Value FormatFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty())
    Fail("format takes positional or named values, not both");
  if (!arguments.named.empty()) {
    DictBuilder names(run);
    for (const auto& [name, value] : arguments.named) names.Add(Value(Text(name)), value);
    return FormatPercent(run, SoftText(run, input), names.Build());
  }
  return FormatPercent(run, SoftText(run, input),
                       run->MakeList(arguments.positional, ListKind::kTuple));
}

Value CenterFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value width = arguments.Get(0, "width", Value(int64_t{80}));
  CallArguments padding;
  padding.positional.push_back(width);
  return CallTextMethod(run, SoftText(run, input), "center", padding);
}

Value WordCountFilter(Interpreter* run, const Value& input, const CallArguments&) {
  const Text text = run->StrOf(input);
  run->ChargeWork(uint64_t{16} * text.size());
  int64_t count = 0;
  bool in_word = false;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const char32_t c = FirstCodePoint(std::string_view(text.bytes()).substr(at), &length);
    const bool is_part = c == '_' || IsLetter(c) || IsNumeral(c);
    if (is_part && !in_word) ++count;
    in_word = is_part;
  }
  return Value(count);
}

// Truncates to `length` characters, at the end of a word unless `killwords`.
Value TruncateFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const int64_t length =
      NeedInt(arguments.Get(0, "length", Value(int64_t{255})), "truncate's length");
  const bool kills_words = Truthy(arguments.Get(1, "killwords", Value(false)));
  const Text end = run->StrOf(arguments.Get(2, "end", Value(Text("..."))));
  const Value given = arguments.Get(3, "leeway", Value(None{}));
  const int64_t leeway = given.is_none() ? 5 : NeedInt(given, "truncate's leeway");
  const auto end_length = static_cast<int64_t>(CountCharacters(end.bytes()));
  if (length < end_length || leeway < 0 || leeway > kRangeMax)
    Fail("truncate's length must be at least its end's length, and its leeway 0 to {}", kRangeMax);
  if (input.is_undefined()) return input;
  if (input.is_sequence() &&
      static_cast<int64_t>(input.list().items.size()) <= std::min(length, kRangeMax) + leeway)
    return input;
  const Text text = NeedText(input, "the input of truncate");
  run->ChargeWork(uint64_t{16} * text.size());
  const std::vector<size_t> offsets = CharacterOffsets(text.bytes());
  const auto characters = static_cast<int64_t>(offsets.size()) - 1;
  if (length >= characters || characters <= length + leeway) return AsMarkupLike(run, input, text);
  size_t cut = offsets[static_cast<size_t>(length - end_length)];
  if (!kills_words) cut = std::min(cut, text.bytes().substr(0, cut).rfind(' '));
  Text out = text.Substr(0, cut);
  out.Append(end);
  return AsMarkupLike(run, input, std::move(out));
}

// Percent-encodes as in a URL; a dict or a list of pairs becomes a query.
Value UrlEncodeFilter(Interpreter* run, const Value& input, const CallArguments&) {
  const auto encoded = [run](const Value& value, bool keeps_slash) {
    const Text text = run->StrOf(value);
    run->ChargeWork(uint64_t{16} * text.size());
    Text out;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text.bytes()[i];
      const bool stays = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' ||
                         c == '-' || c == '~' || (keeps_slash && c == '/');
      out.Append(stays                      ? std::string(1, c)
                 : c == ' ' && !keeps_slash ? "+"
                                            : fmt::format("%{:02X}", static_cast<uint8_t>(c)),
                 text.TrustedAt(i));
    }
    run->ChargeWork(out.footprint());
    return out;
  };
  if (!input.is_dict() && !input.is_list()) return run->MakeText(encoded(input, true));
  Text out;
  for (const Value& pair : input.is_dict() ? DictItems(run, input.dict()) : run->Elements(input)) {
    const std::vector<Value> parts = run->Elements(pair);
    if (parts.size() != 2) Fail("urlencode takes pairs (found {} values)", parts.size());
    if (!out.empty()) out.Append("&");
    out.Append(encoded(parts[0], false));
    out.Append("=");
    out.Append(encoded(parts[1], false));
    if (out.size() > TextBytesMax()) break;
  }
  return run->MakeText(std::move(out));
}

const std::map<std::string_view, FilterHandler>& Handlers() {
  static const auto* const kHandlers = new std::map<std::string_view, FilterHandler>{
      {"upper", CaseFilter<LetterCase::kUpper>},
      {"lower", CaseFilter<LetterCase::kLower>},
      {"title", CaseFilter<LetterCase::kTitleWords>},
      {"capitalize", CaseFilter<LetterCase::kCapitalize>},
      {"trim", TrimFilter},
      {"string", StringFilter},
      {"safe", SafeFilter},
      {"escape", EscapeFilter<false>},
      {"e", EscapeFilter<false>},
      {"forceescape", EscapeFilter<true>},
      {"format", FormatFilter},
      {"center", CenterFilter},
      {"wordcount", WordCountFilter},
      {"truncate", TruncateFilter},
      {"urlencode", UrlEncodeFilter},
      {"replace", ReplaceFilter},
      {"indent", IndentFilter},
      {"tojson", ToJsonFilter},
      {"length", LengthFilter},
      {"count", LengthFilter},
      {"default", DefaultFilter},
      {"d", DefaultFilter},
      {"int", IntFilter},
      {"float", FloatFilter},
      {"abs", AbsFilter},
      {"round", RoundFilter},
  };
  return *kHandlers;
}

}  // namespace

bool HasFilter(std::string_view name) {
  return SequenceFilter(name) != nullptr || Handlers().contains(name);
}

Value ApplyFilter(Interpreter* run, std::string_view name, const Value& input,
                  const CallArguments& arguments) {
  if (const FilterHandler handler = SequenceFilter(name)) return handler(run, input, arguments);
  const auto handler = Handlers().find(name);
  if (handler == Handlers().end()) Fail("the filter \"{}\" is not supported", Visible(name));
  return handler->second(run, input, arguments);
}

}  // namespace minisgl::text::jinja
