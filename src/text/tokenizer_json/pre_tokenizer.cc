// The kinds of pre-tokenizer, and their construction from tokenizer.json.
//
// A long text is split in a stream: a Matcher yields matches in batches, SplitStream groups them
// into words and passes the words on in parts.
#include "text/tokenizer_json/pre_tokenizer.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "minisgl/base/utf8.h"
#include "minisgl/text/tokenizer.h"
#include "text/tokenizer_json/byte_level.h"
#include "text/tokenizer_json/pattern.h"
#include "text/tokenizer_json/unicode.h"

namespace minisgl::text {
namespace pre_tokenizers {
namespace {

// The words of GPT-2: the pattern of byte-level models that do not define one.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Pointer = std::unique_ptr<const PreTokenizer>;

// A match, or the text between two matches.
struct Part {
  TextRange range;
  bool is_match = false;
};

// Groups the parts of one word into words of the result, according to `behavior`.
void Regroup(const std::vector<Part>& parts, SplitBehavior behavior,
             std::vector<TextRange>* words) {
  const size_t first = words->size();
  const auto extends = [&](const Part& part, bool previous_match) {
    if (words->size() == first) return false;
    if (behavior == SplitBehavior::kContiguous) return part.is_match == previous_match;
    return behavior == SplitBehavior::kMergedWithPrevious && part.is_match && !previous_match;
  };
  bool previous_match = false;
  if (behavior == SplitBehavior::kMergedWithNext) {
    std::vector<TextRange> backwards;
    for (size_t i = parts.size(); i-- > 0;) {
      if (parts[i].is_match && !previous_match && !backwards.empty()) {
        backwards.back().begin = parts[i].range.begin;
      } else {
        backwards.push_back(parts[i].range);
      }
      previous_match = parts[i].is_match;
    }
    words->insert(words->end(), backwards.rbegin(), backwards.rend());
    return;
  }
  for (const Part& part : parts) {
    if (extends(part, previous_match)) {
      words->back().end = part.range.end;
    } else if (behavior != SplitBehavior::kRemoved || !part.is_match) {
      words->push_back(part.range);
    }
    previous_match = part.is_match;
  }
}

// Yields the matches of a splitter in batches, with the contract of Pattern::Search.
struct Matcher {
  std::function<void(const TextRange&)> begin;
  std::function<Result<bool>(size_t, std::vector<TextRange>*)> next;
};

// True if a word of the result always ends between the two parts, whatever their context.
bool MayCut(const Part& left, const Part& right, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kContiguous) return left.is_match != right.is_match;
  if (behavior == SplitBehavior::kMergedWithPrevious) return left.is_match || !right.is_match;
  if (behavior == SplitBehavior::kMergedWithNext) return !left.is_match || right.is_match;
  return true;
}

// SplitWords for a long list, part by part.
class SplitStream {
 public:
  SplitStream(const WordList& list, SplitBehavior behavior, bool invert, const WordSink& sink)
      : list_(list), behavior_(behavior), invert_(invert), sink_(sink) {}

  Result<bool> Run(const Matcher& matcher) {
    std::vector<TextRange> matches;
    for (const TextRange& word : list_.words) {
      matcher.begin(word);
      size_t at = word.begin;
      for (bool more = true; more;) {
        matches.clear();
        MINISGL_ASSIGN_OR_RETURN(more, matcher.next(kMatchesAtOnce, &matches));
        for (const TextRange& match : matches) {
          if (at < match.begin) Push({{at, match.begin}, invert_});
          Push({match, !invert_});
          at = match.end;
        }
        if (!more && at < word.end) Push({{at, word.end}, invert_});
        Group(/*all=*/!more);
        MINISGL_ASSIGN_OR_RETURN(const bool wanted, Flush(kWordPartBytes));
        if (!wanted) return false;
      }
    }
    return Flush(0);
  }

