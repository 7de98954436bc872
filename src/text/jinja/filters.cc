// `value | filter`.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::jinja {
namespace {

using Handler = Value (*)(Interpreter*, const Value&, const CallArguments&);

// Filters of texts take any value and begin with str(value).
template <LetterCase letter_case>
Value CaseFilter(Interpreter* run, const Value& input, const CallArguments&) {
  return run->MakeText(ChangeCase(run->StrOf(input), letter_case));
}

Value TrimFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value chars = arguments.Get(0, "chars", Value(None{}));
  const std::string set = chars.is_none() ? "" : NeedText(chars, "trim's characters").bytes();
  run->ChargeWork(uint64_t{16} * set.size());
  return run->MakeText(Strip(run->StrOf(input), set, true, true));
}

Value StringFilter(Interpreter* run, const Value& input, const CallArguments&) {
  return input.is_text() ? input : run->MakeText(run->StrOf(input));
}

Value SameFilter(Interpreter*, const Value& input, const CallArguments&) { return input; }

Value EscapeFilter(Interpreter* run, const Value& input, const CallArguments&) {
  Text text = run->StrOf(input);
  static constexpr std::pair<std::string_view, std::string_view> kEscapes[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : kEscapes) text = Replace(run, text, Text(from), Text(to), -1);
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
  const Text text = run->StrOf(input);
  const std::string_view bytes = text.bytes();
  Text out;
  for (size_t begin = 0; begin <= bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const bool is_first = begin == 0;
    if (!is_first) out.Append("\n");
    if (is_first ? first : (blank || end > begin)) out.Append(margin);
    out.AppendRange(text, begin, end);
    if (out.size() > kTextBytesMax) break;
    begin = end + 1;
  }
  return run->MakeText(std::move(out));
}

Value ToJsonFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  JsonStyle style;
  style.ascii = Truthy(arguments.Get(0, "ensure_ascii", Value(false)));
  const Value indent = arguments.Get(1, "indent", Value(None{}));
  if (!indent.is_none()) {
    const int64_t width = NeedInt(indent, "tojson's indent");
    if (width > 32) Fail("tojson's indent is {}; at most 32 are supported", width);
    style.indent = static_cast<int>(std::max<int64_t>(0, width));
    style.item_separator = ',';
  }
  const Value separators = arguments.Get(2, "separators", Value(None{}));
  if (separators.is_list() && separators.list().items.size() == 2) {
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
  if (input.is_list()) return Value(static_cast<int64_t>(input.list().items.size()));
  if (input.is_dict()) return Value(static_cast<int64_t>(input.dict().members.size()));
  if (input.is_undefined()) return Value(int64_t{0});
  Fail("{} has no length", input.TypeName());
}

Value DefaultFilter(Interpreter*, const Value& input, const CallArguments& arguments) {
  const bool also_false = Truthy(arguments.Get(1, "boolean", Value(false)));
  const bool is_missing = input.is_undefined() || (also_false && !Truthy(input));
  return is_missing ? arguments.Get(0, "default_value", Value(Text())) : input;
}

Value FirstFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_list() && !input.list().items.empty()) return input.list().items.front();
  std::vector<Value> items = run->Elements(input);
  return items.empty() ? Value(Undefined{"the first of nothing"}) : items.front();
}

Value LastFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_list() && !input.list().items.empty()) return input.list().items.back();
  std::vector<Value> items = run->Elements(input);
  return items.empty() ? Value(Undefined{"the last of nothing"}) : items.back();
}

Value ListFilter(Interpreter* run, const Value& input, const CallArguments&) {
  return run->MakeList(run->Elements(input));
}

Value ItemsFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_undefined()) return run->MakeList({});
  if (!input.is_dict()) Fail("items needs a dict (found {})", input.TypeName());
  return run->MakeList(DictItems(run, input.dict()));
}

Value ReverseFilter(Interpreter* run, const Value& input, const CallArguments&) {
  std::vector<Value> items = run->Elements(input);
  std::reverse(items.begin(), items.end());
  return input.is_text() ? run->MakeText(Join(run, items, Text()))
                         : run->MakeList(std::move(items));
}

