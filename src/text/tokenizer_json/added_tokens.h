// Added tokens: spellings that are cut out of a text before the model's own rules are applied.
//
// Special tokens and marks (such as `<tool_call>`) are found only in trusted text. Ordinary added
// tokens, white space, single characters, words and tags of HTML that are not special, are found
// everywhere (tokenizer.h, text_symbols.h). Immutable after building; thread-safe.
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
  bool normalized = false;   // matched in normalised text, by its normalised spelling
  bool single_word = false;  // matched only if no word character is adjacent
  bool strips_left = false, strips_right = false;  // absorbs the white space next to it
};

// True for white space, single characters and text symbols (text_symbols.h) that are not special:
// they encode ordinary text.
bool IsOrdinaryAddedToken(const AddedTokenRule& rule);

class AddedTokens {
 public:
  // A token that was found, or a run of text between tokens (no id).
  struct Section {
    std::optional<TokenId> id;
    TextRange range;
  };

  // A later rule for the same id replaces an earlier one. `normalizer` (may be null) normalises the
  // spellings of rules with `normalized`.
  static Result<AddedTokens> Create(const std::vector<AddedTokenRule>& rules,
                                    const Normalizer* normalizer);

  // Receives a section. Returns false to stop.
  using Visit = std::function<Result<bool>(const Section&)>;
  // Cuts `text` into sections and passes them to `visit` in order. Marks are matched only inside
  // `trusted`, ranges in order that do not touch. `normalized` selects the set of rules. False if
  // `visit` stopped.
  Result<bool> Cut(std::string_view text, const std::vector<TextRange>& trusted, bool normalized,
                   const Visit& visit) const;
  // True if a mark can be found in normalised text.
  bool HasNormalizedMarks() const { return sets_[1].has_marks; }
  bool HasNormalized() const { return sets_[1].has_marks || sets_[1].has_ordinary; }

  // Null if `id` is not an added token.
  const AddedTokenRule* Find(TokenId id) const;
  // Returns the text for decoding: the normalised spelling if the token is matched in normalised
  // text, as in the reference. REQUIRES: Find(id) is not null.
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
  Set sets_[2];  // matched in raw text, in normalised text
};

}  // namespace minisgl::text
