// The parser of regular expressions.
//
// Parts without assertions become expressions at once. An assertion that the text beside it decides
// ((?!-)[a-z-]{2}, [a-z-](?<!-)) narrows that text's expression; the others stay pieces, of which
// PatternLanguage makes a language.
#include "grammar/regular_expression.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "grammar/escapes.h"
#include "grammar/pattern_language.h"
#include "grammar/pattern_piece.h"
#include "minisgl/base/utf8.h"

namespace minisgl::grammar {

namespace {

constexpr int kGroupDepthMax = 200;
constexpr int kLooksMax = 50;

// The forms [^] plain [$], by their anchors: bit 0: `^`, bit 1: `$`. Alternatives of one form are
// joined, because there may be thousands.
struct AnchoredForm {
  size_t anchors = 0;
  PiecePointer plain;
};

std::optional<AnchoredForm> FormOf(const PiecePointer& piece, const PiecePointer& empty) {
  std::vector<PiecePointer> parts{piece};
  if (piece->kind == PieceKind::kSequence) parts = piece->parts;
  AnchoredForm form;
  size_t first = 0, last = parts.size();
  if (first < last && parts[first]->kind == PieceKind::kBegin) form.anchors |= 1, ++first;
  if (first < last && parts[last - 1]->kind == PieceKind::kEnd) form.anchors |= 2, --last;
  if (last - first > 1 || (last > first && parts[first]->kind != PieceKind::kPlain)) {
    return std::nullopt;
  }
  form.plain = last > first ? parts[first] : empty;
  return form;
}

class RegularExpressionParser {
 public:
  RegularExpressionParser(std::string_view text, const RegularExpressionOptions& options,
                          ExpressionSet* set)
      : reader_(text, options.search),
        options_(options),
        set_(*set),
        text_(*set, options.code_points) {}

  Result<ExpressionId> Parse() {
    MINISGL_ASSIGN_OR_RETURN(const PiecePointer whole, ParseAlternatives(0));
    if (!reader_.AtEnd()) return reader_.ErrorAt(reader_.at(), "a `)` without its `(`");
    MINISGL_RETURN_IF_ERROR(set_.status());
    PatternLanguage language(
        &text_, [this](size_t at, const std::string& what) { return reader_.ErrorAt(at, what); });
    return language.Of(whole, options_.search ? text_.Any() : set_.Empty());
  }

 private:
  PiecePointer EmptyPiece() const { return PlainPiece(set_.Empty(), 0, 0); }
  PiecePointer OneOf(const CodePointSet& points) const {
    return PlainPiece(text_.Spell(points), 1, 1);
  }

  Result<PiecePointer> ParseAlternatives(int depth) {
    std::array<std::vector<PiecePointer>, 4> forms;
    std::array<PiecePointer, 4> first_of;
    std::vector<PiecePointer> others;
    do {
      MINISGL_ASSIGN_OR_RETURN(const PiecePointer one, ParseSequence(depth));
      const std::optional<AnchoredForm> form = FormOf(one, EmptyPiece());
      if (!form) {
        others.push_back(one);
        continue;
      }
      if (forms[form->anchors].empty()) first_of[form->anchors] = one;
      forms[form->anchors].push_back(form->plain);
    } while (reader_.Take("|"));
    for (size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].size() < 2) {
        if (!forms[i].empty()) others.push_back(first_of[i]);
        continue;
      }
      std::vector<PiecePointer> parts{Joined(forms[i])};
      const size_t at = first_of[i]->at;
      if ((i & 1) != 0) parts.insert(parts.begin(), AnchorPiece(PieceKind::kBegin, at));
      if ((i & 2) != 0) parts.push_back(AnchorPiece(PieceKind::kEnd, at));
      others.push_back(SequencePiece(std::move(parts)));
    }
    return AlternativesPiece(std::move(others));
  }

  // One plain piece of several.
  PiecePointer Joined(const std::vector<PiecePointer>& plain) const {
    std::vector<ExpressionId> languages;
    uint32_t shortest = Piece::kUnbounded, longest = 0;
    for (const PiecePointer& one : plain) {
      languages.push_back(one->language);
      shortest = std::min(shortest, one->shortest);
      longest = std::max(longest, one->longest);
    }
    return PlainPiece(set_.Or(languages), shortest, longest);
  }

  Result<PiecePointer> ParseSequence(int depth) {
    std::vector<PiecePointer> parts;
    while (!reader_.AtEnd() && !reader_.Peek("|") && !reader_.Peek(")")) {
      MINISGL_ASSIGN_OR_RETURN(PiecePointer part, ParseQuantified(depth));
      MINISGL_RETURN_IF_ERROR(set_.status());
      if (part->kind == PieceKind::kSequence) {
        parts.insert(parts.end(), part->parts.begin(), part->parts.end());
      } else {
        parts.push_back(std::move(part));
      }
    }
    text_.Tidy(&parts);
    return parts.empty() ? EmptyPiece() : SequencePiece(std::move(parts));
  }

