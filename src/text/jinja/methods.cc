// The methods of strings, dicts and lists. Methods that would modify their object do not exist, as
// in the sandbox of the reference.
#include <algorithm>
#include <optional>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::text::jinja {
namespace {

constexpr std::string_view kTextMethods[] = {
    "strip",        "lstrip",       "rstrip",  "split",      "rsplit",     "splitlines",
    "startswith",   "endswith",     "upper",   "lower",      "title",      "capitalize",
    "replace",      "join",         "find",    "rfind",      "index",      "count",
    "isdigit",      "isalpha",      "isalnum", "isspace",    "isupper",    "islower",
    "removeprefix", "removesuffix", "zfill",   "partition",  "rpartition", "rindex",
    "isdecimal",    "isnumeric",    "isascii", "swapcase",   "casefold",   "center",
    "ljust",        "rjust",        "format",  "expandtabs", "istitle",    "isidentifier",
    "isprintable",  "format_map"};
constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};

template <size_t N>
bool IsOneOf(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// True if `text` is not empty and every character satisfies `predicate`.
template <typename Predicate>
bool EachCharacter(std::string_view text, Predicate predicate) {
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    if (!predicate(FirstCodePoint(text.substr(at), &length))) return false;
  }
  return !text.empty();
}

// The charge for each part of a split, in items.
constexpr size_t kItemsOfAPart = 2;

std::vector<Value> SplitOnSpace(Interpreter* run, const Text& text, int64_t count_max) {
  std::vector<Value> parts;
  const std::string_view bytes = text.bytes();
  size_t at = 0, length = 0;
  const auto skip = [&](bool spaces) {
    while (at < bytes.size() && IsSpace(FirstCodePoint(bytes.substr(at), &length)) == spaces)
      at += length;
  };
  for (skip(true); at < bytes.size(); skip(true)) {
    run->ChargeItems(kItemsOfAPart);
    const size_t begin = at;
    if (count_max >= 0 && static_cast<int64_t>(parts.size()) == count_max) {
      parts.push_back(Value(Strip(text.Substr(begin, bytes.size()), "", false, true)));
      break;
    }
    skip(false);
    parts.push_back(Value(text.Substr(begin, at)));
  }
  return parts;
}

// Splits off the last `count_max` words; the rest is the first element.
std::vector<Value> SplitOnSpaceFromRight(Interpreter* run, const Text& text, int64_t count_max) {
  std::vector<Value> parts;
  const std::string_view bytes = text.bytes();
  const auto character_before = [&](size_t end) {
    size_t begin = end - 1;
    while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(bytes[begin]) & 0xC0) == 0x80)
      --begin;
    return begin;
  };
  size_t at = bytes.size(), length = 0;
  const auto skip = [&](bool spaces) {
    while (at > 0) {
      const size_t begin = character_before(at);
      if (IsSpace(FirstCodePoint(bytes.substr(begin), &length)) != spaces) break;
      at = begin;
    }
  };
  for (skip(true); at > 0; skip(true)) {
    run->ChargeItems(kItemsOfAPart);
    const size_t end = at;
    if (static_cast<int64_t>(parts.size()) == count_max) {
      parts.push_back(Value(Strip(text.Substr(0, end), "", true, false)));
      break;
    }
    skip(false);
    parts.push_back(Value(text.Substr(at, end)));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> SplitOnText(Interpreter* run, const Text& text, std::string_view separator,
                               int64_t count_max, bool from_right) {
  if (separator.empty()) Fail("split needs a separator that is not empty");
  const std::string bytes = from_right ? Reversed(text.bytes()) : text.bytes();
  const std::string wanted = from_right ? Reversed(separator) : std::string(separator);
  std::vector<Value> parts;
  const auto add = [&](size_t begin, size_t end) {
    run->ChargeItems(kItemsOfAPart);
    const size_t size = bytes.size();
    parts.push_back(
        Value(from_right ? text.Substr(size - end, size - begin) : text.Substr(begin, end)));
  };
  size_t begin = 0;
  while (count_max < 0 || static_cast<int64_t>(parts.size()) < count_max) {
    const size_t found = Find(bytes, wanted, begin);
    if (found == std::string::npos) break;
    add(begin, found);
    begin = found + wanted.size();
  }
  add(begin, bytes.size());
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value Split(Interpreter* run, const Text& self, const CallArguments& arguments, bool from_right) {
  run->ChargeWork(self.footprint());
  const Value separator = arguments.Get(0, "sep", Value(None{}));
  const int64_t count_max = NeedInt(arguments.Get(1, "maxsplit", Value(int64_t{-1})), "maxsplit");
  if (separator.is_none()) {
    return run->MakeList(from_right && count_max >= 0 ? SplitOnSpaceFromRight(run, self, count_max)
                                                      : SplitOnSpace(run, self, count_max));
  }
  const std::string& wanted = NeedText(separator, "split's separator").bytes();
  return run->MakeList(SplitOnText(run, self, wanted, count_max, from_right));
}

// REQUIRES: the weight of the affix was charged.
bool AffixMatches(const Text& self, const Value& affix, bool at_start) {
  if (affix.is_list()) {
    const auto& items = affix.list().items;
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return AffixMatches(self, item, at_start); });
  }
  const std::string& bytes = NeedText(affix, "the affix").bytes();
  return at_start ? self.bytes().starts_with(bytes) : self.bytes().ends_with(bytes);
}