 private:
  static constexpr size_t kMatchesAtOnce = 1024;

  void Push(const Part& part) {
    const bool extends = behavior_ == SplitBehavior::kContiguous && !parts_.empty() &&
                         parts_.back().is_match == part.is_match;
    if (extends) {
      parts_.back().range.end = part.range.end;
    } else {
      parts_.push_back(part);
    }
  }

  // Groups the parts into words. Unless `all`, keeps the last parts, whose grouping may depend on
  // parts to come.
  void Group(bool all) {
    size_t end = parts_.size();
    if (!all && end > 0) {
      --end;
      while (end > 0 && !MayCut(parts_[end - 1], parts_[end], behavior_)) --end;
    }
    const auto cut = parts_.begin() + static_cast<std::ptrdiff_t>(end);
    grouped_.clear();
    Regroup(std::vector<Part>(parts_.begin(), cut), behavior_, &grouped_);
    parts_.erase(parts_.begin(), cut);
    for (const TextRange& range : grouped_) {
      if (range.begin < range.end) words_.push_back(range);
    }
  }

  // Passes the words on if they span at least `bytes_min` bytes.
  Result<bool> Flush(size_t bytes_min) {
    if (words_.empty()) return true;
    const size_t begin = words_.front().begin;
    if (words_.back().end - begin < bytes_min && words_.size() < kMatchesAtOnce) return true;
    WordList part;
    part.text = list_.text.substr(begin, words_.back().end - begin);
    part.at_start = list_.at_start && begin == list_.words.front().begin;
    part.words = std::move(words_);
    words_.clear();
    for (TextRange& word : part.words) {
      word.begin -= begin;
      word.end -= begin;
    }
    return sink_(std::move(part));
  }

  const WordList& list_;
  const SplitBehavior behavior_;
  const bool invert_;
  const WordSink& sink_;
  std::vector<Part> parts_;
  std::vector<TextRange> grouped_, words_;
};

Result<bool> StreamMatches(const WordList& list, const Pattern& pattern, SplitBehavior behavior,
                           bool invert, const WordSink& sink) {
  MINISGL_ASSIGN_OR_RETURN(Pattern::Search search, Pattern::Search::Create(&pattern, list.text));
  return SplitStream(list, behavior, invert, sink)
      .Run({[&](const TextRange& word) { search.Begin(word); },
            [&](size_t count, std::vector<TextRange>* matches) {
              return search.Next(count, matches);
            }});
}

bool IsShort(const WordList& list) { return list.text.size() <= kWordPartBytes; }

// Splits at the characters that satisfy a condition.
class SplitAtCharacters : public PreTokenizer {
 public:
  SplitAtCharacters(bool (*condition)(char32_t), SplitBehavior behavior)
      : condition_(condition), behavior_(behavior) {}
  Result<bool> Stream(WordList list, const WordSink& sink) const override {
    if (IsShort(list)) return PreTokenizer::Stream(std::move(list), sink);
    TextRange rest;
    const auto next = [&](size_t count, std::vector<TextRange>* matches) -> Result<bool> {
      while (count > 0 && rest.begin < rest.end) {
        size_t length = 0;
        const std::string_view text = std::string_view(list.text).substr(rest.begin);
        if (condition_(FirstCharacter(text, &length))) {
          matches->push_back({rest.begin, rest.begin + length});
          --count;
        }
        rest.begin += length;
      }
      return rest.begin < rest.end;
    };
    return SplitStream(list, behavior_, /*invert=*/false, sink)
        .Run({[&](const TextRange& word) { rest = word; }, next});
  }
  bool KeepsAll() const override { return behavior_ != SplitBehavior::kRemoved; }
  Status Run(WordList* list) const override {
    std::vector<TextRange> matches;
    const std::string_view text = list->text;
    for (const TextRange& word : list->words) {
      for (size_t at = word.begin; at < word.end;) {
        size_t length = 0;
        if (condition_(FirstCharacter(text.substr(at), &length))) {
          matches.push_back({at, at + length});
        }
        at += length;
      }
    }
    SplitWords(matches, behavior_, /*invert=*/false, list);
    return {};
  }

