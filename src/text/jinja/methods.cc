// Methods of strings, dicts and lists that change nothing; those that would are not there, as in
// the reference's sandbox.
#include <utf8proc.h>

#include <algorithm>

#include "minisgl/base/utf8.h"
#include "text/jinja/error.h"
#include "text/jinja/interpreter.h"

namespace minisgl::jinja {
namespace {

constexpr std::string_view kTextMethods[] = {
    "strip",    "lstrip",  "rstrip",  "split",        "rsplit",       "splitlines", "startswith",
    "endswith", "upper",   "lower",   "title",        "capitalize",   "replace",    "join",
    "find",     "rfind",   "index",   "count",        "isdigit",      "isalpha",    "isalnum",
    "isspace",  "isupper", "islower", "removeprefix", "removesuffix", "zfill",      "partition"};
constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get"};
constexpr std::string_view kListMethods[] = {"index", "count"};

template <size_t N>
bool IsOneOf(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool IsLetter(char32_t c) {
  const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsNumeral(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool IsCased(char32_t c, utf8proc_category_t wanted) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == wanted;
}

// Whether `text` has a character and each passes.
template <typename Predicate>
bool EachCharacter(std::string_view text, Predicate predicate) {
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    if (!predicate(FirstCodePoint(text.substr(at), &length))) return false;
  }
  return !text.empty();
}

// isupper and islower: a cased letter, and none of the other case.
bool IsAllCase(std::string_view text, utf8proc_category_t wanted, utf8proc_category_t other) {
  bool found = false;
  const bool has_no_other = EachCharacter(text, [&](char32_t c) {
    found = found || IsCased(c, wanted);
    return !IsCased(c, other);
  });
  return found && has_no_other;
}

// What one more part of a split costs while the parts are gathered.
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
  if (separator.is_none()) return run->MakeList(SplitOnSpace(run, self, count_max));
  const std::string& wanted = NeedText(separator, "split's separator").bytes();
  return run->MakeList(SplitOnText(run, self, wanted, count_max, from_right));
}

std::vector<Value> SplitLines(Interpreter* run, const Text& text) {
  std::vector<Value> lines;
  const std::string_view bytes = text.bytes();
  for (size_t begin = 0; begin < bytes.size();) {
    run->ChargeItems(kItemsOfAPart);
    const size_t end = std::min(bytes.find_first_of("\r\n", begin), bytes.size());
    lines.push_back(Value(text.Substr(begin, end)));
    begin = end + (bytes.substr(end).starts_with("\r\n") ? 2 : 1);
  }
  return lines;
}

// REQUIRES that the affix's weight is charged.
bool AffixMatches(const Text& self, const Value& affix, bool at_start) {
  if (affix.is_list()) {
    const auto& items = affix.list().items;
    return std::any_of(items.begin(), items.end(),
                       [&](const Value& item) { return AffixMatches(self, item, at_start); });
  }
  const std::string& bytes = NeedText(affix, "the affix").bytes();
  return at_start ? self.bytes().starts_with(bytes) : self.bytes().ends_with(bytes);
}

// The character index of `needle`, or -1.
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

Value Partition(Interpreter* run, const Text& self, const Text& separator) {
  if (separator.empty()) Fail("partition needs a separator that is not empty");
  const size_t at = Find(self.bytes(), separator.bytes());
  if (at == std::string::npos)
    return run->MakeList({Value(self), Value(Text()), Value(Text())}, true);
  return run->MakeList({Value(self.Substr(0, at)), Value(separator),
                        Value(self.Substr(at + separator.size(), self.size()))},
                       true);
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

// Methods that answer a question about the characters; nullopt for any other name.
std::optional<bool> AskText(std::string_view text, std::string_view name) {
  if (name == "isdigit") return EachCharacter(text, IsNumeral);
  if (name == "isalpha") return EachCharacter(text, IsLetter);
  if (name == "isalnum")
    return EachCharacter(text, [](char32_t c) { return IsLetter(c) || IsNumeral(c); });
  if (name == "isspace") return EachCharacter(text, IsSpace);
  if (name == "isupper") return IsAllCase(text, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LL);
  if (name == "islower") return IsAllCase(text, UTF8PROC_CATEGORY_LL, UTF8PROC_CATEGORY_LU);
  return std::nullopt;
}

}  // namespace

bool HasMethod(const Value& self, std::string_view name) {
  if (self.is_text()) return IsOneOf(kTextMethods, name);
  if (self.is_dict()) return IsOneOf(kDictMethods, name);
  if (self.is_list()) return IsOneOf(kListMethods, name);
  return self.is_loop() && name == "cycle";
}

Value CallTextMethod(Interpreter* run, const Text& self, std::string_view name,
                     const CallArguments& arguments) {
  run->ChargeWork(self.size());
  const auto text_at = [&](size_t index, std::string_view key) -> const Text& {
    const Value* value = arguments.Find(index, key);
    if (value == nullptr) Fail("{} needs more arguments", name);
    return NeedText(*value, key);
  };
  if (name == "strip" || name == "lstrip" || name == "rstrip")
    return StripMethod(run, self, name, arguments);
  if (name == "split" || name == "rsplit") return Split(run, self, arguments, name == "rsplit");
  if (name == "splitlines") return run->MakeList(SplitLines(run, self));
  if (name == "startswith" || name == "endswith") {
    const Value affix = arguments.Get(0, "prefix", Value());
    run->ChargeWork(affix.Weight());
    return Value(AffixMatches(self, affix, name == "startswith"));
  }
  if (name == "upper") return run->MakeText(ChangeCase(self, LetterCase::kUpper));
  if (name == "lower") return run->MakeText(ChangeCase(self, LetterCase::kLower));
  if (name == "title") return run->MakeText(ChangeCase(self, LetterCase::kTitle));
  if (name == "capitalize") return run->MakeText(ChangeCase(self, LetterCase::kCapitalize));
  if (name == "replace") {
    const int64_t count = NeedInt(arguments.Get(2, "count", Value(int64_t{-1})), "replace's count");
    return run->MakeText(Replace(run, self, text_at(0, "old"), text_at(1, "new"), count));
  }
  if (name == "join")
    return run->MakeText(Join(run, run->Elements(arguments.Get(0, "iterable", Value())), self));
  if (name == "find" || name == "rfind" || name == "index") {
    const int64_t found = FindText(self, text_at(0, "sub").bytes(), name == "rfind");
    if (found < 0 && name == "index") Fail("the substring is not found");
    return Value(found);
  }
  if (name == "count") return Value(CountText(self.bytes(), text_at(0, "sub").bytes()));
  if (name == "removeprefix") {
    const bool matches = self.bytes().starts_with(text_at(0, "prefix").bytes());
    return run->MakeText(self.Substr(matches ? text_at(0, "prefix").size() : 0, self.size()));
  }
  if (name == "removesuffix") {
    const bool matches = self.bytes().ends_with(text_at(0, "suffix").bytes());
    return run->MakeText(self.Substr(0, self.size() - (matches ? text_at(0, "suffix").size() : 0)));
  }
  if (name == "partition") return Partition(run, self, text_at(0, "sep"));
  if (name == "zfill")
    return ZeroFill(run, self, NeedInt(arguments.Get(0, "width", Value()), "width"));
  return Value(AskText(self.bytes(), name).value_or(false));
}

std::vector<Value> DictItems(Interpreter* run, const Dict& dict) {
  run->ChargeItems(3 * dict.members.size());
  run->ChargeKeys(dict);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.members)
    items.push_back(Value::FromList({Value(key), value}, true));
  return items;
}

Value CallDictMethod(Interpreter* run, const Value& self, std::string_view name,
                     const CallArguments& arguments) {
  const Dict& dict = self.dict();
  if (name == "items") return run->MakeList(DictItems(run, dict));
  if (name == "get") {
    const Value* key = arguments.Find(0, "key");
    if (key == nullptr) Fail("get needs a key");
    if (key->is_text()) run->ChargeSearch(dict.members.size(), key->text().bytes());
    const Value* value = key->is_text() ? dict.Find(key->text().bytes()) : nullptr;
    return value != nullptr ? *value : arguments.Get(1, "default", Value(None{}));
  }
  run->ChargeItems(dict.members.size());
  if (name == "keys") run->ChargeKeys(dict);
  std::vector<Value> items;
  for (const auto& [key, value] : dict.members)
    items.push_back(name == "keys" ? Value(key) : value);
  return run->MakeList(std::move(items));
}

Value CallListMethod(Interpreter* run, const List& self, std::string_view name,
                     const CallArguments& arguments) {
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
    if (found == std::string_view::npos || out.size() > kTextBytesMax) break;
    out.AppendRange(text, at, found);
    out.Append(to);
    at = found + from.size();
    if (from.empty()) {  // before each character and at the end
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

Text ChangeCase(const Text& text, LetterCase letter_case) {
  Text out;
  const std::string_view bytes = text.bytes();
  size_t at = 0;
  bool begins_word = true;
  for (const Text::Run& run : text.runs()) {
    std::string changed;
    while (at < run.end) {
      size_t length = 0;
      const char32_t c = FirstCodePoint(bytes.substr(at, run.end - at), &length);
      const bool is_whole = Utf8CharLength(bytes.substr(at, length)) == length;
      const auto code = static_cast<utf8proc_int32_t>(c);
      const bool upper =
          letter_case == LetterCase::kUpper || (letter_case != LetterCase::kLower && begins_word);
      if (is_whole && upper && c == 0xDF) {
        changed += letter_case == LetterCase::kUpper ? "SS" : "Ss";
      } else if (is_whole) {
        AppendUtf8(static_cast<char32_t>(upper ? utf8proc_toupper(code) : utf8proc_tolower(code)),
                   &changed);
      } else {
        changed += bytes.substr(at, length);
      }
      at += length;
      begins_word = (letter_case == LetterCase::kTitle && !IsLetter(c)) ||
                    (letter_case == LetterCase::kTitleWords &&
                     (IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<'));
    }
    out.Append(changed, run.trusted);
  }
  return out;
}

Text Join(Interpreter* run, const std::vector<Value>& items, const Text& separator) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.Append(separator);
    out.Append(run->StrOf(items[i]));
    if (out.size() > kTextBytesMax) break;
  }
  return out;
}

}  // namespace minisgl::jinja