// Returns the character index of `needle`, or -1.
int64_t FindText(const Text& self, std::string_view needle, bool from_right) {
  const std::string_view bytes = self.bytes();
  size_t found = from_right ? Find(Reversed(bytes), Reversed(needle)) : Find(bytes, needle);
  if (found == std::string::npos) return -1;
  if (from_right) found = bytes.size() - found - needle.size();
  return static_cast<int64_t>(CountCharacters(bytes.substr(0, found)));
}

int64_t CountText(std::string_view text, std::string_view needle) {
  if (needle.empty()) return static_cast<int64_t>(CountCharacters(text)) + 1;
  int64_t count = 0;
  for (size_t at = Find(text, needle); at != std::string_view::npos;
       at = Find(text, needle, at + needle.size())) {
    ++count;
  }
  return count;
}

// Returns the text before the separator, the separator, and the text after. If it is not found, the
// whole text is on one side.
Value Partition(Interpreter* run, const Text& self, const Text& separator, bool from_right) {
  if (separator.empty()) Fail("partition needs a separator that is not empty");
  size_t at = 0;
  if (from_right) {
    at = Find(Reversed(self.bytes()), Reversed(separator.bytes()));
    if (at != std::string::npos) at = self.size() - at - separator.size();
  } else {
    at = Find(self.bytes(), separator.bytes());
  }
  std::vector<Value> parts(3, Value(Text()));
  if (at == std::string::npos) {
    parts[from_right ? 2 : 0] = Value(self);
  } else {
    parts = {Value(self.Substr(0, at)), Value(separator),
             Value(self.Substr(at + separator.size(), self.size()))};
  }
  return run->MakeList(std::move(parts), ListKind::kTuple);
}

Value StripMethod(Interpreter* run, const Text& self, std::string_view name,
                  const CallArguments& arguments) {
  const Value chars = arguments.Get(0, "chars", Value(None{}));
  const std::string set = chars.is_none() ? "" : NeedText(chars, "the characters to strip").bytes();
  run->ChargeWork(self.size() + uint64_t{16} * set.size());
  if (!chars.is_none() && set.empty()) return Value(self);
  return run->MakeText(Strip(self, set, name != "rstrip", name != "lstrip"));
}

Value ZeroFill(Interpreter* run, const Text& self, int64_t width) {
  const auto have = static_cast<int64_t>(CountCharacters(self.bytes()));
  if (width <= have) return Value(self);
  run->ChargeText(static_cast<uint64_t>(width));
  const bool has_sign = self.bytes().starts_with("-") || self.bytes().starts_with("+");
  Text out = self.Substr(0, has_sign ? 1 : 0);
  out.Append(std::string(static_cast<size_t>(width - have), '0'));
  out.AppendRange(self, has_sign ? 1 : 0, self.size());
  return Value(std::move(out));
}

