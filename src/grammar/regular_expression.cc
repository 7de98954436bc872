// The parser of regular expressions.
//
// Anchors are followed through groups: each part has up to four languages, by whether it begins
// with `^` and whether it ends with `$`. (^a|b)c and (?:^|,)x(?:,|$) are sound; an anchor with
// something before or behind it that it excludes is refused.
#include "grammar/regular_expression.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "grammar/escapes.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {

namespace {

constexpr int kGroupDepthMax = 200;
constexpr int kLookaheadsMax = 50;

// Bit 0: `^` holds it at the beginning; bit 1: `$` holds it at the end.
struct Anchored {
  std::array<std::optional<ExpressionId>, 4> languages;
  size_t begin_at = 0, end_at = 0;  // of a `^`, of a `$`, for messages

  bool plain() const { return !languages[1] && !languages[2] && !languages[3]; }
  bool has_begin() const { return languages[1] || languages[3]; }
  bool has_end() const { return languages[2] || languages[3]; }
};

class RegularExpressionParser {
 public:
  RegularExpressionParser(std::string_view text, const RegularExpressionOptions& options,
                          ExpressionSet* set)
      : reader_(text, options.search), options_(options), set_(*set) {}

  Result<ExpressionId> Parse() {
    MINISGL_ASSIGN_OR_RETURN(const Anchored whole, ParseAlternatives(0));
    if (!reader_.AtEnd()) return reader_.ErrorAt(reader_.at(), "a `)` without its `(`");
    std::vector<ExpressionId> languages;
    for (size_t anchors = 0; anchors < 4; ++anchors) {
      if (!whole.languages[anchors]) continue;
      const bool open = options_.search;
      const ExpressionId before = open && (anchors & 1) == 0 ? AnyText() : set_.Empty();
      const ExpressionId behind = open && (anchors & 2) == 0 ? AnyText() : set_.Empty();
      languages.push_back(set_.Concat({before, *whole.languages[anchors], behind}));
    }
    const ExpressionId result = set_.Or(languages);
    MINISGL_RETURN_IF_ERROR(set_.status());
    return result;
  }

 private:
  ExpressionId Spell(const CodePointSet& set) {
    if (set.empty()) return set_.Nothing();
    return options_.code_points ? options_.code_points(set) : set_.CodePoints(set);
  }
  ExpressionId AnyText() {
    if (!any_text_) {
      any_text_ = set_.Repeat(Spell(CodePointSet::All()), 0, ExpressionSet::kUnbounded);
    }
    return *any_text_;
  }
  static Anchored Plain(ExpressionId language) {
    Anchored part;
    part.languages[0] = language;
    return part;
  }

  Result<Anchored> ParseAlternatives(int depth) {
    std::array<std::vector<ExpressionId>, 4> languages;
    Anchored all;
    do {
      MINISGL_ASSIGN_OR_RETURN(const Anchored one, ParseSequence(depth));
      for (size_t i = 0; i < 4; ++i) {
        if (one.languages[i]) languages[i].push_back(*one.languages[i]);
      }
      if (one.has_begin()) all.begin_at = one.begin_at;
      if (one.has_end()) all.end_at = one.end_at;
    } while (reader_.Take("|"));
    for (size_t i = 0; i < 4; ++i) {
      if (!languages[i].empty()) all.languages[i] = set_.Or(languages[i]);
    }
    return all;
  }