// "a.b.0" of `value`, as attribute= of filters takes it.
Value AttributePath(Interpreter* run, Value value, const Value& path) {
  if (!path.is_text()) return run->Item(value, path);
  std::string_view rest = path.text().bytes();
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = !part.empty() && error == std::errc() && end == part.data() + part.size();
    value = is_index ? run->Item(value, Value(index))
                     : run->Attribute(value, part, /*item_first=*/true);
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

// What sort, unique, min and max compare: the attribute, in lower case unless told otherwise.
Value SortKey(Interpreter* run, const Value& item, const Value& attribute, bool case_sensitive) {
  Value key = attribute.is_none() ? item : AttributePath(run, item, attribute);
  if (key.is_text() && !case_sensitive)
    key = run->MakeText(ChangeCase(key.text(), LetterCase::kLower));
  return key;
}

std::vector<std::pair<Value, Value>> Keyed(Interpreter* run, const std::vector<Value>& items,
                                           const Value& attribute, bool case_sensitive) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : items) {
    run->ChargeVisits(1);
    keyed.emplace_back(SortKey(run, item, attribute, case_sensitive), item);
  }
  return keyed;
}

// Charges each comparison; keys without an order end the rendering wherever two of them meet.
void SortKeyed(Interpreter* run, std::vector<std::pair<Value, Value>>* keyed, bool reverse) {
  const auto before = [run, reverse](const auto& a, const auto& b) {
    run->ChargeWork(16);
    run->ChargeComparison(a.first, b.first);
    return reverse ? Less(b.first, a.first) : Less(a.first, b.first);
  };
  std::stable_sort(keyed->begin(), keyed->end(), before);
}

Value SortFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const bool reverse = Truthy(arguments.Get(0, "reverse", Value(false)));
  const bool case_sensitive = Truthy(arguments.Get(1, "case_sensitive", Value(false)));
  auto keyed = Keyed(run, run->Elements(input), arguments.Get(2, "attribute", Value(None{})),
                     case_sensitive);
  SortKeyed(run, &keyed, reverse);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return run->MakeList(std::move(items));
}

Value DictSortFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  if (!input.is_dict()) Fail("dictsort needs a dict (found {})", input.TypeName());
  const bool case_sensitive = Truthy(arguments.Get(0, "case_sensitive", Value(false)));
  const std::string by =
      NeedText(arguments.Get(1, "by", Value(Text("key"))), "dictsort's by").bytes();
  const bool reverse = Truthy(arguments.Get(2, "reverse", Value(false)));
  auto keyed = Keyed(run, DictItems(run, input.dict()), Value(int64_t{by == "value" ? 1 : 0}),
                     case_sensitive);
  SortKeyed(run, &keyed, reverse);
  std::vector<Value> items;
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return run->MakeList(std::move(items));
}

Value UniqueFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const bool case_sensitive = Truthy(arguments.Get(0, "case_sensitive", Value(false)));
  const auto keyed = Keyed(run, run->Elements(input), arguments.Get(1, "attribute", Value(None{})),
                           case_sensitive);
  std::vector<Value> kept, keys;
  for (const auto& [key, item] : keyed) {
    run->ChargeVisits(static_cast<int64_t>(keys.size() / 16));
    const bool is_known = std::any_of(keys.begin(), keys.end(), [&, k = &key](const Value& other) {
      run->ChargeComparison(*k, other);
      return Equal(*k, other);
    });
    if (is_known) continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return run->MakeList(std::move(kept));
}

template <bool is_min>
Value ExtremeFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const bool case_sensitive = Truthy(arguments.Get(0, "case_sensitive", Value(false)));
  auto keyed = Keyed(run, run->Elements(input), arguments.Get(1, "attribute", Value(None{})),
                     case_sensitive);
  if (keyed.empty()) return Value(Undefined{"the extreme of nothing"});
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    run->ChargeComparison(keyed[i].first, keyed[best].first);
    const bool is_better =
        is_min ? Less(keyed[i].first, keyed[best].first) : Less(keyed[best].first, keyed[i].first);
    if (is_better) best = i;
  }
  return keyed[best].second;
}