// Python's str.istitle: every word begins with an upper case letter and goes on in lower case.
bool IsTitle(std::string_view text) {
  bool has_word = false, in_word = false;
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    FirstCodePoint(text.substr(at), &length);
    const std::string_view character = text.substr(at, length);
    const bool is_upper = IsAllUpper(character), is_lower = IsAllLower(character);
    if ((is_upper && in_word) || (is_lower && !in_word)) return false;
    in_word = is_upper || is_lower;
    has_word = has_word || in_word;
  }
  return has_word;
}

bool IsIdentifier(std::string_view text) {
  size_t length = 0;
  const auto begins = [](char32_t c) { return c == '_' || IsLetter(c); };
  return !text.empty() && begins(FirstCodePoint(text, &length)) &&
         EachCharacter(text, [&](char32_t c) { return begins(c) || IsNumeral(c); });
}

// Digits that are not decimal: superscripts, subscripts and numbers in circles, for example.
bool IsDigitOfAnyKind(char32_t c) {
  return IsNumeral(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
         (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) ||
         (c >= 0x2460 && c <= 0x2468) || (c >= 0x2474 && c <= 0x247C) ||
         (c >= 0x2488 && c <= 0x2490) || c == 0x24EA || (c >= 0x24F5 && c <= 0x24FD) ||
         c == 0x24FF || (c >= 0x2776 && c <= 0x277E) || (c >= 0x2780 && c <= 0x2788) ||
         (c >= 0x278A && c <= 0x2792);
}

// Calls a method that tests the characters, such as isdigit; nullopt if `name` is another method.
std::optional<bool> AskText(std::string_view text, std::string_view name) {
  if (name == "isdigit") return EachCharacter(text, IsDigitOfAnyKind);
  if (name == "isalpha") return EachCharacter(text, IsLetter);
  if (name == "isalnum")
    return EachCharacter(
        text, [](char32_t c) { return IsLetter(c) || IsNumeric(c) || IsDigitOfAnyKind(c); });
  if (name == "isspace") return EachCharacter(text, IsSpace);
  if (name == "isdecimal") return EachCharacter(text, IsNumeral);
  if (name == "isnumeric") return EachCharacter(text, IsNumeric);
  if (name == "istitle") return IsTitle(text);
  if (name == "isidentifier") return IsIdentifier(text);
  if (name == "isprintable") return text.empty() || EachCharacter(text, IsPrintable);
  if (name == "isascii")
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return static_cast<uint8_t>(c) < 128; });
  if (name == "isupper") return IsAllUpper(text);
  if (name == "islower") return IsAllLower(text);
  return std::nullopt;
}

// Returns the part [start, end) of `self` that find, count, startswith and similar methods search,
// with Python's meaning of the two; nullopt if it begins after the end.
std::optional<Text> Range(Interpreter* run, const Text& self, const CallArguments& arguments,
                          size_t* start) {
  const Value from = arguments.Get(1, "start", Value(None{}));
  const Value to = arguments.Get(2, "end", Value(None{}));
  *start = 0;
  if (from.is_none() && to.is_none()) return self;
  run->ChargeWork(uint64_t{16} * self.size());
  const std::vector<size_t> offsets = CharacterOffsets(self.bytes());
  const auto size = static_cast<int64_t>(offsets.size()) - 1;
  const auto place = [&](const Value& value, int64_t fallback) {
    const int64_t at = value.is_none() ? fallback : NeedInt(value, "an index");
    return at < 0 ? std::max(at, -size) + size : at;
  };
  const int64_t first = place(from, 0), last = std::min(place(to, size), size);
  if (first > size || last < first) return std::nullopt;
  *start = static_cast<size_t>(first);
  return self.Substr(offsets[*start], offsets[static_cast<size_t>(last)]);
}

