// What text is searched for: a literal or a regular expression, {"String": ...} or {"Regex": ...}.
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

  // As Regex::FindAllIn.
  Status FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                   std::vector<TextRange>* matches) const;
  // `text` with each match replaced. kBadInput where it grows past kTextBytesMax.
  Status ReplaceAll(std::string_view by, std::string* text) const;

  // As RegexSearch: the matches some at a time.
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
  // Both outlive the search.
  static Result<Search> Create(const Pattern* pattern, std::string_view text);
  void Begin(const TextRange& word);
  // Appends the next matches, at most `count`. False: the word has no more.
  Result<bool> Next(size_t count, std::vector<TextRange>* matches);

 private:
  Search(const Pattern* pattern, std::string_view text) : pattern_(pattern), text_(text) {}
  const Pattern* pattern_;
  std::string_view text_;  // to the end of the word
  std::string_view whole_text_;
  size_t at_ = 0;
  std::optional<RegexSearch> regex_;
};

// A string of exactly one character; `otherwise` where it is null, unless that is "".
Result<std::string> ReadOneCharacter(const JsonPlace& place, std::string_view otherwise);

}  // namespace minisgl::text
