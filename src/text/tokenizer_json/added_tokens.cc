// Matching of added tokens: the leftmost, then the longest, then the flags of the token found.
#include "text/tokenizer_json/added_tokens.h"

#include <algorithm>
#include <utility>

#include "minisgl/base/utf8.h"
#include "text/text_symbols.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace {

// Returns the first byte of the last character of `text`, which is not empty.
size_t LastCharacter(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

bool IsWordAt(std::string_view text, size_t at) {
  size_t length = 0;
  return IsWordCharacter(FirstCharacter(text.substr(at), &length));
}

bool StandsAlone(std::string_view text, const TextRange& range) {
  if (range.begin > 0 && IsWordAt(text, LastCharacter(text.substr(0, range.begin)))) return false;
  return range.end == text.size() || !IsWordAt(text, range.end);
}

// Returns `range` extended by the white space that `rule` absorbs, but not before `from`.
TextRange WithSpaces(std::string_view text, TextRange range, size_t from,
                     const AddedTokenRule& rule) {
  size_t length = 0;
  while (rule.strips_left && range.begin > from) {
    const size_t last = LastCharacter(text.substr(0, range.begin));
    if (last < from || !IsWhiteSpace(FirstCharacter(text.substr(last), &length))) break;
    range.begin = last;
  }
  while (rule.strips_right && range.end < text.size() &&
         IsWhiteSpace(FirstCharacter(text.substr(range.end), &length))) {
    range.end += length;
  }
  return range;
}

}  // namespace

bool IsOrdinaryAddedToken(const AddedTokenRule& rule) {
  if (rule.special) return false;
  const std::string_view text = rule.text;
  if (Utf8CharLength(text) == text.size() || IsTextSymbol(text)) return true;
  for (size_t at = 0; at < text.size();) {
    if (Utf8CharLength(text.substr(at)) == 0) return false;
    size_t length = 0;
    const char32_t c = FirstCharacter(text.substr(at), &length);
    constexpr char32_t kSpaceMark = 0x2581;  // how sentencepiece spells a space
    if (!IsWhiteSpace(c) && c != kSpaceMark) return false;
    at += length;
  }
  return true;
}

Result<AddedTokens> AddedTokens::Create(const std::vector<AddedTokenRule>& rules,
                                        const Normalizer* normalizer) {
  AddedTokens tokens;
  for (const AddedTokenRule& rule : rules) tokens.rules_.insert_or_assign(rule.id, rule);
  for (const auto& [id, rule] : tokens.rules_) {
    std::string spelling = rule.text;
    if (rule.normalized && normalizer != nullptr) {
      if (!IsValidUtf8(spelling)) spelling = ReplaceInvalidUtf8(spelling);
      MINISGL_RETURN_IF_ERROR(normalizer->Run(&spelling));
    }
    tokens.decoded_[id] = spelling;
    // A spelling that normalises to nothing is never found.
    if (spelling.empty()) continue;
    if (spelling.size() > kSymbolBytesMax) continue;
    Set& set = tokens.sets_[rule.normalized ? 1 : 0];
    const bool ordinary = IsOrdinaryAddedToken(rule);
    set.all.Add(spelling, id);
    if (ordinary) set.ordinary.Add(spelling, id);
    (ordinary ? set.has_ordinary : set.has_marks) = true;
  }
  return tokens;
}

std::optional<SymbolMatcher::Match> AddedTokens::MatchAt(const Set& set, std::string_view text,
                                                         size_t at, size_t trusted_end) const {
  std::optional<SymbolMatcher::Match> match;
  if (at < trusted_end) match = set.all.LongestPrefix(text.substr(at, trusted_end - at));
  if (!set.has_ordinary) return match;
  const auto ordinary = set.ordinary.LongestPrefix(text.substr(at));
  return ordinary && (!match || ordinary->length > match->length) ? ordinary : match;
}

Result<bool> AddedTokens::Cut(std::string_view text, const std::vector<TextRange>& trusted,
                              bool normalized, const Visit& visit) const {
  const Set& set = sets_[normalized ? 1 : 0];
  size_t run_begin = 0;
  size_t span = 0;  // index of the first trusted range that ends after `at`
  for (size_t at = 0; at < text.size() && (set.has_marks || set.has_ordinary);) {
    while (span < trusted.size() && trusted[span].end <= at) ++span;
    const bool in_span = span < trusted.size() && trusted[span].begin <= at;
    const auto match = MatchAt(set, text, at, in_span ? trusted[span].end : 0);
    if (!match) {
      ++at;
      continue;
    }
    const AddedTokenRule& rule = rules_.at(match->id);
    const TextRange found = {at, at + match->length};
    at = found.end;
    if (rule.single_word && !StandsAlone(text, found)) continue;
    const TextRange range = WithSpaces(text, found, run_begin, rule);
    if (run_begin < range.begin) {
      MINISGL_ASSIGN_OR_RETURN(const bool wanted, visit({std::nullopt, {run_begin, range.begin}}));
      if (!wanted) return false;
    }
    MINISGL_ASSIGN_OR_RETURN(const bool wanted, visit({match->id, range}));
    if (!wanted) return false;
    run_begin = at = range.end;
  }
  if (run_begin == text.size()) return true;
  return visit({std::nullopt, {run_begin, text.size()}});
}

const AddedTokenRule* AddedTokens::Find(TokenId id) const {
  const auto rule = rules_.find(id);
  return rule == rules_.end() ? nullptr : &rule->second;
}

}  // namespace minisgl::text