Value Search(Interpreter* run, const Text& self, std::string_view name, const Value& wanted,
             const CallArguments& arguments) {
  size_t start = 0;
  const std::optional<Text> part = Range(run, self, arguments, &start);
  if (name == "startswith" || name == "endswith") {
    run->ChargeWork(wanted.Weight());
    return Value(part.has_value() && AffixMatches(*part, wanted, name == "startswith"));
  }
  const std::string& needle = NeedText(wanted, "what is looked for").bytes();
  if (name == "count") return Value(part.has_value() ? CountText(part->bytes(), needle) : 0);
  const int64_t found =
      part.has_value() ? FindText(*part, needle, name == "rfind" || name == "rindex") : -1;
  if (found < 0 && (name == "index" || name == "rindex")) Fail("the substring is not found");
  return Value(found < 0 ? found : found + static_cast<int64_t>(start));
}

// center, ljust and rjust.
Value Pad(Interpreter* run, const Text& self, std::string_view name,
          const CallArguments& arguments) {
  const int64_t width = NeedInt(arguments.Get(0, "width", Value()), "width");
  const Text fill = NeedText(arguments.Get(1, "fillchar", Value(Text(" "))), "the padding");
  if (CountCharacters(fill.bytes()) != 1) Fail("the padding must be one character");
  const auto have = static_cast<int64_t>(CountCharacters(self.bytes()));
  if (width <= have) return Value(self);
  if (static_cast<uint64_t>(width) > TextBytesMax()) run->ChargeText(static_cast<uint64_t>(width));
  const int64_t missing = width - have;
  // As in Python: an odd padding has its smaller half on the left, unless the width is odd too.
  const int64_t left = name == "ljust"   ? 0
                       : name == "rjust" ? missing
                                         : missing / 2 + (missing & width & 1);
  run->ChargeText(static_cast<uint64_t>(missing) * fill.size() + self.size());
  Text out;
  for (int64_t i = 0; i < left; ++i) out.Append(fill);
  out.Append(self);
  for (int64_t i = left; i < missing; ++i) out.Append(fill);
  return run->MakeText(std::move(out));
}

// Replaces tabs by spaces up to the next multiple of `size` characters in the line.
Value ExpandTabs(Interpreter* run, const Text& self, int64_t size) {
  if (size > 1024) Fail("expandtabs' size is {}; at most 1024 are supported", size);
  run->ChargeWork(uint64_t{16} * self.size());
  Text out;
  int64_t column = 0;
  for (size_t at = 0, length = 0; at < self.size() && out.size() <= TextBytesMax(); at += length) {
    const char32_t c = FirstCodePoint(std::string_view(self.bytes()).substr(at), &length);
    if (c == '\t') {
      const int64_t count = size > 0 ? size - column % size : 0;
      out.Append(std::string(static_cast<size_t>(count), ' '), self.TrustedAt(at));
      column += count;
    } else {
      out.AppendRange(self, at, at + length);
      column = c == '\n' || c == '\r' ? 0 : column + 1;
    }
  }
  return run->MakeText(std::move(out));
}

std::optional<LetterCase> LetterCaseOf(std::string_view name) {
  if (name == "upper") return LetterCase::kUpper;
  if (name == "lower") return LetterCase::kLower;
  if (name == "casefold") return LetterCase::kFold;
  if (name == "title") return LetterCase::kTitle;
  if (name == "capitalize") return LetterCase::kCapitalize;
  if (name == "swapcase") return LetterCase::kSwap;
  return std::nullopt;
}