 private:
  bool (*condition_)(char32_t);
  SplitBehavior behavior_;
};

// Splits at the matches of a pattern.
class SplitAtPattern : public PreTokenizer {
 public:
  SplitAtPattern(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status Run(WordList* list) const override {
    std::vector<TextRange> matches;
    MINISGL_RETURN_IF_ERROR(pattern_.FindAllIn(list->text, list->words, &matches));
    SplitWords(matches, behavior_, invert_, list);
    return {};
  }
  Result<bool> Stream(WordList list, const WordSink& sink) const override {
    if (IsShort(list)) return PreTokenizer::Stream(std::move(list), sink);
    return StreamMatches(list, pattern_, behavior_, invert_, sink);
  }
  bool KeepsAll() const override { return behavior_ != SplitBehavior::kRemoved; }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Rewrites every word: `write`(word, at_start, out) appends its new text to `out`.
Status Rewrite(WordList* list,
               const std::function<void(std::string_view, bool, std::string*)>& write) {
  WordList written;
  written.at_start = list->at_start;
  written.text.reserve(list->text.size() + list->text.size() / 4);
  bool at_start = list->at_start;
  for (const TextRange& word : list->words) {
    const size_t begin = written.text.size();
    write(std::string_view(list->text).substr(word.begin, word.end - word.begin), at_start,
          &written.text);
    written.words.push_back({begin, written.text.size()});
    at_start = false;
    // The spelling of bytes at most doubles a text, and a prefix adds a few bytes to each word.
    if (written.text.size() > 8 * kTextBytesMax) return BadInput("the text grows too long");
  }
  *list = std::move(written);
  return {};
}

// Splits at GPT-2's pattern (if it has one) and spells the words as bytes.
class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> regex)
      : add_prefix_space_(add_prefix_space) {
    if (regex) pattern_.emplace(std::move(*regex));
  }
  Status Run(WordList* list) const override {
    MINISGL_RETURN_IF_ERROR(AddPrefixes(list));
    if (pattern_) {
      std::vector<TextRange> matches;
      MINISGL_RETURN_IF_ERROR(pattern_->FindAllIn(list->text, list->words, &matches));
      SplitWords(matches, SplitBehavior::kIsolated, /*invert=*/false, list);
    }
    return Spell(list);
  }
  Result<bool> Stream(WordList list, const WordSink& sink) const override {
    if (IsShort(list) || !pattern_) return PreTokenizer::Stream(std::move(list), sink);
    MINISGL_RETURN_IF_ERROR(AddPrefixes(&list));
    const WordSink spell = [&](WordList part) -> Result<bool> {
      MINISGL_RETURN_IF_ERROR(Spell(&part));
      return sink(std::move(part));
    };
    return StreamMatches(list, *pattern_, SplitBehavior::kIsolated, /*invert=*/false, spell);
  }
  bool SpellsBytes() const override { return true; }

 private:
  Status AddPrefixes(WordList* list) const {
    if (!add_prefix_space_) return {};
    return Rewrite(list, [](std::string_view word, bool, std::string* out) {
      if (!word.starts_with(' ')) *out += ' ';
      *out += word;
    });
  }
  static Status Spell(WordList* list) {
    return Rewrite(
        list, [](std::string_view word, bool, std::string* out) { AppendByteSpelling(word, out); });
  }

