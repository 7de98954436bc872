#include "grammar/gbnf_syntax.h"

#include <fmt/core.h>

#include <algorithm>

#include "grammar/regular_expression.h"
#include "minisgl/base/utf8.h"
#include "minisgl/grammar/grammar.h"

namespace minisgl::grammar {

namespace {

constexpr int kParenthesesMax = 200;
constexpr int kQuantifiersMax = 10;  // one behind the other

class GbnfParser {
 public:
  explicit GbnfParser(std::string_view text) : text_(text) {}

  Result<GbnfSyntax> Parse() {
    SkipBlanks(true);
    while (at_ < text_.size()) {
      MINISGL_RETURN_IF_ERROR(ParseRule());
      SkipBlanks(true);
    }
    const auto root = ids_.find("root");
    if (root == ids_.end() || !syntax_.rules[root->second].defined) {
      return BadInput("there is no rule `root`");
    }
    for (const GbnfRule& rule : syntax_.rules) {
      if (!rule.defined) {
        return ErrorAt(rule.used_at, fmt::format("there is no rule `{}`", Visible(rule.name)));
      }
    }
    syntax_.root = root->second;
    return std::move(syntax_);
  }

 private:
  Status ErrorAt(size_t at, const std::string& what) const {
    const std::string_view before = text_.substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const size_t begin = line == 1 ? 0 : before.rfind('\n') + 1;
    size_t column = 1;
    for (size_t i = begin; i < at; ++i) column += (text_[i] & 0xC0) != 0x80 ? 1 : 0;
    return BadInput("line {}, column {}: {}", line, column, what);
  }
  // For messages: what stands at `at`.
  std::string Found(size_t at) const {
    if (at >= text_.size()) return "the end";
    if (text_[at] == '\n' || text_[at] == '\r') return "the end of the line";
    const size_t length = std::max<size_t>(Utf8CharLength(text_.substr(at)), 1);
    return "`" + Visible(text_.substr(at, length)) + "`";
  }

  char Current() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(std::string_view ahead) {
    if (!text_.substr(at_).starts_with(ahead)) return false;
    at_ += ahead.size();
    return true;
  }
  void SkipBlanks(bool with_newlines) {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') {
        while (at_ < text_.size() && text_[at_] != '\n' && text_[at_] != '\r') ++at_;
        if (at_ == text_.size()) break;
      }
      const char c = text_[at_];
      if (c != ' ' && c != '\t' && !(with_newlines && (c == '\n' || c == '\r'))) break;
    }
  }
  static bool IsNameCharacter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  uint32_t TakeName() {
    const size_t begin = at_;
    while (IsNameCharacter(Current())) ++at_;
    const std::string name(text_.substr(begin, at_ - begin));
    const auto [found, is_new] = ids_.emplace(name, static_cast<uint32_t>(syntax_.rules.size()));
    if (is_new) {
      GbnfRule rule;
      rule.name = name;
      rule.used_at = begin;
      syntax_.rules.push_back(std::move(rule));
    }
    return found->second;
  }
  uint32_t Add(GbnfNode node) {
    syntax_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(syntax_.nodes.size() - 1);
  }

  Status ParseRule() {
    const size_t begin = at_;
    if (!IsNameCharacter(Current())) {
      return ErrorAt(at_, fmt::format("{} where a rule `name ::= ...` should begin", Found(at_)));
    }
    const uint32_t rule = TakeName();
    SkipBlanks(false);
    if (!Take("::=")) {
      return ErrorAt(at_, fmt::format("{} where `::=` should stand", Found(at_)));
    }
    if (syntax_.rules[rule].defined) {
      return ErrorAt(begin, fmt::format("a second rule `{}`", syntax_.rules[rule].name));
    }
    syntax_.rules[rule].defined = true;
    SkipBlanks(true);
    MINISGL_ASSIGN_OR_RETURN(const uint32_t body, ParseChoice(0));
    syntax_.rules[rule].body = body;
    if (at_ < text_.size() && Current() != '\n' && Current() != '\r') {
      return ErrorAt(at_, fmt::format("{} where the rule should end", Found(at_)));
    }
    return {};
  }