// The methods of strings that are not escaped HTML.
Value CallPlainMethod(Interpreter* run, const Text& self, std::string_view name,
                      const CallArguments& arguments) {
  const auto value_at = [&](size_t index, std::string_view key) -> const Value& {
    const Value* value = arguments.Find(index, key);
    if (value == nullptr) Fail("{} needs more arguments", name);
    return *value;
  };
  const auto text_at = [&](size_t index, std::string_view key) -> const Text& {
    return NeedText(value_at(index, key), key);
  };
  if (const auto letter_case = LetterCaseOf(name))
    return run->MakeText(ChangeCase(run, self, *letter_case));
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return StripMethod(run, self, name, arguments);
  if (name == "split" || name == "rsplit") return Split(run, self, arguments, name == "rsplit");
  if (name == "splitlines")
    return run->MakeList(SplitLines(run, self, Truthy(arguments.Get(0, "keepends", Value(false)))));
  static constexpr std::string_view kSearches[] = {"startswith", "endswith", "find", "rfind",
                                                   "index",      "rindex",   "count"};
  if (IsOneOf(kSearches, name)) return Search(run, self, name, value_at(0, "sub"), arguments);
  if (name == "center" || name == "ljust" || name == "rjust")
    return Pad(run, self, name, arguments);
  if (name == "replace") {
    const int64_t count = NeedInt(arguments.Get(2, "count", Value(int64_t{-1})), "replace's count");
    return run->MakeText(Replace(run, self, text_at(0, "old"), text_at(1, "new"), count));
  }
  if (name == "join") {
    const std::vector<Value> items = run->Elements(value_at(0, "iterable"));
    for (const Value& item : items) NeedText(item, "what is joined");
    return run->MakeText(Join(run, items, self));
  }
  if (name == "removeprefix") {
    const bool matches = self.bytes().starts_with(text_at(0, "prefix").bytes());
    return run->MakeText(self.Substr(matches ? text_at(0, "prefix").size() : 0, self.size()));
  }
  if (name == "removesuffix") {
    const bool matches = self.bytes().ends_with(text_at(0, "suffix").bytes());
    return run->MakeText(self.Substr(0, self.size() - (matches ? text_at(0, "suffix").size() : 0)));
  }
  if (name == "partition" || name == "rpartition")
    return Partition(run, self, text_at(0, "sep"), name == "rpartition");
  if (name == "zfill") return ZeroFill(run, self, NeedInt(value_at(0, "width"), "width"));
  if (name == "expandtabs")
    return ExpandTabs(run, self,
                      NeedInt(arguments.Get(0, "tabsize", Value(int64_t{8})), "tabsize"));
  if (name == "format") return FormatBraces(run, self, arguments);
  if (name == "format_map") {
    const Value& values = value_at(0, "mapping");
    if (!values.is_dict()) Fail("format_map needs a dict (found {})", values.TypeName());
    CallArguments named;
    for (const auto& [key, value] : values.dict().members) {
      run->ChargeVisits(1);
      if (key.is_text()) named.named.emplace_back(key.text().bytes(), value);
    }
    return FormatBraces(run, self, named);
  }
  run->ChargeWork(uint64_t{16} * self.size());
  return Value(AskText(self.bytes(), name).value_or(false));
}

Value AsMarkup(Interpreter* run, const Value& value) {
  if (value.is_text()) {
    Text text = value.text();
    text.SetMarkup(true);
    return run->MakeText(std::move(text));
  }
  if (!value.is_list()) return value;
  std::vector<Value> items;
  for (const Value& item : value.list().items) items.push_back(AsMarkup(run, item));
  return run->MakeList(std::move(items), value.list().kind);
}

}  // namespace

std::vector<Value> SplitLines(Interpreter* run, const Text& text, bool keeps_ends) {
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0, length = 0; at < bytes.size(); at += length) {
    const char32_t c = FirstCodePoint(bytes.substr(at), &length);
    const bool is_break = (c >= '\n' && c <= '\r') || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                          c == 0x2028 || c == 0x2029;
    if (!is_break) continue;
    if (bytes.substr(at).starts_with("\r\n")) length = 2;
    run->ChargeItems(kItemsOfAPart);
    lines.push_back(Value(text.Substr(begin, keeps_ends ? at + length : at)));
    begin = at + length;
  }
  if (begin < bytes.size()) lines.push_back(Value(text.Substr(begin, bytes.size())));
  return lines;
}

bool HasMethod(const Value& self, std::string_view name) {
  if (self.is_text()) return IsOneOf(kTextMethods, name);
  if (self.is_dict()) return IsOneOf(kDictMethods, name);
  if (self.is_sequence())
    return IsOneOf(kListMethods, name) && (name != "copy" || !self.is_tuple());
  if (self.is_namespace())
    return IsCycler(*self.name_space()) && (name == "next" || name == "reset");
  if (self.is_double()) return name == "is_integer";
  return self.is_loop() && (name == "cycle" || name == "changed");
}

