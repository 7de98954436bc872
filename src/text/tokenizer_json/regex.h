// Regular expressions of tokenizer files (Oniguruma's syntax, as tokenizer.json is written for) on
// PCRE2 with Unicode properties.
//
// The properties are those of PCRE2's own version of Unicode (14 on Debian 12); the reference's
// know Unicode 16, so that characters added in between are letters there and not here.
//
// Matching is bounded: steps over a whole text (MatchBudget) and memory, no use of the machine's
// stack that grows with the text. Immutable; usable from any thread.
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

// What matching may do in one text, all patterns and all matches together, on the thread that made
// it and as long as it is there (the innermost counts). Where there is none, each search has its
// own. Work is counted, never time: what is refused depends on pattern and text alone.
class MatchBudget {
 public:
  // `goes_on` (may be empty) is asked now and then; after a false every search fails.
  explicit MatchBudget(size_t text_bytes, std::function<bool()> goes_on = {});
  ~MatchBudget();
  MatchBudget(const MatchBudget&) = delete;
  MatchBudget& operator=(const MatchBudget&) = delete;

  static MatchBudget* Current();
  // False where there is not so much left.
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
  // kBadInput where `pattern` is none, is longer than 64 KiB, or has what is not supported.
  static Result<Regex> Compile(std::string_view pattern);

  // Appends the matches in `text` that do not overlap, from left to right; an empty match stands
  // nowhere directly behind another. kBadInput where that takes too many steps.
  // REQUIRES well-formed UTF-8.
  Status FindAll(std::string_view text, std::vector<TextRange>* matches) const;
  // The same in each of `words` as if it were a whole text; places count in `text`.
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

// A search through the words of a text, some matches at a time. Used by one thread.
class RegexSearch {
 public:
  // Both outlive the search.
  static Result<RegexSearch> Create(const Regex* regex, std::string_view text);
  RegexSearch(RegexSearch&&) noexcept;
  RegexSearch& operator=(RegexSearch&&) = delete;
  ~RegexSearch();

  // Goes to the beginning of `word`, which is searched as if it were a whole text.
  void Begin(const TextRange& word);
  // Appends the next matches, at most `count`. False: the word has no more.
  Result<bool> Next(size_t count, std::vector<TextRange>* matches);

 private:
  struct State;
  explicit RegexSearch(std::unique_ptr<State> state);
  // The next match into the state; false where there is none.
  Result<bool> Match();
  Status TooManySteps() const;
  std::unique_ptr<State> state_;
};

// `pattern` in PCRE2's syntax: what the two spell differently (`\h`, `\s`, `{2,3}+`, `\uHHHH`,
// classes within classes) is rewritten.
Result<std::string> PcrePattern(std::string_view pattern);

}  // namespace minisgl::text