  Result<uint32_t> ParseChoice(int depth) {
    GbnfNode choice;
    choice.kind = GbnfNode::kChoice;
    for (;;) {
      MINISGL_ASSIGN_OR_RETURN(const uint32_t alternative, ParseSequence(depth));
      choice.parts.push_back(alternative);
      if (!Take("|")) break;
      SkipBlanks(true);
    }
    return choice.parts.size() == 1 ? choice.parts[0] : Add(std::move(choice));
  }

  Result<uint32_t> ParseSequence(int depth) {
    GbnfNode sequence;
    for (;;) {
      const size_t begin = at_;
      GbnfNode part;
      MINISGL_ASSIGN_OR_RETURN(const bool any, ParseItem(depth, &part));
      if (!any) break;
      uint32_t index = part.kind == GbnfNode::kSequence ? part.parts[0] : Add(std::move(part));
      SkipBlanks(depth > 0);
      MINISGL_RETURN_IF_ERROR(ParseQuantifiers(depth, begin, &index));
      sequence.parts.push_back(index);
    }
    return sequence.parts.size() == 1 ? sequence.parts[0] : Add(std::move(sequence));
  }

  // A group is given as a sequence of one part. False if a sequence ends here.
  Result<bool> ParseItem(int depth, GbnfNode* part) {
    const size_t begin = at_;
    if (Take("\"")) {
      part->kind = GbnfNode::kLiteral;
      while (!Take("\"")) {
        if (at_ >= text_.size() || Current() == '\n') {
          return ErrorAt(begin, "a literal without its closing `\"`");
        }
        MINISGL_ASSIGN_OR_RETURN(const uint32_t c, TakeCharacter());
        AppendUtf8(static_cast<char32_t>(c), &part->literal);
      }
      return true;
    }
    if (Take("[")) {
      MINISGL_RETURN_IF_ERROR(ParseClass(begin, part));
      return true;
    }
    if (Take(".")) {
      part->kind = GbnfNode::kClass;
      part->set = CodePointSet::All();
      return true;
    }
    if (IsNameCharacter(Current())) {
      part->kind = GbnfNode::kRule;
      part->rule = TakeName();
      return true;
    }
    if (Take("(")) {
      if (depth >= kParenthesesMax) {
        return ErrorAt(begin, fmt::format("more than {} nested parentheses", kParenthesesMax));
      }
      SkipBlanks(true);
      MINISGL_ASSIGN_OR_RETURN(const uint32_t inside, ParseChoice(depth + 1));
      if (!Take(")")) return ErrorAt(begin, "a `(` without its `)`");
      part->parts = {inside};
      return true;
    }
    if (Current() == '<' || Current() == '!') {
      return ErrorAt(begin, "token terminals are not supported");
    }
    if (std::string_view("*+?{").find(Current()) != std::string_view::npos && at_ < text_.size()) {
      return ErrorAt(begin, fmt::format("{} with nothing before it", Found(begin)));
    }
    return false;
  }