  Result<Anchored> ParseSequence(int depth) {
    Anchored sequence = Plain(set_.Empty());
    std::vector<ExpressionId> plain;  // parts without anchors, not appended yet
    while (!reader_.AtEnd() && !reader_.Peek("|") && !reader_.Peek(")")) {
      if (IsLookahead(depth)) {
        MINISGL_RETURN_IF_ERROR(Append(Plain(set_.Concat(plain)), &sequence));
        MINISGL_ASSIGN_OR_RETURN(const Anchored rest, ParseLookahead());
        MINISGL_RETURN_IF_ERROR(Append(rest, &sequence));
        return sequence;
      }
      MINISGL_ASSIGN_OR_RETURN(Anchored part, ParseQuantified(depth));
      MINISGL_RETURN_IF_ERROR(set_.status());
      if (part.plain()) {
        plain.push_back(*part.languages[0]);
        continue;
      }
      MINISGL_RETURN_IF_ERROR(Append(Plain(set_.Concat(plain)), &sequence));
      plain.clear();
      MINISGL_RETURN_IF_ERROR(Append(part, &sequence));
    }
    MINISGL_RETURN_IF_ERROR(Append(Plain(set_.Concat(plain)), &sequence));
    return sequence;
  }

  // A lookahead outside of groups, where it is a condition on the rest of the text.
  bool IsLookahead(int depth) const {
    return options_.search && depth == 0 && (reader_.Peek("(?=") || reader_.Peek("(?!"));
  }

  // The lookahead and what follows it in its alternative, up to the end of the text.
  Result<Anchored> ParseLookahead() {
    const size_t begin = reader_.at();
    if (++num_lookaheads_ > kLookaheadsMax) {
      return reader_.ErrorAt(begin, fmt::format("more than {} lookaheads", kLookaheadsMax));
    }
    const bool negative = reader_.Take("(?!");
    if (!negative) reader_.Take("(?=");
    MINISGL_ASSIGN_OR_RETURN(const Anchored inside, ParseAlternatives(1));
    if (!reader_.Take(")")) return reader_.ErrorAt(begin, "a `(` without its `)`");
    if (inside.has_begin()) return reader_.ErrorAt(begin, "`^` in a lookahead is not supported");
    std::vector<ExpressionId> ahead;
    if (inside.languages[0]) ahead.push_back(set_.Concat({*inside.languages[0], AnyText()}));
    if (inside.languages[2]) ahead.push_back(*inside.languages[2]);
    const ExpressionId condition = set_.Or(ahead);
    MINISGL_ASSIGN_OR_RETURN(const Anchored rest, ParseSequence(0));
    Anchored all;
    all.begin_at = rest.begin_at;
    all.end_at = begin;
    for (size_t i = 0; i < 2; ++i) {
      std::vector<ExpressionId> languages;
      if (rest.languages[i]) languages.push_back(set_.Concat({*rest.languages[i], AnyText()}));
      if (rest.languages[i | 2]) languages.push_back(*rest.languages[i | 2]);
      if (languages.empty()) continue;
      const ExpressionId whole = set_.Or(languages);
      all.languages[i | 2] =
          negative ? set_.Difference(whole, condition) : set_.And({whole, condition});
    }
    return all;
  }

  Status Append(const Anchored& part, Anchored* sequence) {
    std::array<std::vector<ExpressionId>, 4> languages;
    for (size_t i = 0; i < 4; ++i) {
      for (size_t j = 0; j < 4; ++j) {
        if (!sequence->languages[i] || !part.languages[j]) continue;
        const ExpressionId before = *sequence->languages[i];
        const ExpressionId behind = *part.languages[j];
        if ((j & 1) != 0 && before != set_.Empty()) {
          return reader_.ErrorAt(part.begin_at, "`^` is supported at the beginning only");
        }
        if ((i & 2) != 0 && behind != set_.Empty()) {
          return reader_.ErrorAt(sequence->end_at, "`$` is supported at the end only");
        }
        languages[i | j].push_back(set_.Concat({before, behind}));
      }
    }
    for (size_t i = 0; i < 4; ++i) {
      sequence->languages[i].reset();
      if (!languages[i].empty()) sequence->languages[i] = set_.Or(languages[i]);
    }
    if (part.has_begin()) sequence->begin_at = part.begin_at;
    if (part.has_end()) sequence->end_at = part.end_at;
    return {};
  }