  bool add_prefix_space_;
  std::optional<Pattern> pattern_;
};

enum class PrependScheme { kFirst, kAlways, kNever };

// Replaces spaces by a mark, and optionally splits before each mark.
class Metaspace : public PreTokenizer {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}
  Status Run(WordList* list) const override {
    MINISGL_RETURN_IF_ERROR(ReplaceSpaces(list));
    if (!split_) return {};
    std::vector<TextRange> matches;
    MINISGL_RETURN_IF_ERROR(
        Pattern::Literal(replacement_).FindAllIn(list->text, list->words, &matches));
    SplitWords(matches, SplitBehavior::kMergedWithNext, /*invert=*/false, list);
    return {};
  }
  Result<bool> Stream(WordList list, const WordSink& sink) const override {
    if (IsShort(list) || !split_) return PreTokenizer::Stream(std::move(list), sink);
    MINISGL_RETURN_IF_ERROR(ReplaceSpaces(&list));
    return StreamMatches(list, Pattern::Literal(replacement_), SplitBehavior::kMergedWithNext,
                         /*invert=*/false, sink);
  }

 private:
  Status ReplaceSpaces(WordList* list) const {
    return Rewrite(list, [this](std::string_view word, bool at_start, std::string* out) {
      const bool prepends =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && at_start);
      if (prepends && !word.starts_with(replacement_) && !word.starts_with(' ')) {
        *out += replacement_;
      }
      for (char c : word) {
        if (c == ' ') {
          *out += replacement_;
        } else {
          *out += c;
        }
      }
    });
  }

  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

// Splits into words of a fixed number of characters; the last word may be shorter.
class FixedLength : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}
  Status Run(WordList* list) const override {
    std::vector<TextRange> words;
    const std::string_view text = list->text;
    for (const TextRange& word : list->words) {
      for (size_t at = word.begin; at < word.end;) {
        const size_t begin = at;
        for (int64_t count = 0; count < length_ && at < word.end; ++count) {
          at += std::max<size_t>(Utf8CharLength(text.substr(at)), 1);
        }
        words.push_back({begin, at});
      }
    }
    list->words = std::move(words);
    return {};
  }
  Result<bool> Stream(WordList list, const WordSink& sink) const override {
    if (IsShort(list)) return PreTokenizer::Stream(std::move(list), sink);
    TextRange rest;
    const auto next = [&](size_t count, std::vector<TextRange>* matches) -> Result<bool> {
      const std::string_view text = std::string_view(list.text).substr(0, rest.end);
      for (; count > 0 && rest.begin < rest.end; --count) {
        size_t at = rest.begin;
        for (int64_t i = 0; i < length_ && at < rest.end; ++i) {
          at += std::max<size_t>(Utf8CharLength(text.substr(at)), 1);
        }
        matches->push_back({std::exchange(rest.begin, at), at});
      }
      return rest.begin < rest.end;
    };
    return SplitStream(list, SplitBehavior::kIsolated, /*invert=*/false, sink)
        .Run({[&](const TextRange& word) { rest = word; }, next});
  }

 private:
  int64_t length_;
};

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<Pointer> steps) : steps_(std::move(steps)) {}
  Status Run(WordList* list) const override {
    for (const Pointer& step : steps_) MINISGL_RETURN_IF_ERROR(step->Run(list));
    return {};
  }
  Result<bool> Stream(WordList list, const WordSink& sink) const override {
    return StreamFrom(0, std::move(list), sink);
  }
  bool KeepsAll() const override {
    return std::all_of(steps_.begin(), steps_.end(),
                       [](const Pointer& s) { return s->KeepsAll(); });
  }
  bool SpellsBytes() const override {
    return std::any_of(steps_.begin(), steps_.end(),
                       [](const Pointer& s) { return s->SpellsBytes(); });
  }

 private:
  Result<bool> StreamFrom(size_t step, WordList list, const WordSink& sink) const {
    if (step == steps_.size()) return sink(std::move(list));
    return steps_[step]->Stream(std::move(list), [this, step, &sink](WordList part) {
      return StreamFrom(step + 1, std::move(part), sink);
    });
  }

  std::vector<Pointer> steps_;
};