  Result<PiecePointer> ParseLook(size_t begin, PieceKind kind, bool negative, int depth) {
    if (++num_looks_ > kLooksMax) {
      return reader_.ErrorAt(begin,
                             fmt::format("more than {} lookaheads and lookbehinds", kLooksMax));
    }
    MINISGL_ASSIGN_OR_RETURN(PiecePointer inside, ParseAlternatives(depth + 1));
    if (!reader_.Take(")")) return reader_.ErrorAt(begin, "a `(` without its `)`");
    return LookPiece(kind, negative, std::move(inside), begin);
  }

  // A word boundary, or a place that is none: \b and \B.
  PiecePointer Boundary(bool boundary, size_t begin) const {
    const PiecePointer word = OneOf(CodePointSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}));
    const auto side = [&](bool word_before, bool word_behind) {
      return SequencePiece({LookPiece(PieceKind::kBehind, !word_before, word, begin),
                            LookPiece(PieceKind::kAhead, !word_behind, word, begin)});
    };
    return AlternativesPiece({side(true, !boundary), side(false, boundary)});
  }

  Result<PiecePointer> ParseQuantified(int depth) {
    const size_t begin = reader_.at();
    MINISGL_ASSIGN_OR_RETURN(PiecePointer part, ParseAtom(depth));
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
    if (part->kind == PieceKind::kPlain) {
      return PlainPiece(set_.Repeat(part->language, min, max), MultiplyLengths(part->shortest, min),
                        MultiplyLengths(part->longest, max));
    }
    if (max == 0 || (min == 0 && part->longest == 0)) return EmptyPiece();
    if (max == 1 && min == 1) return part;
    if (part->longest == 0) return part;  // assertions hold once or any number of times
    return RepeatPiece(std::move(part), min, max, begin);
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

  Result<PiecePointer> ParseAtom(int depth) {
    const size_t begin = reader_.at();
    if (reader_.Take("(")) return ParseGroup(begin, depth);
    if (reader_.Take("[")) {
      MINISGL_ASSIGN_OR_RETURN(const CodePointSet set, reader_.TakeClass());
      return OneOf(set);
    }
    if (reader_.Take(".")) return OneOf(NotNewline());
    if (reader_.Take("^") || reader_.Take("\\A")) return Anchor(PieceKind::kBegin, begin);
    if (reader_.Take("$") || reader_.Take("\\z") || reader_.Take("\\Z")) {
      return Anchor(PieceKind::kEnd, begin);
    }
    if (reader_.Take("\\b")) return Boundary(true, begin);
    if (reader_.Take("\\B")) return Boundary(false, begin);
    if (reader_.Take("\\")) {
      MINISGL_ASSIGN_OR_RETURN(const CodePointSet set, reader_.TakeEscape(false));
      return OneOf(set);
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
    return OneOf(CodePointSet({{code_point, code_point}}));
  }

  CodePointSet NotNewline() const {
    // Python and Rust exclude the line feed alone, ECMA-262 all line ends.
    if (!options_.search) return CodePointSet({{'\n', '\n'}}).Complement();
    return CodePointSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
  }

  Result<PiecePointer> Anchor(PieceKind kind, size_t begin) {
    uint32_t unused = 0;
    const size_t at = reader_.at();
    MINISGL_ASSIGN_OR_RETURN(const bool quantified, ParseQuantifier(&unused, &unused));
    if (quantified) return reader_.ErrorAt(at, "a quantifier with nothing before it");
    return AnchorPiece(kind, begin);
  }

  Result<PiecePointer> ParseGroup(size_t begin, int depth) {
    if (depth >= kGroupDepthMax) {
      return reader_.ErrorAt(begin, fmt::format("more than {} nested groups", kGroupDepthMax));
    }
    for (const bool negative : {false, true}) {
      if (reader_.Take(negative ? "?!" : "?=")) {
        return ParseLook(begin, PieceKind::kAhead, negative, depth);
      }
      if (reader_.Take(negative ? "?<!" : "?<=")) {
        return ParseLook(begin, PieceKind::kBehind, negative, depth);
      }
    }
    if (reader_.Peek("?")) MINISGL_RETURN_IF_ERROR(ParseGroupKind(begin));
    MINISGL_ASSIGN_OR_RETURN(PiecePointer inside, ParseAlternatives(depth + 1));
    if (!reader_.Take(")")) return reader_.ErrorAt(begin, "a `(` without its `)`");
    return inside;
  }

  Status ParseGroupKind(size_t begin) {
    struct Refused {
      std::string_view text;
      const char* what;
    };
    static constexpr std::array kRefused = {
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
  PatternText text_;
  int num_looks_ = 0;
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
