// Filters of lists, dicts and other iterable values.
#include <algorithm>
#include <charconv>
#include <map>

#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

Value FirstFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_sequence() && !input.list().items.empty()) return input.list().items.front();
  std::vector<Value> items = run->Elements(input);
  return items.empty() ? Value(Undefined{"the first of nothing"}) : items.front();
}

Value LastFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_sequence() && !input.list().items.empty()) return input.list().items.back();
  if (input.is_generator()) Fail("a generator has no last element");
  std::vector<Value> items = run->Elements(input);
  return items.empty() ? Value(Undefined{"the last of nothing"}) : items.back();
}

Value ListFilter(Interpreter* run, const Value& input, const CallArguments&) {
  return run->MakeList(run->Elements(input));
}

Value ItemsFilter(Interpreter* run, const Value& input, const CallArguments&) {
  if (input.is_undefined()) return run->MakeGenerator({});
  if (!input.is_dict()) Fail("items needs a dict (found {})", input.TypeName());
  return run->MakeGenerator(DictItems(run, input.dict()));
}

Value ReverseFilter(Interpreter* run, const Value& input, const CallArguments&) {
  std::vector<Value> items = run->Elements(input);
  std::reverse(items.begin(), items.end());
  return input.is_text() ? run->MakeText(Join(run, items, Text()))
                         : run->MakeGenerator(std::move(items));
}

// Returns the member of `value` at a path such as "a.b.0", the argument attribute= of filters.
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

// Returns the key for sort, unique, min and max: the attribute, in lower case unless
// `case_sensitive`.
Value SortKey(Interpreter* run, const Value& item, const Value& attribute, bool case_sensitive) {
  const auto folded = [&](Value key) {
    return key.is_text() && !case_sensitive
               ? run->MakeText(ChangeCase(run, key.text(), LetterCase::kLower))
               : key;
  };
  if (attribute.is_none()) return folded(item);
  if (!attribute.is_text() || attribute.text().bytes().find(',') == std::string::npos)
    return folded(AttributePath(run, item, attribute));
  // Several attributes: a list of keys, compared in order.
  std::vector<Value> keys;
  const std::string& names = attribute.text().bytes();
  for (size_t begin = 0; begin <= names.size();) {
    run->ChargeVisits(1);
    const size_t end = std::min(names.find(',', begin), names.size());
    keys.push_back(folded(AttributePath(run, item, Value(Text(names.substr(begin, end - begin))))));
    begin = end + 1;
  }
  return run->MakeList(std::move(keys));
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

// Sorts by key and charges each comparison. Comparing two keys that have no order fails.
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
    if (key.is_dict() || (key.is_list() && !key.is_tuple()))
      Fail("unique cannot compare values of type {}", key.TypeName());
    run->ChargeVisits(static_cast<int64_t>(keys.size() / 16));
    const bool is_known = std::any_of(keys.begin(), keys.end(), [&, k = &key](const Value& other) {
      run->ChargeComparison(*k, other);
      return Equal(*k, other);
    });
    if (is_known) continue;
    keys.push_back(key);
    kept.push_back(item);
  }
  return run->MakeGenerator(std::move(kept));
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
  // Unlike a dot, this filter never looks up a member.
  if (input.is_dict() && !HasMethod(input, name)) return Value(Undefined{name});
  return run->Attribute(input, name, /*item_first=*/false);
}

// Returns `arguments` without the first `count`.
CallArguments Without(Interpreter* run, const CallArguments& arguments, size_t count) {
  run->ChargeItems(arguments.positional.size() + 4 * arguments.named.size());
  CallArguments rest;
  rest.positional.assign(
      arguments.positional.begin() + std::min(count, arguments.positional.size()),
      arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

// map and select treat a false value, such as None, as empty.
std::vector<Value> ElementsOrNone(Interpreter* run, const Value& input) {
  return Truthy(input) ? run->Elements(input) : std::vector<Value>();
}

// map(attribute="x", default=y) and map("filter", ...).
Value MapFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  std::vector<Value> items = ElementsOrNone(run, input);
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
  return run->MakeGenerator(std::move(items));
}

// select and reject (by the value), selectattr and rejectattr (by an attribute); the condition is a
// test or truth.
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
  for (const Value& item : ElementsOrNone(run, input)) {
    run->ChargeVisits(1);
    const Value tested = by_attribute ? AttributePath(run, item, arguments.positional[0]) : item;
    if ((has_test ? run->Test(test, tested, rest) : Truthy(tested)) == keeps) kept.push_back(item);
  }
  return run->MakeGenerator(std::move(kept));
}