  Status ParseQuantifiers(int depth, size_t begin, uint32_t* index) {
    int levels = 0;
    for (;;) {
      const size_t at = at_;
      uint32_t min = 0;
      uint32_t max = GrammarBuilder::kUnbounded;
      if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Take("{")) {
        MINISGL_RETURN_IF_ERROR(ParseCounts(at, &min, &max));
      } else if (!Take("*")) {
        return {};
      }
      if (++levels > kQuantifiersMax) return ErrorAt(begin, "too many quantifiers");
      GbnfNode repeat;
      repeat.kind = GbnfNode::kRepeat;
      repeat.parts = {*index};
      repeat.min = min;
      repeat.max = max;
      *index = Add(std::move(repeat));
      SkipBlanks(depth > 0);
    }
  }

  Status ParseCounts(size_t begin, uint32_t* min, uint32_t* max) {
    SkipBlanks(false);
    MINISGL_RETURN_IF_ERROR(TakeCount(min));
    SkipBlanks(false);
    *max = *min;
    if (Take(",")) {
      SkipBlanks(false);
      *max = GrammarBuilder::kUnbounded;
      if (Current() != '}') MINISGL_RETURN_IF_ERROR(TakeCount(max));
      SkipBlanks(false);
    }
    if (!Take("}")) return ErrorAt(at_, fmt::format("{} where `}}` should stand", Found(at_)));
    if (*min > *max) return ErrorAt(begin, "a count whose bounds are exchanged");
    return {};
  }

  Status TakeCount(uint32_t* count) {
    const size_t begin = at_;
    uint64_t value = 0;
    for (; Current() >= '0' && Current() <= '9'; ++at_) {
      value = value * 10 + static_cast<uint64_t>(Current() - '0');
      if (value > kRepeatCountMax) {
        return ErrorAt(begin, fmt::format("a count above {}", kRepeatCountMax));
      }
    }
    if (at_ == begin) {
      return ErrorAt(at_, fmt::format("{} where a number should stand", Found(at_)));
    }
    *count = static_cast<uint32_t>(value);
    return {};
  }

  Status ParseClass(size_t begin, GbnfNode* part) {
    part->kind = GbnfNode::kClass;
    const bool negated = Take("^");
    std::vector<CodePointRange> ranges;
    while (!Take("]")) {
      if (at_ >= text_.size() || Current() == '\n') {
        return ErrorAt(begin, "a class without its `]`");
      }
      const size_t first_at = at_;
      MINISGL_ASSIGN_OR_RETURN(const uint32_t first, TakeCharacter());
      uint32_t last = first;
      if (Current() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        if (Current() == '\n') return ErrorAt(begin, "a class without its `]`");
        MINISGL_ASSIGN_OR_RETURN(last, TakeCharacter());
      }
      if (first > last) return ErrorAt(first_at, "a range that ends before it begins");
      ranges.push_back({first, last});
    }
    if (ranges.empty()) return ErrorAt(begin, "an empty class");
    part->set = CodePointSet(std::move(ranges));
    if (negated) part->set = part->set.Complement();
    return {};
  }

  // One character of a literal or class.
  Result<uint32_t> TakeCharacter() {
    const size_t begin = at_;
    if (!Take("\\")) {
      const size_t length = Utf8CharLength(text_.substr(at_));
      uint32_t c = static_cast<uint8_t>(text_[at_]);
      if (length > 1) c &= 0xFFU >> (length + 1);
      for (size_t i = 1; i < length; ++i) {
        c = c << 6 | (static_cast<uint8_t>(text_[at_ + i]) & 0x3FU);
      }
      at_ += length;
      return c;
    }
    const char kind = Current();
    if (at_ < text_.size()) ++at_;
    switch (kind) {
      case 'x':
        return TakeHex(begin, 2);
      case 'u':
        return TakeHex(begin, 4);
      case 'U':
        return TakeHex(begin, 8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
        return static_cast<uint32_t>(kind);
      default:
        return ErrorAt(begin,
                       fmt::format("unknown escape `\\{}`", Visible(text_.substr(begin + 1, 1))));
    }
  }

  Result<uint32_t> TakeHex(size_t begin, int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      const char c = Current();
      const bool decimal = c >= '0' && c <= '9';
      if (!decimal && !((c | 0x20) >= 'a' && (c | 0x20) <= 'f')) {
        return ErrorAt(begin, "an escape without its hexadecimal digits");
      }
      value = value << 4 | static_cast<uint32_t>(decimal ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    if (value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) {
      return ErrorAt(begin, "an escape that is no character");
    }
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  GbnfSyntax syntax_;
  std::unordered_map<std::string, uint32_t> ids_;
};

}  // namespace

Result<GbnfSyntax> ParseGbnf(std::string_view text) {
  if (!IsValidUtf8(text)) return BadInput("the grammar is not valid UTF-8");
  return GbnfParser(text).Parse();
}

}  // namespace minisgl::grammar
