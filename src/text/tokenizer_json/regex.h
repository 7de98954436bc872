// Regular expressions of tokenizer files: Oniguruma's syntax, for which tokenizer.json is written,
// executed by PCRE2 with Unicode properties.
//
// PCRE2 has the properties of Unicode 14 (on Debian 12), the reference has Unicode 16's: letters
// added in between are not letters here.
//
// Steps over a whole text (MatchBudget) and memory are bounded, and the use of the stack does not
// grow with the text. Immutable; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"

namespace minisgl::text {

struct TextRange {
  size_t begin = 0, end = 0;
};

// The budget of matching steps for one text, shared by all patterns and matches. It applies to the
// thread that created it until it is destroyed; budgets nest, and the innermost applies. Without a
// budget, each search creates its own. It counts work, not time, so the result depends only on the
// patterns and the text.
class MatchBudget {
 public:
  // `goes_on` (may be empty) is polled; if it returns false, every search fails.
  explicit MatchBudget(size_t text_bytes, std::function<bool()> goes_on = {});
  ~MatchBudget();
  MatchBudget(const MatchBudget&) = delete;
  MatchBudget& operator=(const MatchBudget&) = delete;

  static MatchBudget* Current();
  // Takes `steps` from the budget; false if fewer are left.
  bool Spend(uint64_t steps);
  bool GoesOn() { return !goes_on_ || goes_on_(); }
  uint64_t left() const { return left_; }

 private:
  uint64_t left_;
  const std::function<bool()> goes_on_;
  MatchBudget* const outer_;
};

class Regex {
 public:
  // kBadInput if `pattern` is invalid, is longer than 64 KiB, or uses an unsupported feature.
  static Result<Regex> Compile(std::string_view pattern);

  // Appends the matches in `text` from left to right, without overlap; no empty match directly
  // follows another match. kBadInput if the search takes too many steps.
  // REQUIRES: well-formed UTF-8.
  Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;
  // As FindAll in each of `words`, as if each were a whole text. The ranges refer to `text`.
  Status FindAllIn(std::string_view text, const std::vector<TextRange>& words,
                   std::vector<TextRange>* matches) const;

  const std::string& pattern() const { return pattern_; }

 private:
  friend class RegexSearch;
  struct Code;
  Regex(std::string pattern, std::shared_ptr<const Code> code);
  std::string pattern_;
  std::shared_ptr<const Code> code_;
};

// A search through the words of a text, in batches of matches. Used by one thread.
class RegexSearch {
 public:
  // Both must outlive the search.
  static Result<RegexSearch> Create(const Regex* regex, std::string_view text);
  RegexSearch(RegexSearch&&) noexcept;
  RegexSearch& operator=(RegexSearch&&) = delete;
  ~RegexSearch();

  // Starts at the beginning of `word`, which is searched as if it were a whole text.
  void Begin(const TextRange& word);
  // Appends up to `count` further matches. False if the word has no more.
  Result<bool> Next(size_t count, std::vector<TextRange>* matches);

 private:
  struct State;
  explicit RegexSearch(std::unique_ptr<State> state);
  // Stores the next match in the state; false if there is none.
  Result<bool> Match();
  Status TooManySteps() const;
  std::unique_ptr<State> state_;
};

// Converts `pattern` from Oniguruma's to PCRE2's syntax. Rewrites the constructs that differ: `\h`,
// `\s`, `{2,3}+`, `\uHHHH`, nested classes (regex_syntax.cc).
Result<std::string> PcrePattern(std::string_view pattern);

}  // namespace minisgl::text
