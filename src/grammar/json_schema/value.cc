#include "grammar/json_schema/value.h"

#include <algorithm>
#include <set>

#include "minisgl/base/json.h"
#include "minisgl/base/json_scanner.h"
#include "minisgl/base/parse_number.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {
namespace {

// Builds a value from the scanner's tokens. Recursion is bounded by the scanner's depth limit.
class ValueReader {
 public:
  explicit ValueReader(std::string_view text) : scanner_(text, kJsonDepthMax) {}

  Status Read(SchemaValue* out) {
    MINISGL_RETURN_IF_ERROR(Advance());
    MINISGL_RETURN_IF_ERROR(ReadValue(out));
    return Advance();  // to the end
  }

 private:
  using Token = JsonScanner::Token;

  Status Advance() {
    if (scanner_.Next()) return Status();
    return scanner_.status();
  }

  Status ReadValue(SchemaValue* out) {
    const std::string_view raw = scanner_.raw();
    switch (scanner_.token()) {
      case Token::kNull:
        break;
      case Token::kBool:
        out->kind = raw == "true" ? SchemaValue::Kind::kTrue : SchemaValue::Kind::kFalse;
        break;
      case Token::kNumber:
        out->kind = SchemaValue::Kind::kNumber;
        out->text = raw;
        break;
      case Token::kString:
        out->kind = SchemaValue::Kind::kString;
        out->text = UnquoteJson(raw);
        break;
      case Token::kBeginArray:
        return ReadArray(out);
      default:
        return ReadObject(out);
    }
    return Status();
  }

  Status ReadArray(SchemaValue* out) {
    out->kind = SchemaValue::Kind::kArray;
    while (true) {
      MINISGL_RETURN_IF_ERROR(Advance());
      if (scanner_.token() == Token::kEndArray) break;
      MINISGL_RETURN_IF_ERROR(ReadValue(&out->items.emplace_back()));
    }
    return Status();
  }

  Status ReadObject(SchemaValue* out) {
    out->kind = SchemaValue::Kind::kObject;
    // Ordered, because hostile keys can all have one hash.
    std::set<std::string> keys;
    while (true) {
      MINISGL_RETURN_IF_ERROR(Advance());
      if (scanner_.token() == Token::kEndObject) break;
      SchemaValue::Member& member = out->members.emplace_back();
      member.first = UnquoteJson(scanner_.raw());
      if (!keys.insert(member.first).second)
        return BadInput("duplicate key \"{}\"", Visible(member.first));
      MINISGL_RETURN_IF_ERROR(Advance());
      MINISGL_RETURN_IF_ERROR(ReadValue(&member.second));
    }
    return Status();
  }

  JsonScanner scanner_;
};

// Sets the places below `value`, which does not move from now on.
void SetPlaces(SchemaValue* value) {
  for (size_t i = 0; i < value->items.size(); ++i) {
    value->items[i].parent = value;
    value->items[i].index = i;
    SetPlaces(&value->items[i]);
  }
  for (size_t i = 0; i < value->members.size(); ++i) {
    value->members[i].second.parent = value;
    value->members[i].second.index = i;
    SetPlaces(&value->members[i].second);
  }
}

}  // namespace

const SchemaValue* SchemaValue::Find(std::string_view key) const {
  for (const Member& member : members) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

std::string SchemaValue::Pointer() const {
  std::vector<std::string> tokens;
  for (const SchemaValue* at = this; at->parent != nullptr; at = at->parent) {
    if (at->parent->is_array()) {
      tokens.push_back(fmt::format("{}", at->index));
      continue;
    }
    std::string token;
    for (char c : at->parent->members[at->index].first) {
      if (c == '~') {
        token += "~0";
      } else if (c == '/') {
        token += "~1";
      } else {
        token += c;
      }
    }
    tokens.push_back(Visible(token));
  }
  std::string pointer = "#";
  for (size_t i = tokens.size(); i-- > 0;) pointer += "/" + tokens[i];
  return pointer;
}

Result<std::unique_ptr<const SchemaValue>> ParseSchemaValue(std::string_view text) {
  if (!IsValidUtf8(text)) return BadInput("the schema is not UTF-8");
  auto value = std::make_unique<SchemaValue>();
  MINISGL_RETURN_IF_ERROR(ValueReader(text).Read(value.get()));
  SetPlaces(value.get());
  return std::unique_ptr<const SchemaValue>(std::move(value));
}

bool ParseDecimal(std::string_view text, Decimal* out) {
  *out = Decimal();
  if (!text.empty() && text[0] == '-') {
    out->negative = true;
    text.remove_prefix(1);
  }
  int64_t exponent = 0;
  const size_t e = text.find_first_of("eE");
  if (e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    const bool minus = digits[0] == '-';
    if (digits[0] == '-' || digits[0] == '+') digits.remove_prefix(1);
    digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
    if (digits.size() > 6) {
      // Only zero has a value for such an exponent.
      exponent = minus ? -1000000 : 1000000;
    } else {
      for (char digit : digits) exponent = exponent * 10 + (digit - '0');
      if (minus) exponent = -exponent;
    }
    text = text.substr(0, e);
  }
  std::string digits(text);
  const size_t point = digits.find('.');
  if (point != std::string::npos) {
    exponent -= static_cast<int64_t>(digits.size() - point - 1);
    digits.erase(point, 1);
  }
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (digits.empty()) {
    *out = Decimal();
    return true;
  }
  const size_t last = digits.find_last_not_of('0');
  exponent += static_cast<int64_t>(digits.size() - last - 1);
  digits.resize(last + 1);
  out->digits = std::move(digits);
  out->exponent = exponent;
  return static_cast<int64_t>(out->digits.size()) <= kDecimalLimit &&
         std::abs(exponent) <= kDecimalLimit;
}

int CompareDecimals(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int sign = a.negative ? -1 : 1;
  if (a.is_zero() || b.is_zero()) {
    if (a.is_zero() && b.is_zero()) return 0;
    return a.is_zero() ? (b.negative ? 1 : -1) : sign;
  }
  const int64_t a_top = static_cast<int64_t>(a.digits.size()) + a.exponent;
  const int64_t b_top = static_cast<int64_t>(b.digits.size()) + b.exponent;
  if (a_top != b_top) return a_top < b_top ? -sign : sign;
  const int order = a.digits.compare(b.digits);
  return order == 0 ? 0 : (order < 0 ? -sign : sign);
}

bool DecimalToCount(const Decimal& number, uint64_t* count) {
  if (number.negative || !number.is_integer()) return false;
  if (static_cast<int64_t>(number.digits.size()) + number.exponent > 16) return false;
  *count = 0;
  for (char digit : number.digits) *count = *count * 10 + static_cast<uint64_t>(digit - '0');
  for (int64_t i = 0; !number.is_zero() && i < number.exponent; ++i) *count *= 10;
  return *count <= uint64_t{1} << 53;
}

bool SameValue(const SchemaValue& a, const SchemaValue& b) {
  if (a.kind != b.kind) return false;
  if (a.is_string()) return a.text == b.text;
  if (a.is_number()) {
    Decimal x, y;
    return ParseDecimal(a.text, &x) && ParseDecimal(b.text, &y) && x == y;
  }
  if (a.is_array()) {
    return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), SameValue);
  }
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const SchemaValue::Member& member) {
    const SchemaValue* other = b.Find(member.first);
    return other != nullptr && SameValue(member.second, *other);
  });
}

}  // namespace minisgl::grammar
