// A search pattern: a literal, {"String": ...}, or a regular expression, {"Regex": ...}.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "text/piece.h"
#include "text/tokenizer_json/json_place.h"
#include "text/tokenizer_json/regex.h"

namespace minisgl::text {

class Pattern {
 public:
  explicit Pattern(Regex regex) : regex_(std::move(regex)) {}
  static Pattern Literal(std::string text) { return Pattern(std::move(text)); }  // not empty
  static Result<Pattern> Read(const JsonPlace& place);

  // As in Regex::FindAllIn.
  Status FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                   std::vector<TextRange>* matches) const;
  // Replaces each match in `text`. kBadInput if the text would exceed kTextBytesMax.
  Status ReplaceAll(std::string_view by, std::string* text) const;

  // Returns matches in batches, like RegexSearch.
  class Search;

  // Null for a regular expression.
  const std::string* literal() const { return regex_ ? nullptr : &literal_; }

 private:
  explicit Pattern(std::string literal) : literal_(std::move(literal)) {}
  std::optional<Regex> regex_;
  std::string literal_;
};

class Pattern::Search {
 public:
  // Both must outlive the search.
  static Result<Search> Create(const Pattern* pattern, std::string_view text);
  void Begin(const TextRange& word);
  // Appends up to `count` further matches. False if the word has no more.
  Result<bool> Next(size_t count, std::vector<TextRange>* matches);

 private:
  Search(const Pattern* pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  const Pattern* pattern_;
  std::string_view text_;  // to the end of the word
  std::string_view whole_text_;
  size_t at_ = 0;
  std::optional<RegexSearch> regex_;
};

// Reads a string of exactly one character. Null gives `otherwise`, or an error if `otherwise` is
// "".
Result<std::string> ReadOneCharacter(const JsonPlace& place, std::string_view otherwise);

}  // namespace minisgl::text