  Result<Anchored> ParseQuantified(int depth) {
    const size_t begin = reader_.at();
    MINISGL_ASSIGN_OR_RETURN(Anchored part, ParseAtom(depth));
    const size_t quantifier_at = reader_.at();
    uint32_t min = 0;
    uint32_t max = 0;
    MINISGL_ASSIGN_OR_RETURN(const bool quantified, ParseQuantifier(&min, &max));
    if (!quantified) return part;
    if (reader_.Peek("+")) {
      return reader_.ErrorAt(quantifier_at, "possessive quantifiers are not supported");
    }
    reader_.Take("?");  // lazy: the same texts
    uint32_t unused = 0;
    const size_t second_at = reader_.at();
    MINISGL_ASSIGN_OR_RETURN(const bool twice, ParseQuantifier(&unused, &unused));
    if (twice) return reader_.ErrorAt(second_at, "a quantifier behind a quantifier");
    if (part.plain()) return Plain(set_.Repeat(*part.languages[0], min, max));
    if (max > 1) {
      return reader_.ErrorAt(begin, "a repeated group with `^` or `$` inside is not supported");
    }
    // {0,1}, {1}, {0}
    if (max == 0) return Plain(set_.Empty());
    if (min == 0) {
      part.languages[0] =
          part.languages[0] ? set_.Or({*part.languages[0], set_.Empty()}) : set_.Empty();
    }
    return part;
  }

  // False, and nothing taken, if there is none.
  Result<bool> ParseQuantifier(uint32_t* min, uint32_t* max) {
    const size_t begin = reader_.at();
    *max = ExpressionSet::kUnbounded;
    *min = 0;
    if (reader_.Take("*")) return true;
    if (reader_.Take("+")) return *min = 1, true;
    if (reader_.Take("?")) return *max = 1, true;
    if (!reader_.Take("{")) return false;
    const bool without_min = reader_.Peek(",");
    MINISGL_ASSIGN_OR_RETURN(const auto low, reader_.TakeCount(kRepeatCountMax));
    bool counted = low.has_value();
    if (counted) *min = *max = *low;
    if (reader_.Take(",") && counted) {
      MINISGL_ASSIGN_OR_RETURN(const auto high, reader_.TakeCount(kRepeatCountMax));
      *max = high.value_or(ExpressionSet::kUnbounded);
    } else if (without_min) {
      MINISGL_ASSIGN_OR_RETURN(const auto high, reader_.TakeCount(kRepeatCountMax));
      if (high.has_value() && reader_.Peek("}")) {
        return reader_.ErrorAt(begin, "a count without its lower bound; write {0,n}");
      }
      counted = false;
    }
    if (!counted || !reader_.Take("}")) {
      reader_.set_at(begin);  // a literal brace
      return false;
    }
    if (*min > *max) return reader_.ErrorAt(begin, "a count whose bounds are exchanged");
    return true;
  }

  Result<Anchored> ParseAtom(int depth) {
    const size_t begin = reader_.at();
    if (reader_.Take("(")) return ParseGroup(begin, depth);
    if (reader_.Take("[")) {
      MINISGL_ASSIGN_OR_RETURN(const CodePointSet set, reader_.TakeClass());
      return Plain(Spell(set));
    }
    if (reader_.Take(".")) return Plain(Spell(NotNewline()));
    if (reader_.Take("^") || reader_.Take("\\A")) return Anchor(1, begin);
    if (reader_.Take("$") || reader_.Take("\\z") || reader_.Take("\\Z")) return Anchor(2, begin);
    if (reader_.Take("\\")) {
      MINISGL_ASSIGN_OR_RETURN(const CodePointSet set, reader_.TakeEscape(false));
      return Plain(Spell(set));
    }
    if (reader_.Peek("*") || reader_.Peek("+") || reader_.Peek("?")) {
      return reader_.ErrorAt(begin, "a quantifier with nothing before it");
    }
    if (reader_.Peek("{")) {
      uint32_t min = 0;
      uint32_t max = 0;
      MINISGL_ASSIGN_OR_RETURN(const bool counts, ParseQuantifier(&min, &max));
      if (counts) return reader_.ErrorAt(begin, "a quantifier with nothing before it");
    }
    const uint32_t code_point = reader_.TakeCodePoint();
    return Plain(Spell(CodePointSet({{code_point, code_point}})));
  }