Value SumFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value attribute = arguments.Get(0, "attribute", Value(None{}));
  Value sum = arguments.Get(1, "start", Value(int64_t{0}));
  for (const Value& item : run->Elements(input)) {
    run->ChargeVisits(1);
    sum =
        run->Arithmetic("+", sum, attribute.is_none() ? item : AttributePath(run, item, attribute));
  }
  return sum;
}

Value JoinFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Text separator = run->StrOf(arguments.Get(0, "d", Value(Text())));
  const Value attribute = arguments.Get(1, "attribute", Value(None{}));
  std::vector<Value> items = run->Elements(input);
  for (Value& item : items) {
    run->ChargeVisits(1);
    if (!attribute.is_none()) item = AttributePath(run, item, attribute);
  }
  return run->MakeText(Join(run, items, separator));
}

Value AttrFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const std::string name = NeedText(arguments.Get(0, "name", Value()), "attr's name").bytes();
  // Unlike a dot, this never looks a member up.
  if (input.is_dict() && !HasMethod(input, name)) return Value(Undefined{name});
  return run->Attribute(input, name, /*item_first=*/false);
}

// `arguments` but the first `count`.
CallArguments Without(Interpreter* run, const CallArguments& arguments, size_t count) {
  run->ChargeItems(arguments.positional.size() + 4 * arguments.named.size());
  CallArguments rest;
  rest.positional.assign(
      arguments.positional.begin() + std::min(count, arguments.positional.size()),
      arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

// map(attribute="x", default=y) and map("filter", ...).
Value MapFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  std::vector<Value> items = run->Elements(input);
  const bool by_filter = !arguments.positional.empty();
  const Value attribute = arguments.Get(1, "attribute", Value(None{}));
  const Value fallback = arguments.Get(size_t(-1), "default", Value(Undefined{"an attribute"}));
  if (!by_filter && attribute.is_none()) Fail("map needs a filter or attribute=");
  const std::string name =
      by_filter ? NeedText(arguments.positional[0], "map's filter").bytes() : "";
  const CallArguments rest = Without(run, arguments, 1);
  for (Value& item : items) {
    run->ChargeVisits(1);
    item = by_filter ? run->Filter(name, item, rest) : AttributePath(run, item, attribute);
    if (!by_filter && item.is_undefined()) item = fallback;
  }
  return run->MakeList(std::move(items));
}

// select, reject (of the value) and selectattr, rejectattr (of its attribute), by a test or by
// truth.
template <bool keeps, bool by_attribute>
Value SelectFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  constexpr size_t kFirst = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty())
    Fail("selectattr and rejectattr need an attribute");
  const bool has_test = arguments.positional.size() > kFirst;
  const std::string test =
      has_test ? NeedText(arguments.positional[kFirst], "the test").bytes() : "";
  const CallArguments rest = Without(run, arguments, kFirst + 1);
  std::vector<Value> kept;
  for (const Value& item : run->Elements(input)) {
    run->ChargeVisits(1);
    const Value tested = by_attribute ? AttributePath(run, item, arguments.positional[0]) : item;
    if ((has_test ? run->Test(test, tested, rest) : Truthy(tested)) == keeps) kept.push_back(item);
  }
  return run->MakeList(std::move(kept));
}

