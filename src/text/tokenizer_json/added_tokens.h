// Added tokens: spellings that are cut out of text before a model's own rules see it.
//
// Those that are special, or that mark anything (`<tool_call>`), are found in trusted text alone;
// white space and single characters that are not special are found everywhere (tokenizer.h).
// Immutable once built; usable from any thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/ids.h"
#include "minisgl/base/status.h"
#include "text/symbol_matcher.h"
#include "text/tokenizer_json/normalizer.h"
#include "text/tokenizer_json/regex.h"

namespace minisgl::text {

struct AddedTokenRule {
  TokenId id = 0;
  std::string text;
  bool special = false;
  bool normalized = false;   // found in normalised text, where it is spelled normalised too
  bool single_word = false;  // found only where no word character stands next to it
  bool strips_left = false, strips_right = false;  // takes the white space beside it
};

// White space and single characters: how a model spells ordinary text.
bool IsOrdinaryAddedToken(const AddedTokenRule& rule);

class AddedTokens {
 public:
  // A token found, or a run of text between them.
  struct Section {
    std::optional<TokenId> id;
    TextRange range;
  };

  // A later rule of the same text replaces the former. `normalizer` (may be null) spells the
  // normalised ones.
  static Result<AddedTokens> Create(const std::vector<AddedTokenRule>& rules,
                                    const Normalizer* normalizer);

  // Takes a section; false: no more are wanted.
  using Visit = std::function<Result<bool>(const Section&)>;
  // Cuts `text`, of which only `trusted` (in order, apart) may spell marks, into sections, and
  // gives them to `visit` in order. `normalized` chooses the set of rules. False where `visit`
  // wanted no more.
  Result<bool> Cut(std::string_view text, const std::vector<TextRange>& trusted, bool normalized,
                   const Visit& visit) const;
  // Whether any mark can be found in normalised text.
  bool HasNormalizedMarks() const { return sets_[1].has_marks; }
  bool HasNormalized() const { return sets_[1].has_marks || sets_[1].has_ordinary; }

  // Null where `id` is no added token.
  const AddedTokenRule* Find(TokenId id) const;
  // How it is decoded: normalised where it is found so, as in the reference. REQUIRES Find(id).
  const std::string& DecodedText(TokenId id) const { return decoded_.at(id); }
  const std::map<TokenId, AddedTokenRule>& rules() const { return rules_; }

 private:
  struct Set {
    SymbolMatcher all, ordinary;
    bool has_marks = false, has_ordinary = false;
  };
  std::optional<SymbolMatcher::Match> MatchAt(const Set& set, std::string_view text, size_t at,
                                              size_t trusted_end) const;
  std::map<TokenId, AddedTokenRule> rules_;
  std::map<TokenId, std::string> decoded_;
  Set sets_[2];  // found in raw text, in normalised text
};

}  // namespace minisgl::text
