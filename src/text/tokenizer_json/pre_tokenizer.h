// Cuts a text into words, which are encoded one by one ("pre_tokenizer" of tokenizer.json).
//
// Immutable; thread-safe.
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

// A text and its words, in order and without overlap. Text between words is dropped.
struct WordList {
  std::string text;
  std::vector<TextRange> words;  // none is empty
  bool at_start = false;         // the first word begins the whole text
};

// The treatment of the matches at which a text is split.
enum class SplitBehavior {
  kRemoved,
  kIsolated,  // each match is a word
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,  // adjacent matches are one word
};

// Receives the words of a text in order, part by part. Returns false to stop.
using WordSink = std::function<Result<bool>(WordList)>;

// The words of a longer text are not all held in memory but passed on in parts.
inline constexpr size_t kWordPartBytes = size_t{64} << 10;

class PreTokenizer {
 public:
  // Reads a pre-tokenizer from null (the identity) or an object with "type".
  static Result<std::unique_ptr<const PreTokenizer>> Read(const JsonPlace& place);
  // Returns a pre-tokenizer whose words are the matches of `pattern` and the text between them.
  static std::unique_ptr<const PreTokenizer> IsolateMatches(Regex pattern);

  virtual ~PreTokenizer() = default;
  // Splits the words of `list`. REQUIRES: well-formed UTF-8.
  virtual Status Run(WordList* list) const = 0;
  // As Run, but passes the words to `sink` in parts of about a thousand, each with its own text.
  // Needs a few bytes of memory per byte of text. False if the sink stopped.
  virtual Result<bool> Stream(WordList list, const WordSink& sink) const {
    MINISGL_RETURN_IF_ERROR(Run(&list));
    return sink(std::move(list));
  }
  // True if every character of a text is in a word.
  virtual bool KeepsAll() const { return true; }
  // True if words are bytes in the spelling of byte-level models (byte_level.h).
  virtual bool SpellsBytes() const { return false; }
};

// Splits every word of `list` at `matches`; with `invert`, at the text between the matches.
// REQUIRES: the matches are in order, do not overlap, and each lies within one word.
void SplitWords(const std::vector<TextRange>& matches, SplitBehavior behavior, bool invert,
                WordList* list);

}  // namespace minisgl::text