Value IntFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value fallback = arguments.Get(0, "default", Value(int64_t{0}));
  const auto from_double = [&](double number) {
    return std::abs(number) < 9e18 ? Value(static_cast<int64_t>(number)) : fallback;
  };
  if (input.is_integral()) return Value(input.as_int());
  if (input.is_double()) return from_double(input.as_double());
  if (!input.is_text()) return fallback;
  const int64_t base = NeedInt(arguments.Get(1, "base", Value(int64_t{10})), "int's base");
  if (base < 2 || base > 36) Fail("int's base is {}; it must be 2 to 36", base);
  run->ChargeWork(input.text().size());
  const std::string text = Strip(input.text(), "", true, true).bytes();
  const char *begin = text.data() + (text.starts_with("+") ? 1 : 0),
             *end = text.data() + text.size();
  int64_t whole = 0;
  const auto as_int = std::from_chars(begin, end, whole, static_cast<int>(base));
  if (as_int.ec == std::errc() && as_int.ptr == end) return Value(whole);
  double number = 0;
  const auto as_double = std::from_chars(begin, end, number);
  return as_double.ec == std::errc() && as_double.ptr == end ? from_double(number) : fallback;
}

Value FloatFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value fallback = arguments.Get(0, "default", Value(0.0));
  if (input.is_number()) return Value(input.as_double());
  if (!input.is_text()) return fallback;
  run->ChargeWork(input.text().size());
  const std::string text = Strip(input.text(), "", true, true).bytes();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? Value(number) : fallback;
}

Value AbsFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_double()) return Value(std::abs(input.as_double()));
  const int64_t number = NeedInt(input, "abs's number");
  return number < 0 ? run->Arithmetic("-", Value(int64_t{0}), input) : Value(number);
}

Value RoundFilter(Interpreter*, const Value& input, const CallArguments& arguments) {
  if (!input.is_number()) Fail("round needs a number (found {})", input.TypeName());
  const int64_t precision =
      NeedInt(arguments.Get(0, "precision", Value(int64_t{0})), "round's precision");
  const std::string method =
      NeedText(arguments.Get(1, "method", Value(Text("common"))), "round's method").bytes();
  const double scale =
      std::pow(10.0, static_cast<double>(std::clamp<int64_t>(precision, -300, 300)));
  const double scaled = input.as_double() * scale;
  if (method == "ceil") return Value(std::ceil(scaled) / scale);
  if (method == "floor") return Value(std::floor(scaled) / scale);
  return Value(std::nearbyint(scaled) / scale);  // halves to even, as Python rounds
}

const std::map<std::string_view, Handler>& Handlers() {
  static const auto* const kHandlers = new std::map<std::string_view, Handler>{
      {"upper", CaseFilter<LetterCase::kUpper>},
      {"lower", CaseFilter<LetterCase::kLower>},
      {"title", CaseFilter<LetterCase::kTitleWords>},
      {"capitalize", CaseFilter<LetterCase::kCapitalize>},
      {"trim", TrimFilter},
      {"string", StringFilter},
      {"safe", SameFilter},
      {"escape", EscapeFilter},
      {"e", EscapeFilter},
      {"replace", ReplaceFilter},
      {"indent", IndentFilter},
      {"tojson", ToJsonFilter},
      {"length", LengthFilter},
      {"count", LengthFilter},
      {"default", DefaultFilter},
      {"d", DefaultFilter},
      {"first", FirstFilter},
      {"last", LastFilter},
      {"list", ListFilter},
      {"items", ItemsFilter},
      {"reverse", ReverseFilter},
      {"sort", SortFilter},
      {"dictsort", DictSortFilter},
      {"unique", UniqueFilter},
      {"min", ExtremeFilter<true>},
      {"max", ExtremeFilter<false>},
      {"sum", SumFilter},
      {"join", JoinFilter},
      {"attr", AttrFilter},
      {"map", MapFilter},
      {"select", SelectFilter<true, false>},
      {"reject", SelectFilter<false, false>},
      {"selectattr", SelectFilter<true, true>},
      {"rejectattr", SelectFilter<false, true>},
      {"int", IntFilter},
      {"float", FloatFilter},
      {"abs", AbsFilter},
      {"round", RoundFilter},
  };
  return *kHandlers;
}

}  // namespace

Value ApplyFilter(Interpreter* run, std::string_view name, const Value& input,
                  const CallArguments& arguments) {
  const auto handler = Handlers().find(name);
  if (handler == Handlers().end()) Fail("the filter \"{}\" is not supported", Visible(name));
  return handler->second(run, input, arguments);
}

}  // namespace minisgl::jinja