Result<SplitBehavior> ReadBehavior(const JsonPlace& place) {
  constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  MINISGL_ASSIGN_OR_RETURN(const std::string name, place.String());
  for (const auto& [spelled, behavior] : kNames) {
    if (name == spelled) return behavior;
  }
  return place.Error(
      "is \"{}\"; it must be Removed, Isolated, MergedWithPrevious, MergedWithNext "
      "or Contiguous",
      Visible(name));
}

Result<Pointer> ReadSplit(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(Pattern pattern, Pattern::Read(place["pattern"]));
  MINISGL_ASSIGN_OR_RETURN(const SplitBehavior behavior, ReadBehavior(place["behavior"]));
  MINISGL_ASSIGN_OR_RETURN(const bool invert, place["invert"].Bool(false));
  return Pointer(new SplitAtPattern(std::move(pattern), behavior, invert));
}

Result<Pointer> ReadByteLevel(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(const bool add_prefix_space, place["add_prefix_space"].Bool(true));
  MINISGL_ASSIGN_OR_RETURN(const bool use_regex, place["use_regex"].Bool(true));
  std::optional<Regex> regex;
  if (use_regex) {
    MINISGL_ASSIGN_OR_RETURN(regex, Regex::Compile(kGpt2Pattern));
  }
  return Pointer(new ByteLevel(add_prefix_space, std::move(regex)));
}

Result<Pointer> ReadMetaspace(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(const std::string replacement,
                           ReadOneCharacter(place["replacement"], kSpaceSymbol));
  MINISGL_ASSIGN_OR_RETURN(const std::string name, place["prepend_scheme"].String("always"));
  // An older key; if false, it overrides prepend_scheme.
  MINISGL_ASSIGN_OR_RETURN(const bool adds, place["add_prefix_space"].Bool(true));
  MINISGL_ASSIGN_OR_RETURN(const bool split, place["split"].Bool(true));
  PrependScheme scheme = PrependScheme::kAlways;
  if (name == "first") {
    scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    scheme = PrependScheme::kNever;
  } else if (name != "always") {
    return place["prepend_scheme"].Error("is \"{}\"; it must be first, always or never",
                                         Visible(name));
  }
  if (!adds) scheme = PrependScheme::kNever;
  return Pointer(new Metaspace(replacement, scheme, split));
}

Pointer AtCharacters(bool (*condition)(char32_t), SplitBehavior behavior) {
  return Pointer(new SplitAtCharacters(condition, behavior));
}

Pointer InSequence(Pointer first, Pointer second) {
  std::vector<Pointer> steps;
  steps.push_back(std::move(first));
  steps.push_back(std::move(second));
  return Pointer(new Sequence(std::move(steps)));
}

Result<Pointer> ReadDigits(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(const bool individual, place["individual_digits"].Bool(false));
  return AtCharacters(&IsNumeric,
                      individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous);
}

Result<Pointer> ReadPunctuation(const JsonPlace& place) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (!place["behavior"].is_null()) {
    MINISGL_ASSIGN_OR_RETURN(behavior, ReadBehavior(place["behavior"]));
  }
  return AtCharacters(&IsPunctuation, behavior);
}

// Words are runs of word characters, and runs of other characters except white space.
Result<Pointer> ReadWhitespace(const JsonPlace&) {
  MINISGL_ASSIGN_OR_RETURN(
      Regex regex, Regex::Compile(R"([\w\x{200c}\x{200d}]+|(?:(?![\w\x{200c}\x{200d}])\S)+)"));
  return Pointer(new SplitAtPattern(Pattern(std::move(regex)), SplitBehavior::kRemoved,
                                    /*invert=*/true));
}

Result<Pointer> ReadCharDelimiterSplit(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(std::string delimiter, ReadOneCharacter(place["delimiter"], ""));
  return Pointer(new SplitAtPattern(Pattern::Literal(std::move(delimiter)), SplitBehavior::kRemoved,
                                    /*invert=*/false));
}