  CodePointSet NotNewline() const {
    // Python and Rust exclude the line feed alone, ECMA-262 all line ends.
    if (!options_.search) return CodePointSet({{'\n', '\n'}}).Complement();
    return CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
  }

  Result<Anchored> Anchor(size_t which, size_t begin) {
    Anchored anchor;
    anchor.languages[which] = set_.Empty();
    anchor.begin_at = anchor.end_at = begin;
    uint32_t unused = 0;
    const size_t at = reader_.at();
    MINISGL_ASSIGN_OR_RETURN(const bool quantified, ParseQuantifier(&unused, &unused));
    if (quantified) return reader_.ErrorAt(at, "a quantifier with nothing before it");
    return anchor;
  }

  Result<Anchored> ParseGroup(size_t begin, int depth) {
    if (depth >= kGroupDepthMax) {
      return reader_.ErrorAt(begin, fmt::format("more than {} nested groups", kGroupDepthMax));
    }
    if (reader_.Peek("?")) MINISGL_RETURN_IF_ERROR(ParseGroupKind(begin));
    MINISGL_ASSIGN_OR_RETURN(Anchored inside, ParseAlternatives(depth + 1));
    if (!reader_.Take(")")) return reader_.ErrorAt(begin, "a `(` without its `)`");
    return inside;
  }

  Status ParseGroupKind(size_t begin) {
    struct Refused {
      std::string_view text;
      const char* what;
    };
    static constexpr std::array kRefused = {
        Refused{"?=", "lookahead is not supported"},
        Refused{"?!", "lookahead is not supported"},
        Refused{"?<=", "lookbehind is not supported"},
        Refused{"?<!", "lookbehind is not supported"},
        Refused{"?(", "conditionals are not supported"},
        Refused{"?>", "atomic groups are not supported"},
        Refused{"?P=", "backreferences are not supported"},
        Refused{"?P>", "recursion is not supported"},
        Refused{"?&", "recursion is not supported"},
        Refused{"?R", "recursion is not supported"},
        Refused{"?#", "comments are not supported"},
        Refused{"?|", "branch reset groups are not supported"},
    };
    for (const Refused& refused : kRefused) {
      if (reader_.Peek(refused.text)) return reader_.ErrorAt(begin, refused.what);
    }
    if (reader_.Take("?:")) return {};
    if (reader_.Take("?P<") || reader_.Take("?<")) return ParseGroupName(begin);
    return reader_.ErrorAt(begin, "flags are not supported");
  }

  Status ParseGroupName(size_t begin) {
    const size_t length = reader_.rest().find('>');
    const std::string name(reader_.rest().substr(0, length == std::string_view::npos ? 0 : length));
    const auto is_letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    };
    bool valid = !name.empty() && is_letter(name[0]);
    for (const char c : name) valid = valid && (is_letter(c) || (c >= '0' && c <= '9'));
    if (!valid) return reader_.ErrorAt(begin, "a group name that is no identifier");
    if (!names_.insert(name).second) {
      return reader_.ErrorAt(begin, fmt::format("a second group of the name `{}`", Visible(name)));
    }
    reader_.set_at(reader_.at() + length + 1);
    return {};
  }

  PatternReader reader_;
  const RegularExpressionOptions& options_;
  ExpressionSet& set_;
  std::optional<ExpressionId> any_text_;
  int num_lookaheads_ = 0;
  std::set<std::string> names_;
};

}  // namespace

Result<ExpressionId> ParseRegularExpression(std::string_view text,
                                            const RegularExpressionOptions& options,
                                            ExpressionSet& set) {
  if (!IsValidUtf8(text)) return BadInput("the regular expression is not valid UTF-8");
  return RegularExpressionParser(text, options, &set).Parse();
}

}  // namespace minisgl::grammar
