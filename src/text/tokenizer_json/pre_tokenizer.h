// Cuts text into the words that a model encodes one by one ("pre_tokenizer" of tokenizer.json).
//
// Immutable; usable from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"
#include "text/tokenizer_json/regex.h"

namespace minisgl {

// A text and the words in it, in order and without overlap; what lies between words is dropped.
struct WordList {
  std::string text;
  std::vector<TextRange> words;  // none is empty
  bool at_start = false;         // the first word begins the whole text
};

// What becomes of the matches that a text is split at.
enum class SplitBehavior {
  kRemoved,
  kIsolated,  // a word each
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // neighbours are one word
};

class PreTokenizer {
 public:
  // `place` holds null (the identity) or an object with "type".
  static Result<std::unique_ptr<const PreTokenizer>> Read(const JsonPlace& place);
  // Every match of `pattern` is a word, and so is what lies between matches.
  static std::unique_ptr<const PreTokenizer> IsolateMatches(Regex pattern);

  virtual ~PreTokenizer() = default;
  // REQUIRES well-formed UTF-8.
  virtual Status Run(WordList* list) const = 0;
};

// Splits every word of `list` at `matches` of its text; with `invert`, at what lies between them.
// REQUIRES that they are in order, do not overlap, and that each lies within one word.
void SplitWords(const std::vector<TextRange>& matches, SplitBehavior behavior, bool invert,
                WordList* list);

}  // namespace minisgl