Result<Pointer> ReadFixedLength(const JsonPlace& place) {
  MINISGL_ASSIGN_OR_RETURN(const int64_t length, place["length"].Int(1, int64_t{kTextBytesMax}, 5));
  return Pointer(new FixedLength(length));
}

Result<Pointer> ReadKind(const JsonPlace& place, int depth) {
  if (!place.json().is_object()) return place.MustBe("an object");
  MINISGL_ASSIGN_OR_RETURN(const std::string type, place["type"].String());
  if (type == "Sequence") {
    MINISGL_ASSIGN_OR_RETURN(std::vector<Pointer> steps,
                             place.ReadSteps<Pointer>("pretokenizers", depth, ReadKind));
    return Pointer(new Sequence(std::move(steps)));
  }
  if (type == "ByteLevel") return ReadByteLevel(place);
  if (type == "Split") return ReadSplit(place);
  if (type == "Metaspace") return ReadMetaspace(place);
  if (type == "Digits") return ReadDigits(place);
  if (type == "Punctuation") return ReadPunctuation(place);
  if (type == "Whitespace") return ReadWhitespace(place);
  if (type == "WhitespaceSplit") return AtCharacters(&IsWhiteSpace, SplitBehavior::kRemoved);
  if (type == "CharDelimiterSplit") return ReadCharDelimiterSplit(place);
  if (type == "FixedLength") return ReadFixedLength(place);
  if (type == "BertPreTokenizer") {
    return InSequence(AtCharacters(&IsWhiteSpace, SplitBehavior::kRemoved),
                      AtCharacters(&IsPunctuation, SplitBehavior::kIsolated));
  }
  return place["type"].Error(
      "is \"{}\"; supported are ByteLevel, Split, Metaspace, Digits, Punctuation, Whitespace, "
      "WhitespaceSplit, CharDelimiterSplit, FixedLength, BertPreTokenizer and Sequence",
      Visible(type));
}

}  // namespace
}  // namespace pre_tokenizers

void SplitWords(const std::vector<TextRange>& matches, SplitBehavior behavior, bool invert,
                WordList* list) {
  if (list->words.empty()) return;
  const size_t text_begin = list->words.front().begin;
  std::vector<TextRange> words, one;
  std::vector<pre_tokenizers::Part> parts;
  size_t next = 0;
  for (const TextRange& word : list->words) {
    parts.clear();
    size_t at = word.begin;
    for (; next < matches.size() && matches[next].end <= word.end; ++next) {
      // An empty match at the border of two words belongs to the first.
      const TextRange& match = matches[next];
      if (match.begin < at) break;
      if (at < match.begin) parts.push_back({{at, match.begin}, invert});
      parts.push_back({match, !invert});
      at = match.end;
    }
    if (at < word.end) parts.push_back({{at, word.end}, invert});
    one.clear();
    pre_tokenizers::Regroup(parts, behavior, &one);
    for (const TextRange& range : one) {
      if (range.begin < range.end) words.push_back(range);
    }
  }
  list->at_start = list->at_start && !words.empty() && words.front().begin == text_begin;
  list->words = std::move(words);
}

Result<std::unique_ptr<const PreTokenizer>> PreTokenizer::Read(const JsonPlace& place) {
  if (place.is_null()) {
    return std::unique_ptr<const PreTokenizer>(std::make_unique<pre_tokenizers::Sequence>(
        std::vector<std::unique_ptr<const PreTokenizer>>()));
  }
  return pre_tokenizers::ReadKind(place, 0);
}

std::unique_ptr<const PreTokenizer> PreTokenizer::IsolateMatches(Regex pattern) {
  return std::make_unique<pre_tokenizers::SplitAtPattern>(
      Pattern(std::move(pattern)), SplitBehavior::kIsolated, /*invert=*/false);
}

}  // namespace minisgl::text