// Groups items into rows of `linecount`; the last row is padded if `fill_with` is given.
Value BatchFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const int64_t count = NeedInt(arguments.Get(0, "linecount", Value()), "batch's count");
  const Value filler = arguments.Get(1, "fill_with", Value(None{}));
  if (count < 1 || count > kRangeMax)
    Fail("batch's count is {}; it must be 1 to {}", count, kRangeMax);
  std::vector<Value> rows, row;
  for (const Value& item : run->Elements(input)) {
    if (static_cast<int64_t>(row.size()) == count) {
      rows.push_back(run->MakeList(std::move(row)));
      row.clear();
    }
    row.push_back(item);
  }
  if (!row.empty()) {
    if (!filler.is_none()) row.resize(static_cast<size_t>(count), filler);
    rows.push_back(run->MakeList(std::move(row)));
  }
  return run->MakeGenerator(std::move(rows));
}

// Divides items into `slices` columns; the first columns are longer by one if it does not divide
// evenly.
Value SliceFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const int64_t slices = NeedInt(arguments.Get(0, "slices", Value()), "slice's count");
  const Value filler = arguments.Get(1, "fill_with", Value(None{}));
  if (slices < 1 || slices > kRangeMax)
    Fail("slice's count is {}; it must be 1 to {}", slices, kRangeMax);
  const std::vector<Value> items = run->Elements(input);
  const auto count = static_cast<size_t>(slices);
  const size_t length = items.size() / count, longer = items.size() % count;
  std::vector<Value> columns;
  auto at = items.begin();
  for (size_t i = 0; i < count; ++i) {
    const size_t size = length + (i < longer ? 1 : 0);
    std::vector<Value> column(at, at + static_cast<std::ptrdiff_t>(size));
    at += static_cast<std::ptrdiff_t>(size);
    if (!filler.is_none() && i >= longer) column.push_back(filler);
    columns.push_back(run->MakeList(std::move(column)));
  }
  return run->MakeGenerator(std::move(columns));
}

// Returns (key, items) for each value of an attribute, sorted by key.
Value GroupByFilter(Interpreter* run, const Value& input, const CallArguments& arguments) {
  const Value* const attribute = arguments.Find(0, "attribute");
  if (attribute == nullptr) Fail("groupby needs an attribute");
  const Value fallback = arguments.Get(1, "default", Value(None{}));
  const bool case_sensitive = Truthy(arguments.Get(2, "case_sensitive", Value(false)));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : run->Elements(input)) {
    run->ChargeVisits(1);
    Value key = SortKey(run, item, *attribute, case_sensitive);
    if (key.is_undefined() && !fallback.is_none()) key = fallback;
    keyed.emplace_back(std::move(key), item);
  }
  SortKeyed(run, &keyed, /*reverse=*/false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> items;
    size_t end = begin;
    for (; end < keyed.size(); ++end) {
      run->ChargeComparison(keyed[begin].first, keyed[end].first);
      if (!Equal(keyed[begin].first, keyed[end].first)) break;
      items.push_back(keyed[end].second);
    }
    // The key of a group is the value of its first item, in its original case.
    Value name = AttributePath(run, keyed[begin].second, *attribute);
    if (name.is_undefined() && !fallback.is_none()) name = fallback;
    groups.push_back(
        run->MakeList({std::move(name), run->MakeList(std::move(items))}, ListKind::kGroup));
    begin = end;
  }
  return run->MakeList(std::move(groups));
}

}  // namespace

FilterHandler SequenceFilter(std::string_view name) {
  static const auto* const kHandlers = new std::map<std::string_view, FilterHandler>{
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
      {"batch", BatchFilter},
      {"slice", SliceFilter},
      {"groupby", GroupByFilter},
  };
  const auto found = kHandlers->find(name);
  return found != kHandlers->end() ? found->second : nullptr;
}

}  // namespace minisgl::text::jinja
