// Cuts text into the words that a model encodes one by one ("pre_tokenizer" of tokenizer.json).
//
// Immutable; usable from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "minisgl/base/status.h"
#include "text/tokenizer_json/json_place.h"
#include "text/tokenizer_json/regex.h"

namespace minisgl::text {

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

// Takes the words of a text in order, part by part. False: no more are wanted.
using WordSink = std::function<Result<bool>(WordList)>;

// A list with a longer text is not held as words at once but handed on in parts.
inline constexpr size_t kWordPartBytes = size_t{64} << 10;

class PreTokenizer {
 public:
  // `place` holds null (the identity) or an object with "type".
  static Result<std::unique_ptr<const PreTokenizer>> Read(const JsonPlace& place);
  // Every match of `pattern` is a word, and so is what lies between matches.
  static std::unique_ptr<const PreTokenizer> IsolateMatches(Regex pattern);

  virtual ~PreTokenizer() = default;
  // REQUIRES well-formed UTF-8.
  virtual Status Run(WordList* list) const = 0;
  // As Run, but the words go to `sink` some thousand at a time, each part with its own text: memory
  // is a few bytes for each of the text. False where the sink wanted no more.
  virtual Result<bool> Stream(WordList list, const WordSink& sink) const {
    MINISGL_RETURN_IF_ERROR(Run(&list));
    return sink(std::move(list));
  }
  // Whether every character of a text is in some word.
  virtual bool KeepsAll() const { return true; }
  // Whether words are bytes as byte-level models spell them (byte_level.h).
  virtual bool SpellsBytes() const { return false; }
};

// Splits every word of `list` at `matches` of its text; with `invert`, at what lies between them.
// REQUIRES that they are in order, do not overlap, and that each lies within one word.
void SplitWords(const std::vector<TextRange>& matches, SplitBehavior behavior, bool invert,
                WordList* list);

}  // namespace minisgl::text