Value CallTextMethod(Interpreter* run, const Text& self, std::string_view name,
                     const CallArguments& arguments) {
  run->ChargeWork(self.size());
  if (!self.is_markup()) return CallPlainMethod(run, self, name, arguments);
  // Escaped HTML: the arguments are escaped, and the result is escaped HTML too.
  static constexpr std::string_view kTakeText[] = {"join", "replace", "format"};
  if (!IsOneOf(kTakeText, name)) return AsMarkup(run, CallPlainMethod(run, self, name, arguments));
  CallArguments escaped;
  const auto escape = [run](const Value& value) {
    const bool is_plain = value.is_text() && !value.text().is_markup();
    return is_plain ? run->MakeText(EscapeHtml(value.text())) : value;
  };
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    const Value& value = arguments.positional[i];
    if (name == "join") {
      std::vector<Value> items = run->Elements(value);
      for (Value& item : items) item = escape(item);
      escaped.positional.push_back(run->MakeList(std::move(items)));
    } else {
      escaped.positional.push_back(name == "replace" && i == 0 ? value : escape(value));
    }
  }
  for (const auto& [key, value] : arguments.named) escaped.named.emplace_back(key, escape(value));
  return AsMarkup(run, CallPlainMethod(run, self, name, escaped));
}

std::vector<Value> DictItems(Interpreter* run, const Dict& dict) {
  run->ChargeItems(3 * dict.members.size());
  run->ChargeKeys(dict);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.members)
    items.push_back(Value::FromList({key, value}, ListKind::kTuple));
  return items;
}

Value CallDictMethod(Interpreter* run, const Value& self, std::string_view name,
                     const CallArguments& arguments) {
  const Dict& dict = self.dict();
  if (name == "items") return run->MakeList(DictItems(run, dict), ListKind::kItems);
  if (name == "copy") return self;
  if (name == "get") {
    const Value* key = arguments.Find(0, "key");
    if (key == nullptr) Fail("get needs a key");
    run->ChargeKeySearch(dict, *key);
    const Value* value = dict.Find(*key);
    return value != nullptr ? *value : arguments.Get(1, "default", Value(None{}));
  }
  run->ChargeItems(dict.members.size());
  if (name == "keys") run->ChargeKeys(dict);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.members) items.push_back(name == "keys" ? key : value);
  return run->MakeList(std::move(items), name == "keys" ? ListKind::kKeys : ListKind::kValues);
}

Value CallListMethod(Interpreter* run, const List& self, std::string_view name,
                     const CallArguments& arguments) {
  if (name == "copy") return run->MakeList(self.items);
  const Value wanted = arguments.Get(0, "value", Value());
  int64_t count = 0;
  for (size_t i = 0; i < self.items.size(); ++i) {
    run->ChargeComparison(self.items[i], wanted);
    if (!Equal(self.items[i], wanted)) continue;
    if (name == "index") return Value(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") Fail("the value is not in the list");
  return Value(count);
}

Text Replace(Interpreter* run, const Text& text, const Text& from, const Text& to,
             int64_t count_max) {
  const std::string_view bytes = text.bytes();
  run->ChargeWork(bytes.size());
  Text out;
  size_t at = 0;
  for (int64_t count = 0; count != count_max && at <= bytes.size(); ++count) {
    size_t found = at;
    if (!from.empty()) found = Find(bytes, from.bytes(), at);
    if (found == std::string_view::npos || out.size() > TextBytesMax()) break;
    out.AppendRange(text, at, found);
    out.Append(to);
    at = found + from.size();
    if (from.empty()) {  // inserts before each character and at the end
      if (at == bytes.size()) return out;
      size_t length = 0;
      FirstCodePoint(bytes.substr(at), &length);
      out.AppendRange(text, at, at + length);
      at += length;
    }
  }
  out.AppendRange(text, at, bytes.size());
  return out;
}

Text Join(Interpreter* run, const std::vector<Value>& items, const Text& separator) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(run->StrOf(items[i]));
    if (out.size() > TextBytesMax()) break;
  }
  return out;
}

}  // namespace minisgl::text::jinja
